"""What `draft_model` names is what drafts, and strict stays plain decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptivespec import Engine
from adaptivespec.core.errors import CheckpointError, ConfigError, ModelNotFoundError
from adaptivespec.draft.graft import GraftDrafter
from adaptivespec.draft.ngram import NgramDrafter
from adaptivespec.draft.small_lm import SmallLMDrafter
from adaptivespec.engine.identity import head_of, in_force
from fakes.tiny_gguf import GgufSpec, write_gguf

OPTIONS: dict[str, Any] = {"backend": "torch", "dtype": "float32"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("models") / "target.gguf")


def plain_and(engine: Engine, **options: Any) -> tuple[Any, Any]:
    prompt = [3, 9, 4, 3, 9, 4, 3]
    given = {"max_tokens": 24, "ignore_eos": True}
    plain = engine.generate(prompt, policy="none", **given)
    return plain, engine.generate(prompt, **given, **options)


@pytest.mark.parametrize("spelled", ["ngram", "+ngram", None])
def test_n_grams_need_no_head(target: Path, spelled: str | None) -> None:
    """And are what a model without one gets, unasked."""
    engine = Engine.from_pretrained(target, spelled, **OPTIONS)
    assert isinstance(engine.drafter, NgramDrafter)
    assert engine.head_name == "ngram"
    plain, drafted = plain_and(engine, policy="chain:4")
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.num_draft_tokens > 0
    assert engine.generate([3, 9, 4], max_tokens=2).policy != "none"


def test_a_small_model_drafts_and_its_own_twin_is_always_right(target: Path) -> None:
    engine = Engine.from_pretrained(target, target, **OPTIONS)
    assert isinstance(engine.drafter, SmallLMDrafter)
    plain, drafted = plain_and(engine, policy="chain:3")
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.num_accepted_draft_tokens == drafted.stats.num_draft_tokens > 0


def test_n_grams_are_grafted_onto_a_small_model(target: Path) -> None:
    engine = Engine.from_pretrained(target, f"{target}+ngram", **OPTIONS)
    assert isinstance(engine.drafter, GraftDrafter)
    assert engine.files[1] == target
    plain, drafted = plain_and(engine, policy="static:3,2,6")
    assert drafted.token_ids == plain.token_ids


def test_a_model_of_other_tokens_is_refused(target: Path, tmp_path: Path) -> None:
    spec = GgufSpec()
    tokens = list(spec.tokens)
    tokens[5], tokens[6] = tokens[6], tokens[5]
    other = write_gguf(tmp_path / "other.gguf", GgufSpec(tokens=tokens))
    with pytest.raises(CheckpointError, match="token") as caught:
        Engine.from_pretrained(target, other, **OPTIONS)
    assert caught.value.field == "draft_model"


@pytest.mark.parametrize(
    ("spelled", "error"),
    [("ngram+ngram", ConfigError), ("no-such-head+ngram", ModelNotFoundError)],
)
def test_what_names_nothing_is_refused(target: Path, spelled: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        Engine.from_pretrained(target, spelled, local_files_only=True, **OPTIONS)
    assert caught.value.field == "draft_model"  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def engines(model_cache: str | None) -> dict[str, Engine]:
    """The embedded model with each drafter."""
    spelled = {"head": None, "ngram": "ngram", "both": "+ngram"}
    return {
        name: Engine.from_pretrained(None, draft, cache_dir=model_cache)
        for name, draft in spelled.items()
    }


@pytest.mark.network
class TestEmbedded:
    def test_all_answer_alike(self, engines: dict[str, Engine]) -> None:
        prompt = 'Say this again: {"city": "London", "river": "Thames", "bridges": 35}'
        answers = {name: e.generate(prompt, max_tokens=40) for name, e in engines.items()}
        assert len({answer.text for answer in answers.values()}) == 1
        assert isinstance(engines["both"].drafter, GraftDrafter)
        steps = {name: answer.stats.num_spec_steps for name, answer in answers.items()}
        assert steps["both"] <= steps["head"]

    def test_each_is_another_drafter_for_a_certificate(self, engines: dict[str, Engine]) -> None:
        heads = {name: head_of(engine) for name, engine in engines.items()}
        assert heads["head"] is not None
        assert heads["ngram"] is not None
        assert heads["both"] is not None
        assert not heads["head"].same(heads["both"])
        assert not heads["head"].same(heads["ngram"])
        words = {name: in_force(engine).words for name, engine in engines.items()}
        assert words == {
            "head": (),
            "ngram": ("--draft-model", "ngram"),
            "both": ("--draft-model", "+ngram"),
        }

"""The engine on a tiny real model: strict equals plain across cache growth, turns and policies."""

from __future__ import annotations

from typing import Any

import pytest

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError, ModelNotFoundError
from adaptivespec.engine import session as session_module
from adaptivespec.engine.engine import Engine
from fakes import scripted, tiny, tiny_engine

POLICIES = ["chain:1", "chain:4", "static:3,3,9", "eagle2:4,2,7", "dcs"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine.endless()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_strict_equals_plain_while_the_caches_grow(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, policy: str, temperature: float
) -> None:
    monkeypatch.setattr(session_module, "INITIAL_ROWS", 8)
    for prompt in ([3], [9, 4, 27, 3, 50], list(range(30))):
        options = {"max_tokens": 40, "temperature": temperature, "seed": 5}
        plain = engine.generate(prompt, policy="none", **options)
        strict = engine.generate(prompt, policy=policy, **options)
        assert strict.token_ids == plain.token_ids


def test_turns_of_a_conversation_reuse_the_cache_and_change_nothing(engine: Engine) -> None:
    session = engine.session()
    history = [9, 4, 27]
    for policy in ("dcs", "none", "static:3,3,9", "none", "chain:3"):
        fresh = engine.generate(history, policy=policy, max_tokens=9)
        kept = engine.generate(history, policy=policy, max_tokens=9, session=session)
        assert kept.token_ids == fresh.token_ids
        assert session.tokens[: len(history)] == history
        history = [*history, *kept.token_ids, 11, 12]
    other = engine.generate([9, 4, 1], policy="dcs", max_tokens=9, session=session)
    assert other.token_ids == engine.generate([9, 4, 1], policy="none", max_tokens=9).token_ids


def test_a_cancelled_stream_leaves_a_usable_session(engine: Engine) -> None:
    session = engine.session()
    stream = engine.stream([9, 4, 27], policy="dcs", max_tokens=30, session=session)
    next(stream)
    next(stream)
    stream.close()
    got = engine.generate([9, 4, 27, 8], policy="dcs", max_tokens=9, session=session)
    assert got.token_ids == engine.generate([9, 4, 27, 8], policy="none", max_tokens=9).token_ids


def test_without_a_drafter_only_plain_decoding_is_left() -> None:
    tokenizer: Any = tiny_engine.EndlessTokenizer()
    plain = Engine(tiny.target(), tokenizer, None, "tiny")
    assert plain.generate([3], max_tokens=3).policy == "none"
    with pytest.raises(ConfigError, match="draft_model"):
        plain.generate([3], policy="dcs")


@pytest.mark.network
@pytest.mark.parametrize("name", ["nowhere", "/nowhere/at/all"])
def test_a_missing_head_is_named(name: str, model_cache: str | None) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        Engine.from_pretrained(draft_model=name, cache_dir=model_cache, local_files_only=True)
    assert caught.value.field == "draft_model"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dtype": "int3"}, "dtype"),
        ({"device": "tpu"}, "device"),
        ({"threads": 0}, "threads"),
    ],
)
def test_loading_refuses_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Engine.from_pretrained(**options)
    assert caught.value.field == field
    assert caught.value.remedy or "must be" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"rule": "regret", "temperature": 0.5}, "temperature"),
        ({"rule": "rejection", "policy": "static"}, "policy"),
        ({"rule": "rejection", "policy": "chain:num_steps=3,min_confidence=0.4"}, "policy"),
        ({"rule": "judge"}, "rule_options.head"),
    ],
)
def test_rules_are_refused_where_they_are_not_defined(
    arguments: dict[str, Any], field: str
) -> None:
    made = scripted.engine(lambda prefix: scripted.prefer(5), lambda prefix: scripted.chain(5, 5))
    with pytest.raises(AdaptiveSpecError) as caught:
        made.generate([1], max_tokens=4, **arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("policy", ["none", "chain:2", "medusa"])
def test_rules_that_draw_drafts_take_fixed_shapes(policy: str) -> None:
    made = scripted.engine(lambda prefix: scripted.prefer(5), lambda prefix: scripted.chain(5, 5))
    result = made.generate([1], max_tokens=4, rule="rejection", policy=policy)
    assert result.lossless
    assert result.token_ids == [5] * 4


def test_a_prompt_reports_how_much_of_it_is_read() -> None:
    from adaptivespec.engine.weights.progress import READING
    from fakes import tiny_engine

    seen = []
    tiny_engine.engine().generate([3] * 100, max_tokens=1, progress=seen.append)
    assert {event.stage for event in seen} == {READING}
    assert (seen[-1].done, seen[-1].total) == (100, 100)

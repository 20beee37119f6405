"""Engines of other makers as targets; those that are not installed are skipped."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets import llama_cpp
from adaptivespec.eval.targets.base import Ask, Target
from adaptivespec.eval.targets.llama_cpp import LlamaCppTarget
from adaptivespec.eval.targets.transformers import TransformersTarget
from adaptivespec.eval.tasks.base import Item

ITEM = Item("t", 0, ('Turn into JSON with keys name, age: "Anna is 31." Answer with JSON only.',))
TURNS = Item("t", 1, ("Write a Python function that adds two numbers.", "Now make it subtract."))
MISSING = {
    TransformersTarget: ("transformers", "pip install transformers"),
    LlamaCppTarget: ("xllamacpp", "pip install xllamacpp"),
}


def installed(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed"
    )


@pytest.mark.parametrize("maker", MISSING)
def test_what_is_not_installed_says_so(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package, remedy = MISSING[maker]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TargetError, match=f"{package}: is not installed. {remedy}"):
        maker()


class Letters:
    """Token i reads as the i-th letter; 0 ends a text."""

    eos_token_ids = (0,)

    def decode(self, ids: Any) -> str:
        return "".join(chr(96 + i) for i in ids)


@pytest.mark.parametrize(
    ("ids", "stop", "ignore_eos", "text", "count", "ended"),
    [
        ([1, 2, 3], (), False, "abc", 3, False),
        ([1, 2, 0], (), False, "ab", 3, True),
        ([0], (), False, "", 1, True),
        ([1, 2, 0, 3], (), True, "ab`c", 4, False),
        ([1, 2, 3, 4], ("cd", "c"), False, "ab", 3, True),
        ([1, 2, 3, 0], ("b",), False, "a", 2, True),
        ([], ("b",), False, "", 0, False),
    ],
)
def test_answers_are_cut_where_ours_would_be(
    ids: list[int], stop: tuple[str, ...], ignore_eos: bool, text: str, count: int, ended: bool
) -> None:
    target = TransformersTarget.__new__(TransformersTarget)
    target._tokenizer = Letters()  # type: ignore[assignment]
    turn = target._cut(ids, Ask(9, stop=stop, ignore_eos=ignore_eos))
    assert (turn.text, turn.count, turn.ended) == (text, count, ended)
    assert len(turn.kept) == count - (ended and not stop)


def test_llama_cpp_wants_one_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="0 GGUF files"):
        llama_cpp._gguf(tmp_path)
    (tmp_path / "a.gguf").touch()
    assert llama_cpp._gguf(tmp_path) == tmp_path / "a.gguf"
    assert llama_cpp._gguf(tmp_path / "a.gguf") == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(TargetError, match="2 GGUF files"):
        llama_cpp._gguf(tmp_path)


def test_what_of_the_processor_is_used() -> None:
    info = "CPU : SSE3 = 1 | AVX = 1 | AVX512 = 0 | OPENMP = 1 | "
    assert llama_cpp._features(info) == "SSE3 AVX OPENMP"


def check_answers(target: Target, expected: str | None) -> None:
    for arm in target.arms:
        answer = target.answer(arm, ITEM, Ask(48, detail=True))
        assert answer.error is None
        assert answer.finish_reason == "stop"
        assert '"name": "Anna' in answer.text
        if expected is not None:
            assert answer.text == expected
        assert answer.nll is not None
        assert 0 < answer.nll / answer.nll_tokens < 1
        assert answer.first_token_s is not None
        assert 0 < answer.first_token_s < answer.seconds
        cut = target.answer(arm, ITEM, Ask(48, stop=('"age"',)))
        assert '"age"' not in cut.text
        assert cut.text == answer.text[: len(cut.text)]
        assert target.answer(arm, ITEM, Ask(3)).finish_reason == "length"
        assert target.answer(arm, ITEM, Ask(40, ignore_eos=True)).completion_tokens == 40
        turns = target.answer(arm, TURNS, Ask(8))
        assert (turns.completion_tokens, turns.finish_reason) == (16, "length")


@installed("transformers")
@pytest.mark.network
@pytest.mark.slow
def test_transformers_answers_as_our_engine_in_float32(model_cache: str | None) -> None:
    from adaptivespec import Engine

    engine = Engine.from_pretrained(backend="torch", dtype="float32", cache_dir=model_cache)
    ours = engine.generate(ITEM.turns[0], policy="none", max_tokens=48)
    target = TransformersTarget(threads=1, cache_dir=model_cache, dtype="float32")
    check_answers(target, ours.text)
    plain, lookup = (target.answer(arm, ITEM, Ask(48)) for arm in target.arms)
    assert plain.prompt_tokens == lookup.prompt_tokens == ours.prompt_tokens
    assert plain.token_ids == lookup.token_ids == ours.token_ids
    assert plain.stats is None
    assert lookup.stats is not None
    assert 0 < lookup.stats["num_spec_steps"] < lookup.completion_tokens
    target.close()


@installed("xllamacpp")
@pytest.mark.network
@pytest.mark.slow
def test_llama_cpp_answers(model_cache: str | None) -> None:
    target = LlamaCppTarget(threads=1, cache_dir=model_cache)
    check_answers(target, None)
    target.close()

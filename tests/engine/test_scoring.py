"""Scores of given text against the model's own forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import ContextLengthError, NumericalError, PromptError
from adaptivespec.engine.scoring import ROWS, Scorer, Scores, token_logprobs
from fakes import targets, tiny
from fakes.scripted import VOCAB, ScriptedTarget

IDS = st.integers(0, 60)
each_backend = pytest.mark.parametrize("backend", targets.BACKENDS)


def expected(target: Any, prompt: list[int], continuation: list[int]) -> Scores:
    """By one pass over everything."""
    rows = targets.logits(target, [*prompt, *continuation])[len(prompt) - 1 : -1].double()
    laws, tokens = rows.log_softmax(-1), torch.tensor(continuation)
    logprobs = laws[torch.arange(len(tokens)), tokens]
    return Scores(logprobs.tolist(), (rows.argmax(-1) == tokens).tolist())


def check(got: Scores, want: Scores) -> None:
    assert got.logprobs == pytest.approx(want.logprobs, abs=1e-4)
    assert got.greedy == want.greedy


@each_backend
@given(
    prompt=st.lists(IDS, min_size=1, max_size=40),
    continuation=st.lists(IDS, min_size=1, max_size=40),
    rows=st.integers(1, 9),
)
@settings(max_examples=15)
def test_scores_are_the_models_own_wherever_passes_end(
    backend: str, prompt: list[int], continuation: list[int], rows: int
) -> None:
    target = targets.target(backend)
    got = Scorer(target, rows).score(prompt, continuation)
    check(got, expected(target, prompt, continuation))
    assert got.total == pytest.approx(sum(got.logprobs))


@each_backend
@pytest.mark.parametrize("length", [ROWS - 1, ROWS, ROWS + 1])
def test_continuations_about_as_long_as_a_pass(backend: str, length: int) -> None:
    target = targets.target(backend)
    continuation = [(7 * n) % 61 for n in range(length)]
    got = token_logprobs(target, [5, 9], continuation)
    check(got, expected(target, [5, 9], continuation))


@each_backend
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(0, 2), min_size=1, max_size=6),
            st.lists(st.integers(0, 60), max_size=6),
        ),
        min_size=2,
        max_size=6,
    )
)
@settings(max_examples=15)
def test_what_was_scored_before_changes_nothing(
    backend: str, requests: list[tuple[list[int], list[int]]]
) -> None:
    target = targets.target(backend)
    scorer = Scorer(target, rows=4)
    for prompt, continuation in requests:
        alone = token_logprobs(target, prompt, continuation)
        check(scorer.score(prompt, continuation), alone)


@each_backend
def test_what_greedy_decoding_writes_is_greedy(backend: str) -> None:
    target, ids = targets.target(backend), [5, 9, 11]
    for _ in range(6):
        ids.append(int(targets.logits(target, ids)[-1].argmax()))
    scores = token_logprobs(target, ids[:3], ids[3:])
    assert scores.all_greedy
    other = [*ids[3:-1], (ids[-1] + 1) % 61]
    assert token_logprobs(target, ids[:3], other).greedy == [True] * 5 + [False]


def test_a_shared_prompt_is_read_once() -> None:
    target = ScriptedTarget(lambda prefix: [float(sum(prefix) == i) for i in range(VOCAB)])
    scorer = Scorer(target)
    scorer.score([1, 2, 3, 4], [5, 6])
    passes = target.passes
    scorer.score([1, 2, 3, 4], [7])
    scorer.score([1, 2, 3, 4], [8, 9, 10])
    assert target.passes == passes + 2, "one pass for each, and none for the prompt"


@each_backend
def test_the_context_is_used_to_its_last_place_and_no_further(backend: str) -> None:
    target = targets.target(backend)
    ids = [(5 * n) % 61 for n in range(tiny.MAX_LEN + 1)]
    full = token_logprobs(target, ids[:100], ids[100:])
    assert len(full.logprobs) == tiny.MAX_LEN - 99
    check(full, token_logprobs(target, ids[:100], ids[100:]))
    with pytest.raises(ContextLengthError, match="129 places"):
        token_logprobs(target, ids[:100], [*ids[100:], 3])


def test_bad_requests_leave_the_scorer_usable() -> None:
    target = tiny.target()
    scorer = Scorer(target)
    want = scorer.score([5, 9], [4])
    for prompt, continuation in (([], [4]), ([61], [4]), ([5], [-1])):
        with pytest.raises(PromptError):
            scorer.score(prompt, continuation)
    assert scorer.score([5, 9], []) == Scores([], [])
    check(scorer.score([5, 9], [4]), want)


def test_logits_that_are_no_numbers() -> None:
    nan = float("nan")
    target = ScriptedTarget(lambda prefix: [nan if len(prefix) == 4 else 0.0] + [0.0] * (VOCAB - 1))
    scorer = Scorer(target)
    with pytest.raises(NumericalError):
        scorer.score([1, 2], [3, 4, 5])
    assert scorer.score([1, 2], [3]).logprobs == pytest.approx([-torch.tensor(16.0).log().item()])

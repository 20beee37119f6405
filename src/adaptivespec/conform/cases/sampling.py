"""Chance where it is asked for, and none where it is not: temperature, seeds, filters, choices."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from adaptivespec.conform.answer import Answer
from adaptivespec.conform.case import NotApplicable, case, require
from adaptivespec.conform.prompts import FORMS, LONG
from adaptivespec.conform.subject import LONG_TOKENS, Subject

DRAWS = 8
DRAW_TOKENS = 8
SEEDED_TOKENS = 16
SURE = 1e-6  # chance below which equal draws are no accident


@case(
    "sampling.greedy-repeats",
    "at temperature 0 the same request has the same answer",
    finds="random numbers drawn at temperature 0, or state left by earlier requests",
    seen=("vllm#6038", "EAGLE#212"),
)
def greedy_repeats(subject: Subject) -> str | None:
    long = subject.long()
    ask = partial(subject.ask, subject.prompt_of(long), max_tokens=LONG_TOKENS)
    return _all_same(subject, long, [ask(), ask(seed=1), ask(seed=2)])


@case(
    "sampling.greedy-concurrent",
    "at temperature 0 requests that run at once have the answers that they have alone",
    finds="rows of a batch that disturb each other",
    seen=("vllm#14645", "vllm#13196"),
)
def greedy_concurrent(subject: Subject) -> str | None:
    long = subject.long()
    ask = partial(subject.ask, subject.prompt_of(long), max_tokens=LONG_TOKENS)
    return _all_same(subject, long, subject.together([ask] * 4))


@case(
    "sampling.seeds-repeat",
    "a seed gives the same answer twice",
    finds="seeds ignored, or random numbers spent on rejected drafts",
    seen=("vllm#6038", "vllm#13196"),
)
def seeds_repeat(subject: Subject) -> str | None:
    for seed in (11, 12, 13):
        first = _seeded(subject, seed)
        again = _draw(subject, seed=seed)
        require(again.text == first.text, f"{first.text!r} again", again.text, again)
    return None


@case(
    "sampling.seeds-differ",
    "seeds give different answers",
    finds="one random state for all seeds",
)
def seeds_differ(subject: Subject) -> str | None:
    answers = [_seeded(subject, seed) for seed in (11, 12, 13, 14)]
    texts = {answer.text for answer in answers}
    if len(texts) == 1:
        _blame_or_excuse(subject, len(answers), "answers that differ", answers[0])
    return None


@case(
    "sampling.seeds-concurrent",
    "a seed gives the same answer alone and beside others",
    finds="one random state for all rows of a batch",
    seen=("vllm#6038", "vllm#14645"),
)
def seeds_concurrent(subject: Subject) -> str | None:
    seeds = (11, 12, 13, 14)
    alone = [_seeded(subject, seed) for seed in seeds]
    beside = subject.together([partial(_draw, subject, seed=seed) for seed in seeds])
    for first, again in zip(alone, beside, strict=True):
        require(again.text == first.text, f"{first.text!r} as alone", again.text, again)
    return None


@case(
    "sampling.temperature",
    "temperature 1 gives more than one answer",
    finds="temperature ignored",
    seen=("sglang's verify on CPUs",),
)
def temperature(subject: Subject) -> str | None:
    answers = subject.together([partial(_draw, subject)] * DRAWS)
    texts = {answer.text for answer in answers}
    if len(texts) == 1:
        _blame_or_excuse(subject, DRAWS, "more than one answer in eight", answers[0])
    return f"{len(texts)} answers in {DRAWS}"


@case(
    "sampling.n",
    "n gives so many choices, numbered, each within the bounds",
    finds="n ignored",
)
def choices(subject: Subject) -> str | None:
    answer = subject.ask(FORMS[0], max_tokens=6, n=3, temperature=1.0)
    indexes = sorted(choice.index for choice in answer.choices)
    require(indexes == [0, 1, 2], "choices 0, 1, 2", indexes, answer)
    finishes = {choice.finish for choice in answer.choices}
    require(finishes <= {"stop", "length"}, "a finish_reason each", finishes, answer)
    count = answer.count("completion_tokens")
    require(3 <= count <= 18, "the tokens of all choices in usage: 3 to 18", count, answer)
    return None


@case(
    "sampling.n-stream",
    "a stream of several choices has a role, a text and a finish_reason for each",
    finds="choices of a stream mixed up",
)
def choices_streamed(subject: Subject) -> str | None:
    fields: dict[str, Any] = {"max_tokens": 6, "n": 2, "temperature": 1.0, "seed": 5}
    answer = subject.ask(FORMS[0], stream=True, **fields)
    indexes = [choice.index for choice in answer.choices]
    require(indexes == [0, 1], "choices 0, 1", indexes, answer)
    for choice in answer.choices:
        require(choice.finishes == 1, "one finish_reason each", choice.finishes, answer)
        require(choice.roles[:1] == ["assistant"], "a role first", choice.roles[:1], answer)
    whole = subject.ask(FORMS[0], **fields)
    wanted, came = ([choice.text for choice in part.choices] for part in (whole, answer))
    require(came == wanted, f"the choices of the whole answer: {wanted}", came, answer)
    return None


@case(
    "sampling.top-k",
    "top_k 1 at temperature 1 is greedy",
    finds="filters ignored while drafts are verified",
    seen=("sglang's verify on CPUs",),
)
def top_k(subject: Subject) -> str | None:
    return _is_greedy(subject, top_k=1)


@case(
    "sampling.top-p",
    "a tiny top_p at temperature 1 is greedy",
    finds="filters ignored while drafts are verified",
    seen=("sglang's verify on CPUs",),
)
def top_p(subject: Subject) -> str | None:
    return _is_greedy(subject, top_p=0.001)


@case(
    "sampling.min-p",
    "min_p 1 at temperature 1 is greedy",
    finds="filters ignored while drafts are verified",
)
def min_p(subject: Subject) -> str | None:
    return _is_greedy(subject, min_p=1.0)


def _is_greedy(subject: Subject, **fields: Any) -> str | None:
    long = subject.long()
    ask = partial(
        subject.ask, subject.prompt_of(long), max_tokens=SEEDED_TOKENS, temperature=1.0, **fields
    )
    subject.excuse_lossy(long)
    expected = subject.greedy(subject.prompt_of(long), SEEDED_TOKENS)
    return _all_same(subject, expected, subject.together([partial(ask, seed=s) for s in (1, 2, 3)]))


def _all_same(subject: Subject, reference: Answer, answers: list[Answer]) -> str | None:
    remarks = [
        subject.same(reference, answer, reference.text, "the greedy answer") for answer in answers
    ]
    return next((remark for remark in remarks if remark), None)


def _seeded(subject: Subject, seed: int) -> Answer:
    """The answer of a seed, asked alone and once."""
    return subject.once(("seed", seed), lambda: _draw(subject, seed=seed))


def _draw(subject: Subject, **fields: Any) -> Answer:
    tokens = SEEDED_TOKENS if fields else DRAW_TOKENS
    return subject.ask(LONG[0], max_tokens=tokens, temperature=1.0, **fields)


def _blame_or_excuse(subject: Subject, draws: int, required: str, answer: Answer) -> None:
    """Equal draws are a fault unless the model is nearly sure of its answer."""
    tokens = subject.greedy(LONG[0], DRAW_TOKENS).tokens
    if tokens:
        chance = math.exp((draws - 1) * sum(token.logprob for token in tokens))
        if chance > SURE:
            raise NotApplicable(f"the model is too sure: equal by a chance of {chance:.1e}")
    require(False, required, f"{answer.text!r} each time", answer)

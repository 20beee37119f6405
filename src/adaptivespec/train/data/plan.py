"""Which questions a corpus answers, in which order, and how."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from adaptivespec.core.errors import ConfigError
from adaptivespec.train.data.questions import Question, questions

#: Share of the questions by kind; answers to JSON and list tasks are short.
SHARES = {"maths": 0.34, "code": 0.2, "chat": 0.28, "json": 0.1, "list": 0.08}
#: Built-in questions of a kind; when they are used up they are asked again, and sampled.
POOL = {"maths": 10_000, "code": 10_000, "chat": 20_000, "json": 5_000, "list": 5_000}
#: Every third answer is sampled, the others are greedy: a head has to draft for both.
SAMPLED_EVERY = 3
#: Every eighth answer may be twice as long as the others.
LONG_EVERY = 8


@dataclass(frozen=True)
class MakeOptions:
    """What is made.

    Attributes:
        tokens: response tokens wanted, the block that reaches them is the last; None: an answer to
            every question there is.
        answer_tokens: longest answer; every eighth may be twice as long.
        max_len: longest prompt + response in tokens.
        seed: of the questions, their order and the sampled answers.
    """

    tokens: int | None
    answer_tokens: int = 256
    max_len: int = 640
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("tokens", 1), ("answer_tokens", 16), ("max_len", 32)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"must be at least {low}, got {value}", field=name)


@dataclass(frozen=True)
class Planned:
    """A question, the seed of its answers (None: greedy), and how long they may be."""

    question: Question
    seed: int | None
    max_tokens: int


def plan(given: Sequence[Question], options: MakeOptions) -> Iterator[Planned]:
    """Every question of `given` once, in their order."""
    for number, question in enumerate(given):
        yield _planned(number, question, options)


def endless_plan(given: Sequence[Question], options: MakeOptions) -> Iterator[Planned]:
    """Built-in questions without end, in an order that is the seed's.

    `given` ones are asked in turn with the built-in ones of their kind; what is of no built-in kind
    counts as chat. A question that comes again has a sampled answer.
    """
    own: dict[str, list[Question]] = {kind: [] for kind in SHARES}
    for question in given:
        own[question.kind if question.kind in own else "chat"].append(question)
    kinds = _kinds(options.seed)
    streams = {kind: _stream(kind, options.seed, own[kind]) for kind in SHARES}
    for number in count():
        question, again = next(streams[next(kinds)])
        yield _planned(number, question, options, again)


def _planned(number: int, question: Question, options: MakeOptions, again: bool = False) -> Planned:
    sampled = again or number % SAMPLED_EVERY == SAMPLED_EVERY - 1
    longer = 1 + (number % LONG_EVERY == LONG_EVERY - 1)
    seed = options.seed * 1_000_003 + number if sampled else None
    return Planned(question, seed, options.answer_tokens * longer)


def _kinds(seed: int) -> Iterator[str]:
    """Kinds by their shares: a hundred at a time, shuffled."""
    rng = random.Random(f"kinds-{seed}")  # noqa: S311  not for secrets
    hundred = [kind for kind, share in SHARES.items() for _ in range(round(100 * share))]
    while True:
        rng.shuffle(hundred)
        yield from hundred


def _stream(kind: str, seed: int, given: Sequence[Question]) -> Iterator[tuple[Question, bool]]:
    """Questions of a kind, given ones between built-in ones; True from the second time on."""
    own = questions(kind, POOL[kind], seed)
    first = list(given)
    random.Random(f"given-{seed}").shuffle(first)  # noqa: S311  not for secrets
    streams = [_again(own), *([_again(first)] if first else [])]
    while True:
        for stream in streams:
            yield next(stream)


def _again(items: Sequence[Question]) -> Iterator[tuple[Question, bool]]:
    for turn in count():
        for item in items:
            yield item, turn > 0

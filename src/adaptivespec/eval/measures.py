"""Measures of one answer, or of two answers to one item."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from adaptivespec.eval.targets.base import Answer

__all__ = [
    "LOOP_LENGTHS",
    "first_divergence",
    "loop_length",
    "promotions",
    "regret",
    "same_output",
    "tokens_of",
]

LOOP_LENGTHS = (8, 16, 32)
_REPEATS = 3


def tokens_of(answer: Answer) -> Sequence[Hashable]:
    """Token ids, or words where the target gives none."""
    return answer.text.split() if answer.token_ids is None else answer.token_ids


def loop_length(tokens: Sequence[Hashable]) -> int:
    """The longest of 8, 16 and 32 for which an n-gram occurs three times or more, or 0.

    Occurrences do not overlap and may lie apart. Linear in the number of tokens.
    """
    for length in reversed(LOOP_LENGTHS):
        ends: dict[tuple[Hashable, ...], tuple[int, int]] = {}
        for start in range(len(tokens) - length + 1):
            gram = tuple(tokens[start : start + length])
            count, end = ends.get(gram, (0, 0))
            if start >= end:
                if count + 1 == _REPEATS:
                    return length
                ends[gram] = (count + 1, start + length)
    return 0


def first_divergence(one: Sequence[Hashable], other: Sequence[Hashable]) -> int | None:
    """The first position at which two sequences differ; the shorter's end counts. None if never."""
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def same_output(one: Answer, other: Answer) -> bool:
    """Whether two answers are equal token for token, or letter for letter without ids."""
    if one.token_ids is not None and other.token_ids is not None:
        return one.token_ids == other.token_ids
    return one.text == other.text


def promotions(answer: Answer) -> int | None:
    """Promoted tokens of an answer; None where the target does not say."""
    if answer.stats is not None and answer.stats.get("num_promoted_tokens") is not None:
        return int(answer.stats["num_promoted_tokens"])
    return None if answer.kinds is None else answer.kinds.count("p")


def regret(answer: Answer) -> float | None:
    """Sum of -ln margin over an answer's promoted tokens, in nats; None where it is not told."""
    if answer.stats is not None and answer.stats.get("regret_nats") is not None:
        return float(answer.stats["regret_nats"])
    if answer.margins is None:
        return None
    return sum(-math.log(margin) for margin in answer.margins if margin > 0)

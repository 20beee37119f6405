"""Measures of answers."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.eval.measures import (
    first_divergence,
    loop_length,
    promotions,
    regret,
    same_output,
    tokens_of,
)
from adaptivespec.eval.targets.base import Answer

tokens = st.lists(st.integers(0, 3), max_size=120)


def naive(sequence, length):
    """Whether some n-gram occurs three times without overlap, by trying all of them."""
    for start in range(len(sequence) - length + 1):
        gram, count, place = sequence[start : start + length], 0, 0
        while place <= len(sequence) - length:
            if sequence[place : place + length] == gram:
                count, place = count + 1, place + length
            else:
                place += 1
        if count >= 3:
            return True
    return False


@given(st.lists(st.integers(0, 1), max_size=120))
def test_loops_are_those_of_the_definition(sequence):
    expected = max((n for n in (8, 16, 32) if naive(sequence, n)), default=0)
    assert loop_length(sequence) == expected


@pytest.mark.parametrize(
    ("sequence", "length"),
    [
        ([], 0),
        (list(range(100)), 0),
        (list(range(8)) * 2, 0),
        (list(range(8)) * 3, 8),
        ([7] * 23, 0),
        ([7] * 24, 8),
        (list(range(40)) * 3, 32),
        ([*range(16), 90, *range(16), 91, *range(16)], 16),
    ],
)
def test_loops(sequence, length):
    assert loop_length(sequence) == length


def test_loops_in_long_answers_are_found_fast():
    start = time.perf_counter()
    loop_length(list(range(100_000)))
    assert time.perf_counter() - start < 5


@given(tokens, tokens)
def test_first_divergence_ends_the_common_part(one, two):
    position = first_divergence(one, two)
    if position is None:
        assert one == two
    else:
        assert one[:position] == two[:position]
        assert one[position : position + 1] != two[position : position + 1]


def test_answers_without_ids_are_taken_by_words_and_letters():
    assert tokens_of(Answer(text="a b")) == ["a", "b"]
    assert tokens_of(Answer(text="a b", token_ids=[5])) == [5]
    assert same_output(Answer(text="a"), Answer(text="a", token_ids=[1]))
    assert not same_output(Answer(text="a", token_ids=[1]), Answer(text="a", token_ids=[2]))


def test_what_a_target_does_not_say_is_none():
    assert promotions(Answer()) is None
    assert regret(Answer()) is None


def test_promotions_and_regret_come_from_statistics_or_from_tokens():
    told = Answer(stats={"num_promoted_tokens": 2, "regret_nats": 1.5}, kinds="e")
    assert (promotions(told), regret(told)) == (2, 1.5)
    seen = Answer(kinds="epbp", margins=[0.5, 0.25])
    assert promotions(seen) == 2
    assert regret(seen) == pytest.approx(math.log(8))

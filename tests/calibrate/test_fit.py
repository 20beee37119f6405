"""P-values and bounds of one kappa, against scipy, hand values, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest

from adaptivespec.calibrate.fit import Budget, betting, hoeffding_bentkus, prompts_needed
from adaptivespec.calibrate.losses import Pair, losses_of
from adaptivespec.core.errors import ConfigError


def binary(lost: int, n: int) -> list[float]:
    return [1.0] * lost + [0.0] * (n - lost)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
       st.floats(0.002, 0.6))  # fmt: skip
def test_the_exact_test_is_scipys(counts, limit):
    lost, n = counts
    budget = Budget("harm", limit)
    expected = binomtest(lost, n, limit, alternative="less").pvalue
    assert budget.p_value(binary(lost, n)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("lost", "n"), [(0, 299), (3, 200), (17, 60), (5, 5)])
def test_the_bounds_are_those_of_clopper_and_pearson(lost, n):
    budget = Budget("harm", 0.05, 0.9)
    upper = 1.0 if lost == n else beta.ppf(0.9, lost + 1, n - lost)
    assert budget.judge(binary(lost, n)).upper == pytest.approx(upper, abs=1e-9)
    exact = binomtest(lost, n).proportion_ci(0.9, method="exact")
    assert budget.interval(binary(lost, n)) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_no_loss_at_all_takes_the_number_that_everybody_knows():
    assert Budget("harm", 0.01).judge(binary(0, 299)).certified
    assert not Budget("harm", 0.01).judge(binary(0, 298)).certified
    for limit, confidence in [(0.01, 0.95), (0.02, 0.9), (0.05, 0.99)]:
        expected = math.ceil(math.log(1 - confidence) / math.log(1 - limit))
        assert prompts_needed(Budget("harm", limit, confidence)) == expected


def test_prompts_needed_at_a_rate():
    budget = Budget("harm", 0.05)
    n = prompts_needed(budget, 0.02)
    assert n is not None
    assert budget.judge(binary(math.ceil(0.02 * n), n)).certified
    assert prompts_needed(budget, 0.05) is None
    assert prompts_needed(Budget("drop", 0.05), 0.02) is None


def test_betting_needs_a_hundredth_of_the_prompts_that_hoeffding_does():
    assert prompts_needed(Budget("drop", 0.01)) == 392
    assert prompts_needed(Budget("drop", 0.01, test="hoeffding-bentkus")) == 43_800


def test_hoeffding_bentkus_by_hand():
    n, limit = 100, 0.1
    assert hoeffding_bentkus(0.0, n, limit) == pytest.approx(0.9**100, rel=1e-9)  # Hoeffding
    binomial = binomtest(7, n, limit, alternative="less").pvalue
    assert hoeffding_bentkus(0.07, n, limit) == pytest.approx(min(1.0, math.e * binomial), rel=0.5)
    assert hoeffding_bentkus(0.1, n, limit) == 1.0


def test_betting_by_hand():
    """Four gamblers, with stakes of 1/4 to 4/4 of all they have, at even odds."""
    assert betting([0.0], 0.5) == pytest.approx(1 / np.mean([1.25, 1.5, 1.75, 2.0]))
    products = [1.25 * 0.75, 1.5 * 0.5, 1.75 * 0.25, 0.0]
    assert betting([0.0, 1.0], 0.5) == min(1.0, 1 / np.mean(products)) == 1.0
    assert betting([0.0, 0.5, 0.0], 0.5) == betting([0.5, 0.0, 0.0], 0.5)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=60), st.floats(0.05, 0.8))
def test_p_values_fall_as_the_limit_grows(losses, limit):
    for kind in ("betting", "hoeffding-bentkus"):
        budget = Budget("drop", test=kind)
        assert budget.p_value(losses, limit) >= budget.p_value(losses, limit + 0.1) - 1e-12


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=60))
def test_a_bound_is_where_the_test_turns(losses):
    budget = Budget("drop", 0.05, 0.9)
    upper = budget.judge(losses).upper
    if upper < 1:
        assert budget.p_value(losses, upper + 1e-6) <= 0.1
    assert budget.p_value(losses, upper - 1e-6) > 0.1
    low, high = budget.interval(losses)
    assert low - 1e-9 <= 2 * np.mean(losses) - 1 <= upper + 1e-9
    assert high >= upper - 1e-9


@pytest.mark.parametrize("test", ["clopper-pearson", "hoeffding-bentkus", "betting"])
@pytest.mark.parametrize("level", [0.05, 0.2])
def test_p_values_are_super_uniform_at_the_edge_of_the_null_hypothesis(test, level):
    """At a true loss of exactly the budget, p <= level happens at most so often."""
    rng = np.random.default_rng(1)
    n, limit, runs = 120, 0.05, 4000
    budget = Budget("harm", limit, test=test)
    draws = (rng.random((runs, n)) < limit).astype(float)
    small = sum(budget.p_value(row) <= level for row in draws)
    assert small / runs <= level + 3 * math.sqrt(level / runs)


@pytest.mark.parametrize("test", ["hoeffding-bentkus", "betting"])
def test_p_values_are_super_uniform_for_a_drop(test):
    rng = np.random.default_rng(2)
    n, limit, runs, level = 200, 0.05, 2000, 0.1
    budget = Budget("drop", limit, 0.9, test)
    draws = rng.choice([1.0, 0.5, 0.0], size=(runs, n), p=[0.15, 0.75, 0.10])  # a drop of 5 %
    small = sum(budget.p_value(row) <= level for row in draws)
    assert small / runs <= level + 3 * math.sqrt(level / runs)


def test_losses_of_pairs():
    pairs = [
        Pair(True, True, True),
        Pair(True, False, False),
        Pair(False, True, False),
        Pair(False, False, False),
    ]
    assert losses_of(pairs, "harm") == [0, 1, 0, 0]
    assert losses_of(pairs, "disagreement") == [0, 1, 1, 1]
    assert losses_of(pairs, "drop") == [0.5, 1, 0, 0.5]
    assert losses_of([Pair(None, None, False)], "harm") == [0]
    drop = 2 * np.mean(losses_of(pairs, "drop")) - 1
    assert drop <= np.mean(losses_of(pairs, "harm"))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"loss": "regret"}, "loss"),
        ({"max_loss": 0.0}, "max_drop"),
        ({"max_loss": 1.0}, "max_drop"),
        ({"confidence": 95.0}, "confidence"),
        ({"test": "t"}, "test"),
        ({"loss": "drop", "test": "clopper-pearson"}, "test"),
    ],
)
def test_what_cannot_be_is_refused(options, field):
    with pytest.raises(ConfigError) as caught:
        Budget(**options)
    assert caught.value.field == field


def test_nothing_is_certified_by_no_prompt():
    assert not Budget().judge([]).certified

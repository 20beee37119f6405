"""Statistics against scipy, published figures and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptivespec.eval.statistics import (
    NOTHING,
    Pairs,
    accuracy_difference,
    exact_mcnemar,
    geometric_mean,
    minimal_detectable_difference,
    proportion,
    ratio_of_rates,
    recovery_ratio,
    smallest_significant_difference,
)

counts = st.builds(Pairs, *[st.integers(0, 40)] * 4)
few = settings(max_examples=25)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_two_sided_sign_test(gained, lost):
    p = exact_mcnemar(gained, lost)
    n = gained + lost
    tail = stats.binom.cdf(min(gained, lost), n, 0.5)
    assert p == pytest.approx(min(1.0, 2 * tail))
    assert p == exact_mcnemar(lost, gained)


def test_mcnemar_of_a_textbook_table():
    # Fagerland, Lydersen, Laake 2013: airway hyper-responsiveness, 1 and 7 discordant pairs.
    assert exact_mcnemar(1, 7) == pytest.approx(0.0703125)


@given(st.integers(1, 300), st.data())
def test_intervals_of_a_share_hold_it(n, data):
    count = data.draw(st.integers(0, n))
    for method in ("wilson", "exact"):
        found = proportion(count, n, method)
        assert 0 <= found.low <= found.value + 1e-12
        assert found.value - 1e-12 <= found.high <= 1


def test_exact_interval_is_clopper_and_pearsons():
    found = proportion(7, 40, "exact")
    assert found.low == pytest.approx(stats.beta.ppf(0.025, 7, 34))
    assert found.high == pytest.approx(stats.beta.ppf(0.975, 8, 33))


def test_no_question_has_no_share():
    assert proportion(0, 0) == NOTHING


@few
@given(st.lists(counts, min_size=1, max_size=3))
def test_pooled_difference_weighs_tasks_by_their_questions(strata):
    found = accuracy_difference(strata)
    n = sum(part.n for part in strata)
    if n == 0:
        assert found == NOTHING
        return
    parts = [(accuracy_difference([part]).value or 0.0) * part.n / n for part in strata]
    assert found.value == pytest.approx(sum(parts))


@few
@given(counts)
def test_swapping_the_arms_mirrors_the_difference(pairs):
    there = accuracy_difference([pairs])
    back = accuracy_difference([Pairs(pairs.both, pairs.base_only, pairs.arm_only, pairs.neither)])
    if there.value is None:
        assert back == NOTHING
        return
    assert there.value == -back.value
    if there.low is not None:
        step = 2.01 / pairs.n
        assert there.low == pytest.approx(-back.high, abs=step)
        assert there.low <= there.value + 1e-12
        assert there.value <= there.high + 1e-12


def test_bootstrap_agrees_with_scipys():
    pairs = Pairs(both=60, arm_only=5, base_only=13, neither=42)
    sample = np.repeat([0, 1, -1, 0], pairs.cells)
    theirs = stats.bootstrap(
        (sample,), np.mean, n_resamples=10_000, method="percentile", rng=1
    ).confidence_interval
    ours = accuracy_difference([pairs])
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_the_bootstrap_interval_covers_the_truth():
    random = np.random.default_rng(3)
    shares = np.array([0.55, 0.05, 0.1, 0.3])
    runs = 250
    hits = 0
    for seed, cells in enumerate(random.multinomial(200, shares, size=runs)):
        found = accuracy_difference([Pairs(*map(int, cells))], seed=seed)
        hits += found.low <= -0.05 <= found.high
    # Three standard errors of a share of 95 % in 250 runs are 4.1 points.
    assert 0.95 - 0.041 <= hits / runs <= 0.95 + 0.041


def test_stratified_intervals_are_narrower_where_tasks_are_unlike():
    easy, hard = Pairs(both=100, base_only=0), Pairs(both=0, base_only=100)
    apart = accuracy_difference([easy, hard])
    mixed = accuracy_difference([easy + hard])
    assert apart.value == mixed.value == -0.5
    assert apart.high - apart.low < mixed.high - mixed.low


def test_recovery_is_the_ratio_of_accuracies():
    found = recovery_ratio([Pairs(50, 3, 8, 39)])
    assert found.value == pytest.approx(53 / 58)
    assert found.low < 53 / 58 < found.high


def test_recovery_of_nothing_is_not_told():
    assert recovery_ratio([Pairs(0, 3, 0, 10)]) == NOTHING
    assert recovery_ratio([]) == NOTHING


def test_recovery_has_no_interval_where_many_resamples_have_no_ratio():
    found = recovery_ratio([Pairs(1, 0, 0, 20)])
    assert found.value == 1
    assert found.low is None


def test_one_question_has_no_interval():
    assert accuracy_difference([Pairs(base_only=1)]).low is None
    assert geometric_mean([[1.5]]).low is None


@few
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=40))
def test_geometric_mean_is_scipys_and_inverts(values):
    found, inverse = geometric_mean([values]), geometric_mean([[1 / v for v in values]])
    assert found.value == pytest.approx(stats.gmean(values))
    assert found.value == pytest.approx(1 / inverse.value)
    assert found.low == pytest.approx(1 / inverse.high)
    assert found.low <= found.value * (1 + 1e-9)


def test_ratio_of_rates_is_of_totals():
    table = np.array([[10.0, 1.0, 10.0, 2.0], [30.0, 3.0, 20.0, 4.0]])
    found = ratio_of_rates([table])
    assert found.value == pytest.approx((40 / 4) / (30 / 6))
    assert found.low <= found.value <= found.high


def test_the_same_rows_give_the_same_interval():
    pairs = [Pairs(30, 3, 7, 20)]
    assert accuracy_difference(pairs) == accuracy_difference(pairs)
    ratios = [list(np.linspace(1, 3, 40))]
    assert geometric_mean(ratios, seed=1) != geometric_mean(ratios, seed=2)


@pytest.mark.parametrize(
    ("n", "rate", "usual"), [(164, 0.075, 0.06), (500, 0.065, 0.032), (1319, 0.028, 0.013)]
)
def test_detectable_differences_of_the_usual_sets(n, rate, usual):
    assert minimal_detectable_difference(n, round(n * rate)) == pytest.approx(usual, abs=0.0015)


def test_the_detectable_difference_is_found_four_times_out_of_five():
    n, discordant = 200, 24
    difference = minimal_detectable_difference(n, discordant)
    rate = discordant / n
    worse = (rate + difference) / 2
    random = np.random.default_rng(0)
    draws = random.multinomial(n, [1 - rate, worse, rate - worse], size=4000)
    p_value = {}
    found = 0
    for _, lost, gained in draws:
        key = (int(gained), int(lost))
        p_value.setdefault(key, exact_mcnemar(*key))
        found += p_value[key] <= 0.05
    assert found / len(draws) == pytest.approx(0.8, abs=0.025)


@few
@given(st.integers(30, 400), st.data())
def test_more_questions_detect_more_and_more_noise_less(n, data):
    discordant = data.draw(st.integers(0, n // 2))
    here = minimal_detectable_difference(n, discordant)
    assert here >= smallest_significant_difference(n)
    assert minimal_detectable_difference(2 * n, 2 * discordant) < here
    assert minimal_detectable_difference(n, min(n, discordant + 5)) >= here - 0.01


def test_too_few_questions_detect_nothing():
    assert minimal_detectable_difference(5, 2) is None
    assert minimal_detectable_difference(0, 0) is None
    assert smallest_significant_difference(5) is None
    assert smallest_significant_difference(6) == 1
    assert smallest_significant_difference(164) == pytest.approx(6 / 164)


@few
@given(st.lists(counts, max_size=2))
def test_nothing_is_ever_nan(strata):
    for found in (accuracy_difference(strata), recovery_ratio(strata)):
        for value in (found.value, found.low, found.high):
            assert value is None or math.isfinite(value)

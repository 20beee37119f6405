"""The guarantee itself: over 500 calibrations on synthetic losses it fails no oftener than stated.

A true loss is known for every kappa; calibrations draw prompts whose losses are correlated over
kappas. A procedure that breaks the rules has to fail the same check, else the check shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from adaptivespec.calibrate.certificate import least_certified
from adaptivespec.calibrate.fit import Budget

KAPPAS = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)
RUNS, LIMIT, DELTA = 500, 0.05, 0.1
N = 158  # at which the exact test uses up its level: 4 losses have a p-value of 0.0996
MOST = int(binom.ppf(0.999, RUNS, DELTA))  # breaches that chance explains at the stated rate

#: True losses, from the highest kappa to the lowest. Several lie just above what is allowed.
CURVES = {
    "rising": (0.002, 0.005, 0.02, 0.051, 0.06, 0.1, 0.2),
    "just above": (0.0501,) * 7,
    "not monotone": (0.001, 0.0505, 0.1, 0.01, 0.0, 0.0, 0.0),
    "steep": (0.0, 0.0, 0.0, 0.0, 0.0505, 0.4, 0.9),
}
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def together(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """The same prompts are lost at every kappa: f64[kappas, N]."""
    return (rng.random((1, N)) < rates[:, None]).astype(float)


def apart(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Each kappa loses prompts of its own."""
    return (rng.random((len(rates), N)) < rates[:, None]).astype(float)


def half(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """In half of the prompts the one, in half the other."""
    mask = rng.random((1, N)) < 0.5
    return np.where(mask, together(rng, rates), apart(rng, rates))


def sequence(losses: np.ndarray, budget: Budget) -> int | None:
    """Index of the kappa that the procedure chooses; None for strict."""
    tests = []
    for kappa, row in zip(KAPPAS, losses, strict=True):
        tests.append((kappa, budget.judge(row).certified))
        if not tests[-1][1]:
            break
    kappa = least_certified(tests)
    return None if kappa == 1 else KAPPAS.index(kappa)


def point_estimate(losses: np.ndarray, budget: Budget) -> int | None:
    """Broken: the least kappa that looks good."""
    good = [i for i, row in enumerate(losses) if row.mean() <= budget.max_loss]
    return max(good, default=None)


def every_kappa_at_full_level(losses: np.ndarray, budget: Budget) -> int | None:
    """Broken: each kappa tested by itself, as if one could try until one passes."""
    good = [i for i, row in enumerate(losses) if budget.judge(row).certified]
    return max(good, default=None)


def breaches(choose, rates, draw: Draw, budget: Budget, scale=lambda losses: losses) -> int:
    rng = np.random.default_rng(7)
    truth = np.array(rates)
    count = 0
    for _ in range(RUNS):
        chosen = choose(scale(draw(rng, truth)), budget)
        count += chosen is not None and truth[chosen] > budget.max_loss
    return count


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No bounds: they take most of the time and decide nothing."""
    monkeypatch.setattr(Budget, "_upper", lambda self, losses: 1.0)


@pytest.mark.parametrize("draw", [together, apart, half])
@pytest.mark.parametrize("curve", CURVES)
def test_the_budget_is_kept_as_often_as_stated(curve, draw):
    budget = Budget("harm", LIMIT, 1 - DELTA)
    assert breaches(sequence, CURVES[curve], draw, budget) <= MOST


@pytest.mark.parametrize("test", ["betting", "hoeffding-bentkus"])
@pytest.mark.parametrize("curve", ["rising", "just above"])
def test_so_do_the_other_tests(curve, test):
    budget = Budget("harm", LIMIT, 1 - DELTA, test)
    assert breaches(sequence, CURVES[curve], half, budget) <= MOST


@pytest.mark.parametrize("curve", ["rising", "just above", "not monotone"])
def test_so_does_a_drop(curve):
    """Accuracy lost, net: some prompts are lost, others won."""
    budget = Budget("drop", LIMIT, 1 - DELTA)

    def draw(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
        helped = 0.03
        u = rng.random((1, N)) * np.ones((len(rates), 1))
        lost, won = u < rates[:, None] + helped, u > 1 - helped
        return (1.0 + lost - won) / 2

    assert breaches(sequence, CURVES[curve], draw, budget) <= MOST


def twice_the_level(losses: np.ndarray, budget: Budget) -> int | None:
    """Broken: surer of itself than it may be."""
    return sequence(losses, Budget(budget.loss, budget.max_loss, 1 - 2 * budget.delta))


@pytest.mark.parametrize("broken", [point_estimate, every_kappa_at_full_level, twice_the_level])
def test_a_broken_procedure_fails_the_same_check(broken):
    budget = Budget("harm", LIMIT, 1 - DELTA)
    assert breaches(broken, CURVES["just above"], apart, budget) > MOST


def test_it_is_not_idle():
    """What is far within the budget is found."""
    budget = Budget("harm", LIMIT, 1 - DELTA)
    rng = np.random.default_rng(3)
    rates = np.array((0.0, 0.001, 0.002, 0.003, 0.2, 0.3, 0.4))
    chosen = [sequence(half(rng, rates), budget) for _ in range(100)]
    assert np.mean([index == 3 for index in chosen]) > 0.9

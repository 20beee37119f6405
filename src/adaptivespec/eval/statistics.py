"""Statistics of paired runs: exact tests, bootstrap intervals, and what a run is able to detect.

Every comparison is paired: two arms answer the same questions. Figures over several tasks are
stratified: a resample draws as many questions of each task as there were, and tasks weigh by their
number of questions (the Mantel-Haenszel weights of a paired design, where both sides have n).
Nothing here gives NaN: what has no value is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEVEL",
    "NOTHING",
    "POWER",
    "RESAMPLES",
    "Estimate",
    "Pairs",
    "accuracy_difference",
    "exact_mcnemar",
    "geometric_mean",
    "minimal_detectable_difference",
    "proportion",
    "ratio_of_rates",
    "recovery_ratio",
    "smallest_significant_difference",
]

RESAMPLES = 10_000
LEVEL = 0.05
POWER = 0.8
_CHUNK = 1 << 21
_UNDEFINED = 0.01

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; the bounds are None where one question is all there is."""

    value: float | None
    low: float | None = None
    high: float | None = None


NOTHING = Estimate(None)


@dataclass(frozen=True)
class Pairs:
    """Questions by who answers them rightly: both, the arm alone, the baseline alone, neither."""

    both: int = 0
    arm_only: int = 0
    base_only: int = 0
    neither: int = 0

    @classmethod
    def of(cls, arm: Sequence[bool], base: Sequence[bool]) -> Pairs:
        """Count two sequences of verdicts on the same questions."""
        cells = [[0, 0], [0, 0]]
        for ours, theirs in zip(arm, base, strict=True):
            cells[bool(ours)][bool(theirs)] += 1
        return cls(cells[1][1], cells[1][0], cells[0][1], cells[0][0])

    @property
    def cells(self) -> tuple[int, int, int, int]:
        """The four counts in the order of the fields."""
        return self.both, self.arm_only, self.base_only, self.neither

    @property
    def n(self) -> int:
        """Questions."""
        return sum(self.cells)

    @property
    def discordant(self) -> int:
        """Questions on which the two differ."""
        return self.arm_only + self.base_only

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(*(a + b for a, b in zip(self.cells, other.cells, strict=True)))


def exact_mcnemar(arm_only: int, base_only: int) -> float:
    """Two-sided p-value of the exact McNemar test: a fair coin on the discordant pairs.

    Over several tasks the counts add up, as under the hypothesis every such pair is a fair coin.
    """
    from scipy.stats import binomtest

    discordant = arm_only + base_only
    return float(binomtest(arm_only, discordant, 0.5).pvalue) if discordant else 1.0


def proportion(count: int, n: int, method: str = "wilson") -> Estimate:
    """A share with its 95 % interval: "wilson", or "exact" (Clopper and Pearson)."""
    from scipy.stats import binomtest

    if n == 0:
        return NOTHING
    bounds = binomtest(count, n).proportion_ci(1 - LEVEL, method=method)
    return Estimate(count / n, float(bounds.low), float(bounds.high))


def accuracy_difference(strata: Sequence[Pairs], seed: int = 0) -> Estimate:
    """Accuracy of the arm less the baseline's, with a bootstrap interval by question.

    A resample of questions matters only through its four counts, so these are drawn directly from
    the multinomial law that they have: the same bootstrap without a loop over questions. Where no
    pair is discordant the interval has no width; the detectable difference tells what that hides.
    """
    total = sum(strata, Pairs())
    if total.n == 0:
        return NOTHING
    value = (total.arm_only - total.base_only) / total.n
    if total.n == 1:
        return Estimate(value)
    counts = _resampled_pairs(strata, seed)
    return _percentiles(value, (counts[:, 1] - counts[:, 2]) / total.n)


def recovery_ratio(strata: Sequence[Pairs], seed: int = 0) -> Estimate:
    """Accuracy of the arm over the baseline's, with a bootstrap interval by question.

    None where the baseline answers nothing rightly. There is no interval where more than 1 % of
    the resamples have no ratio for the same reason; below that they are left out.
    """
    total = sum(strata, Pairs())
    right = total.both + total.base_only
    if right == 0:
        return NOTHING
    value = (total.both + total.arm_only) / right
    if total.n == 1:
        return Estimate(value)
    counts = _resampled_pairs(strata, seed)
    below = counts[:, 0] + counts[:, 2]
    defined = below > 0
    if defined.mean() < 1 - _UNDEFINED:
        return Estimate(value)
    above = counts[:, 0] + counts[:, 1]
    return _percentiles(value, above[defined] / below[defined])


def geometric_mean(strata: Sequence[Sequence[float]], seed: int = 0) -> Estimate:
    """Geometric mean of positive ratios, one a prompt, with a bootstrap interval over prompts."""
    logs = [np.log(np.asarray(values, dtype=np.float64))[:, None] for values in strata if values]
    n = sum(map(len, logs))
    if n == 0:
        return NOTHING
    value = float(sum(part.sum() for part in logs) / n)
    if n == 1:
        return Estimate(math.exp(value))
    found = _percentiles(value, _resampled_sums(logs, seed)[:, 0] / n)
    return Estimate(*(None if log is None else math.exp(log) for log in astuple(found)))


def ratio_of_rates(strata: Sequence[Floats], seed: int = 0) -> Estimate:
    """How many times as many tokens a second: of totals, with a bootstrap interval over prompts.

    Args:
        strata: arrays [n, 4] of the arm's tokens and seconds and the baseline's, all positive.
    """
    parts = [part for part in strata if len(part)]
    if not parts:
        return NOTHING

    def ratio(sums: Floats) -> Floats:
        return (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])

    totals = np.sum([part.sum(axis=0) for part in parts], axis=0)[None]
    value = float(ratio(totals)[0])
    if sum(map(len, parts)) == 1:
        return Estimate(value)
    return _percentiles(value, ratio(_resampled_sums(parts, seed)))


def smallest_significant_difference(n: int) -> float | None:
    """The least one-way change that exact McNemar calls significant at 5 %: six questions of n."""
    needed = 1
    while exact_mcnemar(needed, 0) > LEVEL:
        needed += 1
    return needed / n if n >= needed else None


@lru_cache(maxsize=4096)
def minimal_detectable_difference(n: int, discordant: int) -> float | None:
    """The true accuracy difference that exact McNemar finds with power 80 % at two-sided 5 %.

    The power is exact: the number of discordant pairs is binomial with the rate that was observed,
    and given it, so is the arm's share of them. The rate cannot be less than the difference, so
    that is its floor: with few or no discordant pairs seen, the answer is the least loss that goes
    one way only and shows six pairs or more four times out of five, about 7.9 / n.

    The figures usually quoted for common sets (HumanEval 6 points, MATH-500 3.2, GSM8K 1.3) are
    this one, in the normal approximation, at discordance rates of 7.5 %, 6.5 % and 2.8 %.

    Returns:
        None where even a difference of 1 is not found: fewer than six questions.
    """
    if n == 0 or _power(n, discordant / n, 1.0) < POWER:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        if _power(n, discordant / n, middle) < POWER:
            low = middle
        else:
            high = middle
    return high


def _power(n: int, rate: float, difference: float) -> float:
    """Chance that exact McNemar rejects, for a rate of discordance and a true difference."""
    from scipy.stats import binom

    rate = max(rate, difference)
    if rate == 0:
        return 0.0
    spread = 8 * np.sqrt(n * rate * (1 - rate)) + 8
    first, last = max(0, int(n * rate - spread)), min(n, int(n * rate + spread))
    pairs = np.arange(first, last + 1)
    critical = _critical(n)[first : last + 1]
    worse = (rate + difference) / (2 * rate)
    rejected = binom.cdf(critical, pairs, 1 - worse) + binom.cdf(critical, pairs, worse)
    return float(np.sum(binom.pmf(pairs, n, rate) * rejected))


@lru_cache(maxsize=64)
def _critical(n: int) -> NDArray[np.int64]:
    """For 0..n discordant pairs, the largest smaller count that is significant; -1 for none."""
    from scipy.stats import binom

    pairs = np.arange(n + 1)
    guess = np.nan_to_num(binom.ppf(LEVEL / 2, pairs, 0.5)).astype(np.int64)
    return guess - (binom.cdf(guess, pairs, 0.5) > LEVEL / 2)


def _resampled_pairs(strata: Sequence[Pairs], seed: int) -> NDArray[np.int64]:
    """Counts [RESAMPLES, 4] of resampled questions, summed over strata."""
    random = np.random.default_rng(seed)
    total = np.zeros((RESAMPLES, 4), dtype=np.int64)
    for pairs in strata:
        if pairs.n:
            shares = np.asarray(pairs.cells) / pairs.n
            total += random.multinomial(pairs.n, shares, size=RESAMPLES)
    return total


def _resampled_sums(strata: Sequence[Floats], seed: int) -> Floats:
    """Sums [RESAMPLES, k] over resampled rows of arrays [n, k], in bounded memory."""
    random = np.random.default_rng(seed)
    total = np.zeros((RESAMPLES, strata[0].shape[1]))
    for values in strata:
        n = len(values)
        step = max(1, _CHUNK // n)
        for start in range(0, RESAMPLES, step):
            stop = min(RESAMPLES, start + step)
            chosen = random.integers(0, n, size=(stop - start, n))
            total[start:stop] += values[chosen].sum(axis=1)
    return total


def _percentiles(value: float, resampled: Floats) -> Estimate:
    low, high = np.percentile(resampled, [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)])
    return Estimate(value, float(low), float(high))

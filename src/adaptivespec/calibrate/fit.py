"""The least kappa whose loss is within a budget, with a stated confidence.

Fixed sequence testing in the manner of Learn then Test (Angelopoulos et al., 2110.01052): kappas
are tested from high to low, each against the null hypothesis "the mean loss exceeds the budget" at
level delta = 1 - confidence, and the first that is not rejected ends the sequence. Whatever the
losses look like as a function of kappa, the kappa that is chosen then breaks the budget with
probability at most delta, over draws of the prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from adaptivespec.calibrate.losses import LOSSES, LossKind
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import unknown_name

__all__ = ["Budget", "LossTest", "TestKind", "betting", "hoeffding_bentkus", "prompts_needed"]

TestKind = Literal["clopper-pearson", "hoeffding-bentkus", "betting"]
BETS = np.array([0.25, 0.5, 0.75, 1.0])
"""What gamblers stake, as shares of all they have; more of them need more prompts."""
_STEPS = 40  # of a bisection: 1e-12 of the interval


@dataclass(frozen=True)
class LossTest:
    """What the losses of one kappa say.

    Attributes:
        loss: mean loss on the scale of the budget: a share of prompts, or accuracy lost.
        p_value: of the null hypothesis that the true loss exceeds the budget.
        upper: bound that the true loss is below with the confidence of the budget.
        certified: whether the null hypothesis is rejected.
    """

    loss: float
    p_value: float
    upper: float
    certified: bool


@dataclass(frozen=True)
class Budget:
    """What may be lost, how sure that has to be, and how it is tested.

    Attributes:
        loss: "harm", "disagreement" or "drop".
        max_loss: eps, in (0, 1): the mean loss that is allowed.
        confidence: 1 - delta, in (0, 1).
        test: None for the best one of the loss: "clopper-pearson" (exact, for losses that are 0 or
            1) or "betting" (for drop); "hoeffding-bentkus" takes any loss in [0, 1].

    Raises ConfigError: out of bounds, or a test that is not valid for the loss.
    """

    loss: LossKind = "harm"
    max_loss: float = 0.01
    confidence: float = 0.95
    test: TestKind | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        for field, value in (("max_drop", self.max_loss), ("confidence", self.confidence)):
            if not 0 < value < 1:
                raise ConfigError(
                    f"must lie between 0 and 1 (100%), got {value:g}",
                    field=field,
                    remedy="Write it like 1% or 0.01" if field == "max_drop" else "Write 95%",
                )
        if self.test is not None and self.test not in get_args(TestKind):
            raise unknown_name("test", self.test, get_args(TestKind))
        if self.test == "clopper-pearson" and self.loss == "drop":
            raise ConfigError(
                "clopper-pearson takes losses of 0 or 1, and drop has a third value",
                field="test",
                remedy="Use betting or hoeffding-bentkus, or the loss harm, which bounds the drop",
            )

    @property
    def delta(self) -> float:
        """The risk that is left: 1 - confidence."""
        return 1 - self.confidence

    @property
    def kind(self) -> TestKind:
        """The test in use."""
        return self.test or ("betting" if self.loss == "drop" else "clopper-pearson")

    def p_value(self, losses: Sequence[float], limit: float | None = None) -> float:
        """P-value of "the mean loss exceeds `limit`" (on the budget's scale; None: the budget's).

        Args:
            losses: as of ``losses_of``.
        """
        at = self._scaled(self.max_loss if limit is None else limit)
        values = np.asarray(losses, dtype=np.float64)
        if not len(values) or at >= 1:
            return 1.0 if not len(values) else 0.0
        if self.kind == "clopper-pearson":
            return _binomial_cdf(int(values.sum()), len(values), at)
        if self.kind == "betting":
            return betting(values, at)
        return hoeffding_bentkus(float(values.mean()), len(values), at)

    def judge(self, losses: Sequence[float]) -> LossTest:
        """Test the losses of one kappa."""
        p = self.p_value(losses)
        mean = float(np.mean(losses)) if len(losses) else 0.0
        loss = 2 * mean - 1 if self.loss == "drop" else mean
        return LossTest(loss, p, self._upper(losses), p <= self.delta)

    def interval(self, losses: Sequence[float]) -> tuple[float, float]:
        """Bounds of the true loss, each with (1 + confidence) / 2: together with the confidence.

        Clopper-Pearson for losses of 0 and 1; for drop, the same from either side by its test.
        """
        half = Budget(self.loss, self.max_loss, (1 + self.confidence) / 2, self.test)
        mirrored = [1 - loss for loss in losses]
        if self.loss == "drop":
            return -half._upper(mirrored), half._upper(losses)
        return 1 - half._upper(mirrored), half._upper(losses)

    def _upper(self, losses: Sequence[float]) -> float:
        """The largest limit that the losses do not reject, by bisection: p falls as it grows."""
        low, high = (-1.0 if self.loss == "drop" else 0.0), 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if self.p_value(losses, middle) <= self.delta:
                high = middle
            else:
                low = middle
        return high

    def _scaled(self, limit: float) -> float:
        return (1 + limit) / 2 if self.loss == "drop" else limit


def prompts_needed(budget: Budget, rate: float = 0.0) -> int | None:
    """The least number of prompts that certifies a kappa whose losses come at `rate`.

    At rate 0 and with the exact test it is ln(delta) / ln(1 - max_loss), rounded up. None where the
    rate is not below the budget, and for drop at rates above 0, where it depends on more than them.
    """
    if rate >= budget.max_loss or (rate > 0 and budget.loss == "drop"):
        return None
    no_loss = 0.5 if budget.loss == "drop" else 0.0

    def certifies(n: int) -> bool:
        lost = math.ceil(rate * n)
        return budget.p_value([1.0] * lost + [no_loss] * (n - lost)) <= budget.delta

    high = 1
    while not certifies(high):
        high *= 2
        if high > 1 << 24:
            return None
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if certifies(middle) else (middle, high)
    return high


def hoeffding_bentkus(mean: float, n: int, limit: float) -> float:
    """P-value of "the mean of losses in [0, 1] exceeds `limit`" (Bates et al. 2101.02703).

    The lesser of Hoeffding's exp(-n KL(mean, limit)) and Bentkus's e P(Bin(n, limit) <= n mean).
    """
    if mean >= limit:
        return 1.0
    hoeffding = math.exp(-n * _kl(mean, limit))
    # The product may miss the whole number that it is by rounding, upwards too.
    bentkus = math.e * _binomial_cdf(math.ceil(round(n * mean, 6)), n, limit)
    return min(hoeffding, bentkus, 1.0)


def betting(losses: Any, limit: float) -> float:
    """P-value of "the mean of losses in [0, 1] exceeds `limit`", by betting.

    Under the null hypothesis the wealth prod (1 + b (limit - loss_i)) of a gambler who bets on
    small losses is 1 or less in the mean, for any b in [0, 1 / (1 - limit)], and so is the average
    of several gamblers; by Markov its inverse is a p-value. The order of losses does not matter,
    and a limit below their mean is never rejected. (Waudby-Smith and Ramdas 2010.09686.)

    Args:
        losses: f64[n].
    """
    values = np.asarray(losses, dtype=np.float64)
    bets = BETS / (1 - limit)
    with np.errstate(divide="ignore"):  # the highest bet may lose all
        factors = np.log(np.maximum(1 + bets[:, None] * (limit - values), 0.0))
    wealth = np.logaddexp.reduce(factors.sum(axis=1)) - math.log(len(bets))
    return math.exp(-max(0.0, float(wealth)))


def _kl(a: float, b: float) -> float:
    """Kullback-Leibler divergence of coins that show heads with probability a and b, nats."""
    heads = a * math.log(a / b) if a > 0 else 0.0
    tails = (1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0
    return heads + tails


def _binomial_cdf(count: int, n: int, p: float) -> float:
    from scipy.stats import binom

    return float(binom.cdf(count, n, p))

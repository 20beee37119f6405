"""Short chains that must pay for themselves, and plain decoding where they do not."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field

from adaptivespec.policy.base import (
    MOST_STEPS,
    NOTHING,
    Outcome,
    Policy,
    PolicyOptions,
    Signals,
    TreePlan,
)
from adaptivespec.policy.plan import Stop

_AFTER_REST = 0.3  # of the credit: enough for a failure or two
_QUICKLY = 8  # drafted steps


class ThriftOptions(PolicyOptions):
    """Options of thrift; prices are in steps of plain decoding."""

    num_steps: int = Field(6, ge=1, le=MOST_STEPS, description="most levels")
    min_path: float = Field(0.3, ge=0, le=1, description="least q of a path that grows on")
    first: float = Field(0.15, ge=0, description="price of a step that drafts one token")
    more: float = Field(0.15, ge=0, description="price of each further level")
    alpha: float = Field(0.15, gt=0, le=1, description="weight of the last step in the balance")
    credit: float = Field(0.6, ge=0, description="balance to begin with, in tokens")
    rest: int = Field(8, ge=1, description="steps without drafts, doubled at once again")
    longest: int = Field(64, ge=1, description="most steps without drafts")


class ThriftPolicy(Policy):
    """A chain as long as the drafter trusts it, while what it earns exceeds what it costs.

    A step that drafts and verifies L levels earns the tokens it commits beyond the first and costs
    first + more (L - 1) plain steps. When the moving average of the difference falls below zero
    the drafter is not asked at all for `rest` steps, twice as many each time drafting failed at
    once again; then the balance starts anew. So easy text is drafted, hard text is not, and both
    cost little. No clock is read and nothing outlives the request: a request repeats.
    """

    name: ClassVar[str] = "thrift"
    formula: ClassVar[str] = "chain while q(path) >= min_path; rests when EMA(tokens - price) < 0"
    source: ClassVar[str] = "AdaptiveSpec"
    tree: ClassVar[bool] = False
    Options: ClassVar[type[PolicyOptions]] = ThriftOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(ThriftOptions, self.options)
        self.begin()

    def begin(self) -> None:
        """Full credit, no rest."""
        self.balance = self._opts.credit
        self._resting = 0
        self._rest = 0  # the length of the last one
        self._drafted = 0

    @property
    def resting(self) -> bool:
        return self._resting > 0

    def propose(self, signals: Signals) -> TreePlan:
        """A chain, unless it is a step of rest."""
        if self.resting:
            return NOTHING
        o = self._opts
        return TreePlan(o.num_steps, 1, o.num_steps + 1, stop=Stop(min_path=o.min_path))

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Move the balance; begin a rest where it is overdrawn."""
        o = self._opts
        if self.resting:
            self._resting -= 1
            return
        if not outcome.num_verified:
            return
        price = o.first + o.more * (outcome.num_verified - 1)
        self.balance += o.alpha * (outcome.committed - 1 - price - self.balance)
        self._drafted += 1
        if self.balance < 0:
            again = self._rest if self._drafted <= _QUICKLY else 0
            self._resting = self._rest = min(2 * again or o.rest, o.longest)
            self.balance, self._drafted = _AFTER_REST * o.credit, 0

    def largest(self) -> TreePlan:
        """The longest chain."""
        return TreePlan(self._opts.num_steps, 1, self._opts.num_steps + 1)

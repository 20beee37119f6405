"""A bandit over a few triples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

from pydantic import Field, field_validator

from adaptivespec.policy.base import (
    Outcome,
    Policy,
    PolicyOptions,
    Signals,
    TreePlan,
)
from adaptivespec.policy.plan import fillable

Triple = tuple[int, int, int]


class BanditOptions(PolicyOptions):
    """Options of the bandit."""

    arms: tuple[Triple, ...] = Field(
        ((1, 1, 2), (2, 2, 4), (3, 1, 4), (3, 4, 8), (5, 1, 6), (5, 4, 12), (7, 1, 8), (7, 4, 16)),
        min_length=1,
        description="triples (num_steps, topk, num_draft_tokens) to choose from",
    )
    c: float = Field(0.3, ge=0, le=10, description="weight of exploration; 1.41 is UCB1")
    decay: float = Field(1.0, gt=0, le=1, description="of what was learnt, per step; 1 = none")
    step_cost: float = Field(
        0.1, ge=0, le=10, description="of a level in target passes, where no time is known"
    )

    @field_validator("arms")
    @classmethod
    def _legal(cls, arms: tuple[Triple, ...]) -> tuple[Triple, ...]:
        for arm in arms:
            fillable(arm)
        if len(set(arms)) < len(arms):
            raise ValueError(f"must differ, got {[list(arm) for arm in arms]}")
        return arms


@dataclass
class BanditMemory:
    """What the bandit knows of its arms.

    Attributes:
        counts: steps that an arm was used for, decayed.
        sums: the arm's rewards, decayed.
        best: largest reward of any step, which makes rewards fall into [0, 1].
    """

    counts: list[float]
    sums: list[float]
    best: float = 0.0


class BanditPolicy(Policy):
    """The triple of largest upper confidence bound on tokens per second.

    Each arm is used once, in the order given; then the arm a of largest
    r_a / r_max + c sqrt(ln t / n_a), with r_a the mean reward of its n_a steps, t = sum n_a and
    r_max the largest reward so far. A step's reward is its committed tokens by its seconds; where
    those were not measured, by the price of its round under ``costs``; without either, by
    1 + step_cost * num_steps. All of a run should be of one kind. Rewards of an arm scatter by up
    to a fifth of the maximum, for which c = 0.3 is UCB1's bound. With decay < 1 old steps fade
    (discounted UCB). What was learnt outlives the request. A step that the end of the output cut
    short does not count. (Hou et al., arXiv 2505.15141; UCB1: Auer et al. 2002.)
    """

    name: ClassVar[str] = "bandit"
    formula: ClassVar[str] = "argmax over triples of mean reward / max + c sqrt(ln t / n)"
    source: ClassVar[str] = "BanditSpec 2505.15141"
    Options: ClassVar[type[PolicyOptions]] = BanditOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(BanditOptions, self.options)
        arms = len(self._opts.arms)
        self.memory: BanditMemory = BanditMemory([0.0] * arms, [0.0] * arms)

    def choice(self) -> int:
        """The arm to use now: the first unused one, then that of the largest bound."""
        memory = self.memory
        if 0.0 in memory.counts:
            return memory.counts.index(0.0)
        width = self._opts.c * math.sqrt(math.log(max(sum(memory.counts), 1.0)))
        bounds = [
            total / (count * (memory.best or 1.0)) + width / math.sqrt(count)
            for total, count in zip(memory.sums, memory.counts, strict=True)
        ]
        return bounds.index(max(bounds))

    def propose(self, signals: Signals) -> TreePlan:
        """The chosen arm's triple."""
        return TreePlan(*self._opts.arms[self.choice()])

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Credit the arm that the plan is; a plan that was cut is none."""
        arm = self.choice()
        if plan.triple != self._opts.arms[arm]:
            return
        reward, memory = self._reward(plan, outcome), self.memory
        memory.best = max(memory.best, reward)
        memory.counts = [self._opts.decay * count for count in memory.counts]
        memory.sums = [self._opts.decay * total for total in memory.sums]
        memory.counts[arm] += 1.0
        memory.sums[arm] += reward

    def _reward(self, plan: TreePlan, outcome: Outcome) -> float:
        """Committed tokens per second, or per target pass where no time is known."""
        seconds = sum(outcome.seconds.values())
        if seconds <= 0 and self.costs is not None:
            rows = [plan.width] * (plan.num_steps - 1)  # the first level needs no pass
            seconds = self.costs.round_s(rows, outcome.num_verified + 1, outcome.context_len)
        if seconds <= 0:
            seconds = 1 + self._opts.step_cost * plan.num_steps
        return outcome.committed / seconds

    def largest(self) -> TreePlan:
        """The largest of the arms, field by field."""
        steps, topk, tokens = (max(numbers) for numbers in zip(*self._opts.arms, strict=True))
        return TreePlan(steps, topk, tokens)

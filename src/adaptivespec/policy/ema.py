"""Adaptive steps: a chain whose length follows what was accepted lately."""

from __future__ import annotations

from typing import Annotated, ClassVar, cast

from pydantic import Field, field_validator

from adaptivespec.policy.base import (
    MOST_STEPS,
    Outcome,
    Policy,
    PolicyOptions,
    Signals,
    TreePlan,
)

Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]


class EmaOptions(PolicyOptions):
    """Options of adaptive steps."""

    candidates: tuple[Steps, ...] = Field(
        (1, 3, 7), min_length=1, description="lengths of the chain to choose from, rising"
    )
    alpha: float = Field(0.2, gt=0, le=1, description="weight of the last step in the EMA")
    up: float = Field(
        0.0, ge=0, le=MOST_STEPS, description="margin before a longer chain is taken, tokens"
    )
    down: float = Field(
        0.25, ge=0, le=MOST_STEPS, description="margin before a shorter chain is taken, tokens"
    )

    @field_validator("candidates")
    @classmethod
    def _rising(cls, candidates: tuple[int, ...]) -> tuple[int, ...]:
        if list(candidates) != sorted(set(candidates)):
            raise ValueError(f"must rise, got {list(candidates)}")
        return candidates


class EmaPolicy(Policy):
    """A chain of one of a few lengths, chosen by a moving average of the accepted length.

    After each step e += alpha (accepted - e). The length is to be the smallest candidate c with
    e <= c - 1/2: one that nearly all accepted drafts fit into, with room for another. The
    hysteresis widens each border: from c to the next candidate when e > c - 1/2 + up, back to c
    when e <= c - 1/2 - down. A request starts with the middle candidate s and e = s - 1. Steps
    without drafts, and steps that the end of the output cut short, say nothing. SGLang decides
    every few steps for the whole batch; here every step decides, for its own request.
    """

    name: ClassVar[str] = "ema"
    formula: ClassVar[str] = "smallest candidate c >= 1/2 + EMA of accepted, with hysteresis"
    source: ClassVar[str] = "SGLang adaptive speculative steps"
    tree: ClassVar[bool] = False
    Options: ClassVar[type[PolicyOptions]] = EmaOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(EmaOptions, self.options)
        self.begin()

    def begin(self) -> None:
        """The middle candidate, and an average that stays with it."""
        self._index = len(self._opts.candidates) // 2
        self.average = self.steps - 1.0

    @property
    def steps(self) -> int:
        """The length of the chain now."""
        return self._opts.candidates[self._index]

    def propose(self, signals: Signals) -> TreePlan:
        """A chain of the length in force."""
        return TreePlan(self.steps, 1, self.steps + 1)

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Move the average, then the length."""
        if not outcome.num_verified or plan.num_steps < self.steps:
            return
        o = self._opts
        self.average += o.alpha * (outcome.num_accepted - self.average)
        last = len(o.candidates) - 1
        while self._index < last and self.average > self.steps - 0.5 + o.up:
            self._index += 1
        while self._index and self.average <= o.candidates[self._index - 1] - 0.5 - o.down:
            self._index -= 1

    def largest(self) -> TreePlan:
        """The longest candidate."""
        steps = self._opts.candidates[-1]
        return TreePlan(steps, 1, steps + 1)

"""AdaptiveSpec's tree policy: a draft confidence score picks depth, width and size.

DCS = p_draft * RAR, with p_draft the drafter's top-1 probability at the root and RAR a rolling
acceptance rate (arXiv 2609.02897). Low scores get a shallow, wide tree, high ones a deep chain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, cast

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
Combine = Literal["mean", "median", "min"]


class DcsOptions(PolicyOptions):
    """Options of the draft confidence score."""

    alpha: float = Field(0.3, gt=0, le=1, description="weight of the last step in RAR")
    d: float = Field(0.5, gt=0, le=1, description="score at which the tree is the high triple")
    seed: float = Field(0.5, ge=0, le=1, description="RAR at the start and after a reset")
    low: Triple = Field((3, 4, 4), description="(num_steps, topk, num_draft_tokens) at score 0")
    high: Triple = Field((7, 1, 8), description="the same at score d and above")
    patience: int = Field(5, ge=1, description="steps without acceptance that reset RAR")
    acceptance: Literal["per_step", "per_node", "any"] = Field(
        "per_step", description="accepted drafts / num_steps, / verified nodes, or 1 if any"
    )

    @field_validator("low", "high")
    @classmethod
    def _legal(cls, triple: Triple) -> Triple:
        if fillable(triple).draft_nothing:
            raise ValueError(f"must draft something (num_steps >= 1, tokens >= 2), got {triple}")
        return triple


class DcsPolicy(Policy):
    """AdaptiveSpec: deep chains when drafts are trusted, shallow wide trees when not.

    The rolling acceptance rate is an EMA of each step's acceptance rate; several steps in a row
    with nothing accepted reset it to its seed. (arXiv 2609.02897.)
    """

    name: ClassVar[str] = "dcs"
    formula: ClassVar[str] = "s = clip(p_draft * RAR / d, 0, 1); triple = low + s (high - low)"
    source: ClassVar[str] = "AdaptiveSpec 2609.02897"
    Options: ClassVar[type[PolicyOptions]] = DcsOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(DcsOptions, self.options)
        self.begin()

    def begin(self) -> None:
        """RAR back to its seed."""
        self.rar = self._opts.seed
        self._failures = 0

    def score(self, root_confidence: float) -> float:
        """s = clip(p_draft * RAR / d, 0, 1)."""
        return min(1.0, max(0.0, root_confidence * self.rar / self._opts.d))

    def propose(self, signals: Signals) -> TreePlan:
        """The triple at the current score."""
        s = self.score(signals.root_confidence)
        return TreePlan(*interpolate(s, self._opts.low, self._opts.high))

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Move RAR towards this step's acceptance rate; a step without drafts says nothing."""
        accepted, verified = outcome.num_accepted, outcome.num_verified
        if plan.draft_nothing or verified == 0:
            return
        if self._opts.acceptance == "per_step":
            rate = accepted / plan.num_steps
        elif self._opts.acceptance == "per_node":
            rate = accepted / verified
        else:
            rate = float(accepted > 0)
        self.rar += self._opts.alpha * (rate - self.rar)
        self._failures = 0 if accepted else self._failures + 1
        if self._failures >= self._opts.patience:
            self.begin()

    def largest(self) -> TreePlan:
        """The larger of both ends, field by field."""
        pairs = zip(self._opts.low, self._opts.high, strict=True)
        steps, topk, tokens = (max(pair) for pair in pairs)
        return TreePlan(steps, topk, tokens)


def interpolate(s: float, low: Triple, high: Triple) -> Triple:
    """The triple at score s in [0, 1]: each number moves linearly from ``low`` to ``high``.

    Rounded to the nearest integer; a half is rounded up in the direction of ``high``, so every
    triple is reached on an interval closed at its left end.
    """
    steps, topk, tokens = (
        a + int(math.copysign(math.floor(abs(b - a) * s + 0.5), b - a))
        for a, b in zip(low, high, strict=True)
    )
    return steps, topk, tokens


def reachable(low: Triple, high: Triple) -> list[Triple]:
    """Every triple that ``interpolate`` can return, by rising score.

    A number that moves by n steps changes at the scores (k - 1/2) / n, k = 1..n.
    """
    edges = {0.0}
    for a, b in zip(low, high, strict=True):
        moves = abs(b - a)
        # One part in 10^12 above the edge: the quotient may be rounded to just below it.
        edges |= {(k + 0.5) / moves * (1 + 1e-12) for k in range(moves)}
    return list(dict.fromkeys(interpolate(s, low, high) for s in sorted(edges)))


def combine(scores: Sequence[float], how: Combine = "mean") -> float:
    """One score for a batch whose requests share a shape: their mean, median or minimum."""
    if not scores:
        raise ValueError("there is no score to combine")
    ordered = sorted(scores)
    if how == "min":
        return ordered[0]
    if how == "mean":
        return math.fsum(ordered) / len(ordered)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

"""Survival curves: how deep trees of one width are followed, by the drafter's root confidence."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from adaptivespec.policy.base import Outcome
from adaptivespec.policy.plan import TreePlan

_BINS = 5
_PRIOR = 10.0  # rounds that the first guess counts for
_DECAY = 0.999


def _guess() -> list[float]:
    return [0.0, 0.0]


@dataclass
class Survival:
    """S_d = P(at least d drafts are followed), by (topk, bin of root confidence, depth).

    Attributes:
        counts: (followed, tried), decayed.
    """

    counts: dict[tuple[int, int, int], list[float]] = field(
        default_factory=lambda: defaultdict(_guess)
    )

    def tokens(self, triple: tuple[int, int, int], confidence: float) -> float:
        """G of a triple: 1 + the sum of S_d over its levels. The first guess is confidence^d."""
        steps, topk, nodes = triple
        total = 1.0
        for depth in range(1, min(steps, nodes - 1) + 1):
            followed, tried = self.counts.get((topk, _bin(confidence), depth), (0.0, 0.0))
            total += (followed + _PRIOR * confidence**depth) / (tried + _PRIOR)
        return total

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Count one round at every depth that its tree had."""
        if outcome.root_confidence is None:
            return
        for depth in range(1, min(plan.num_steps, plan.num_draft_tokens - 1) + 1):
            counts = self.counts[plan.topk, _bin(outcome.root_confidence), depth]
            counts[0] = counts[0] * _DECAY + (outcome.num_accepted >= depth)
            counts[1] = counts[1] * _DECAY + 1


def _bin(confidence: float) -> int:
    return min(int(confidence * _BINS), _BINS - 1)

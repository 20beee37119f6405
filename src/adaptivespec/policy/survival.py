"""Survival curves: how deep trees of one width are followed, by the drafter's root confidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adaptivespec.policy.base import Outcome
from adaptivespec.policy.plan import TreePlan

_BINS = 5
_PRIOR = 10.0  # rounds that the first guess counts for
_DECAY = 0.999

Moments = Mapping[int, Sequence[float]]


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
        return self.total(triple, moments([confidence], triple[0]))

    def total(self, triple: tuple[int, int, int], batch: Moments) -> float:
        """The sum of ``tokens`` over a batch, given by its ``moments`` to this depth or deeper."""
        steps, topk, nodes = triple
        total = sum(sums[0] for sums in batch.values())
        for depth in range(1, min(steps, nodes - 1) + 1):
            for at, sums in batch.items():
                followed, tried = self.counts.get((topk, at, depth), (0.0, 0.0))
                total += (sums[0] * followed + _PRIOR * sums[depth]) / (tried + _PRIOR)
        return total

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Count one step, unless nothing is known of its confidence."""
        if outcome.root_confidence is not None:
            self.count(plan.triple, outcome.root_confidence, outcome.num_accepted)

    def count(self, triple: tuple[int, int, int], confidence: float, accepted: int) -> None:
        """Count one request's round at every depth that its tree had."""
        steps, topk, nodes = triple
        for depth in range(1, min(steps, nodes - 1) + 1):
            counts = self.counts[topk, _bin(confidence), depth]
            counts[0] = counts[0] * _DECAY + (accepted >= depth)
            counts[1] = counts[1] * _DECAY + 1


def moments(confidences: Sequence[float], depth: int) -> Moments:
    """Sums of confidence^d over the requests of each bin of confidence, at index d = 0..depth."""
    batch: dict[int, list[float]] = {}
    for confidence in confidences:
        sums = batch.setdefault(_bin(confidence), [0.0] * (depth + 1))
        for d in range(depth + 1):
            sums[d] += confidence**d
    return batch


def _bin(confidence: float) -> int:
    return min(int(confidence * _BINS), _BINS - 1)

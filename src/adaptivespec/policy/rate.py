"""Costs as they turn out, and the long-run rate of tokens per second."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adaptivespec.policy.base import Outcome
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.plan import TreePlan

Array = NDArray[np.float64]

_SEED_ROUNDS = 10.0  # rounds of plain decoding that the rate starts from
_LEARN = 0.05  # weight of one round in what all sizes have in common
_FADE = 0.998  # of what was seen of single sizes, per round
_PRIOR = 10.0  # rounds that the profile counts for, in the relation of sizes to each other
_REACH = 0.15  # nats of size over which neighbours inform each other
_LARGEST = 64  # sizes above it are corrected as this one
_OUTLIER = 5.0  # a pass this many times slower than expected was interrupted, and teaches nothing


@dataclass
class Correction:
    """Seconds seen / seconds profiled, by the number of nodes.

    How busy the machine is changes all sizes at once and is learnt quickly; the relation of sizes
    to each other slowly, and from their neighbours too. A quick correction of every size by itself
    would be so noisy that the size chosen were the one that happened to look cheap.

    Attributes:
        scale: what all sizes have in common.
        rounds: how many passes were seen.
        weight, total: by size, decayed rounds and their ratios over scale.
        shape: f64[65], the ratio of each size over scale.
    """

    scale: float = 1.0
    rounds: int = 0
    weight: Array = field(default_factory=lambda: np.zeros(_LARGEST + 1))
    total: Array = field(default_factory=lambda: np.zeros(_LARGEST + 1))
    shape: Array = field(default_factory=lambda: np.ones(_LARGEST + 1))

    def __call__(self, nodes: int) -> float:
        """The ratio for this size."""
        return self.scale * float(self.shape[min(nodes, _LARGEST)])

    def add(self, nodes: int, ratio: float) -> None:
        """Take in a pass over ``nodes``."""
        self.rounds += 1
        self.scale += max(_LEARN, 1 / (self.rounds + 1)) * (ratio - self.scale)
        self.weight *= _FADE
        self.total *= _FADE
        at = min(nodes, _LARGEST)
        self.weight[at] += 1.0
        self.total[at] += ratio / self.scale
        near = _nearness()
        self.shape = (near @ self.total + _PRIOR) / (near @ self.weight + _PRIOR)


@lru_cache(maxsize=1)
def _nearness() -> Array:
    """f64[65, 65]: how much size m says of size n; 1 for itself."""
    size = np.log(np.maximum(np.arange(_LARGEST + 1), 1))
    near: Array = np.exp(-np.abs(size[:, None] - size) / _REACH)
    return near


@dataclass
class Clock:
    """Corrections to a cost profile, and tokens and seconds with exponential decay.

    Attributes:
        half_life: rounds, of the rate.
        tokens, seconds: decayed sums; their quotient is the rate.
        verify: correction of verify passes.
        draft: observed / profiled seconds of passes of the drafter.
    """

    half_life: float = 200.0
    tokens: float = 0.0
    seconds: float = 0.0
    verify: Correction = field(default_factory=Correction)
    draft: float = 1.0

    def rate(self, costs: CostProfile) -> float:
        """Tokens per second; that of plain decoding before the first round."""
        return self.tokens / self.seconds if self.seconds else 1 / _plain_s(costs)

    def verify_s(self, costs: CostProfile, nodes: int, context: int) -> float:
        """Seconds of a verify pass, as experience corrects the profile."""
        return costs.verify_s(nodes, context) * self.verify(nodes)

    def draft_s(self, costs: CostProfile, rows: int) -> float:
        """Seconds of a pass of the drafter, corrected likewise."""
        return costs.draft_s(rows) * self.draft

    def observe(self, costs: CostProfile, plan: TreePlan, outcome: Outcome, online: bool) -> None:
        """Take in one round: by its own seconds, or (not ``online``) by the profile's."""
        if not self.seconds:
            self.tokens, self.seconds = _SEED_ROUNDS, _SEED_ROUNDS * _plain_s(costs)
        nodes = outcome.num_verified + 1
        levels = outcome.draft.num_levels if outcome.draft is not None else plan.num_steps
        passes = max(levels - 1, 0)
        profiled = costs.verify_s(nodes, outcome.context_len)
        drafting = passes * costs.draft_s(plan.width)
        spent = profiled + drafting + costs.overhead
        if online and outcome.seconds:
            verify, draft = outcome.seconds["verify"], outcome.seconds["draft"]
            if verify > _OUTLIER * profiled * self.verify.scale:
                return
            spent = sum(outcome.seconds.values())
            if profiled > 0:
                self.verify.add(nodes, verify / profiled)
            if drafting > 0:
                self.draft += _LEARN * (max(draft - costs.overhead, 0.0) / drafting - self.draft)
        decay = 0.5 ** (1 / self.half_life)
        self.tokens = self.tokens * decay + outcome.committed
        self.seconds = self.seconds * decay + spent


def _plain_s(costs: CostProfile) -> float:
    return max(costs.verify_s(1) + costs.overhead, 1e-9)

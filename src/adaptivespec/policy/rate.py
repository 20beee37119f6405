"""Costs as they turn out, and the long-run rate of tokens per second."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
_LARGEST = 64  # each size up to it has a bin of its own
_GROWTH = 0.1  # nats from one bin to the next beyond
_OUTLIER = 5.0  # a pass this many times slower than expected was interrupted, and teaches nothing


@dataclass
class Correction:
    """Seconds seen / seconds profiled, by the number of nodes.

    How busy the machine is changes all sizes at once and is learnt quickly; the relation of sizes
    to each other slowly, and from their neighbours too. A quick correction of every size by itself
    would be so noisy that the size chosen were the one that happened to look cheap.

    Attributes:
        bins: of sizes; larger sizes are corrected as those of the last bin, by default 64 nodes.
        scale: what all sizes have in common.
        rounds: how many passes were seen.
        weight, total: f64[bins], decayed rounds and their ratios over scale.
        shape: f64[bins], the ratio of each size over scale.
    """

    bins: int = _LARGEST + 1
    scale: float = 1.0
    rounds: int = 0
    weight: Array = field(init=False)
    total: Array = field(init=False)
    shape: Array = field(init=False)

    def __post_init__(self) -> None:
        self.weight, self.total = np.zeros(self.bins), np.zeros(self.bins)
        self.shape = np.ones(self.bins)

    def __call__(self, nodes: int) -> float:
        """The ratio for this size."""
        return self.scale * float(self.shape[self._bin(nodes)])

    def add(self, nodes: int, ratio: float) -> None:
        """Take in a pass over ``nodes``."""
        self.rounds += 1
        self.scale += max(_LEARN, 1 / (self.rounds + 1)) * (ratio - self.scale)
        self.weight *= _FADE
        self.total *= _FADE
        at = self._bin(nodes)
        self.weight[at] += 1.0
        self.total[at] += ratio / self.scale
        near = _nearness(self.bins)
        self.shape = (near @ self.total + _PRIOR) / (near @ self.weight + _PRIOR)

    def _bin(self, nodes: int) -> int:
        beyond = round(math.log(nodes / _LARGEST) / _GROWTH) if nodes > _LARGEST else 0
        return min(min(nodes, _LARGEST) + beyond, self.bins - 1)


@lru_cache(maxsize=2)
def _nearness(bins: int) -> Array:
    """f64[bins, bins]: how much the sizes of bin m say of those of bin n; 1 for itself."""
    at = np.arange(bins)
    size = np.log(np.clip(at, 1, _LARGEST)) + _GROWTH * np.maximum(at - _LARGEST, 0)
    near: Array = np.exp(-np.abs(size[:, None] - size) / _REACH)
    return near


@dataclass(frozen=True)
class Round:
    """The passes of one round of a batch.

    Attributes:
        nodes: verified in one pass of the target, the roots included.
        passes: of the drafter; the first level needs none.
        rows: nodes in each of them.
        context: tokens in the context.
        batch: requests.
    """

    nodes: int
    passes: int
    rows: int
    context: int = 0
    batch: int = 1

    @classmethod
    def of(cls, triple: tuple[int, int, int], context: int = 0, batch: int = 1) -> Round:
        """The round in which each of ``batch`` requests drafts (steps, topk, tokens)."""
        steps, topk, tokens = triple
        return cls(batch * max(tokens, 1), max(steps - 1, 0), batch * topk, context, batch)


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

    def rate(self, costs: CostProfile, batch: int = 1) -> float:
        """Tokens per second of a batch; that of plain decoding before the first round.

        What is learnt is how much faster than plain decoding rounds are, in batches of any size.
        """
        rate = self.tokens / self.seconds if self.seconds else 1 / _plain_s(costs)
        return rate * _load(costs, batch)

    def verify_s(self, costs: CostProfile, nodes: int, context: int) -> float:
        """Seconds of a verify pass, as experience corrects the profile."""
        return costs.verify_s(nodes, context) * self.verify(nodes)

    def draft_s(self, costs: CostProfile, rows: int) -> float:
        """Seconds of a pass of the drafter, corrected likewise."""
        return costs.draft_s(rows) * self.draft

    def passes_s(self, costs: CostProfile, work: Round) -> float:
        """Corrected seconds of all passes of a round; its overhead is not in them."""
        return self.verify_s(costs, work.nodes, work.context) + work.passes * self.draft_s(
            costs, work.rows
        )

    def observe(self, costs: CostProfile, plan: TreePlan, outcome: Outcome, online: bool) -> None:
        """Take in one step: by its own seconds, or (not ``online``) by the profile's."""
        levels = outcome.draft.num_levels if outcome.draft is not None else plan.num_steps
        nodes, context = outcome.num_verified + 1, outcome.context_len
        work = Round(nodes, max(levels - 1, 0), plan.width, context)
        seconds = outcome.seconds if online else {}
        if seconds:
            expected = costs.verify_s(nodes, context) * self.verify.scale
            if seconds["verify"] > _OUTLIER * expected:
                return
        self.add(costs, work, outcome.committed, seconds)

    def add(
        self, costs: CostProfile, work: Round, committed: int, seconds: Mapping[str, float]
    ) -> None:
        """Take in one round.

        Args:
            costs: the profile that is corrected.
            work: the passes of the round.
            committed: tokens of all its requests.
            seconds: of "verify" and "draft", the latter with the overhead, and of whatever else
                took time; empty = the profile's.
        """
        if not self.seconds:
            self.tokens, self.seconds = _SEED_ROUNDS, _SEED_ROUNDS * _plain_s(costs)
        profiled = costs.verify_s(work.nodes, work.context)
        drafting = work.passes * costs.draft_s(work.rows)
        spent = profiled + drafting + costs.overhead
        if seconds:
            spent = sum(seconds.values())
            if profiled > 0:
                self.verify.add(work.nodes, seconds["verify"] / profiled)
            if drafting > 0:
                drafted = max(seconds["draft"] - costs.overhead, 0.0)
                self.draft += _LEARN * (drafted / drafting - self.draft)
        decay = 0.5 ** (1 / self.half_life)
        self.tokens = self.tokens * decay + committed / _load(costs, work.batch)
        self.seconds = self.seconds * decay + spent


def _plain_s(costs: CostProfile, batch: int = 1) -> float:
    """Seconds of a round of plain decoding."""
    return max(costs.verify_s(batch) + costs.overhead, 1e-9)


def _load(costs: CostProfile, batch: int) -> float:
    """How many times the tokens per second of one request a batch yields in plain decoding."""
    return batch * _plain_s(costs) / _plain_s(costs, batch)

"""Calibrated acceptance: c(u) = P(u is followed | its parent is followed), under the rule in force.

Counted online in bins of depth, rank among siblings and logit q, with the drafter's own q as the
prior: c = (s + m q) / (n + m). Labels come only from nodes whose parent was followed; a promoted
follow counts as one, so that the estimate knows the rule's threshold by itself. Siblings are
scaled down where their sum would exceed 1. A factor per level, the lift, then makes whole paths
come out right: products of c alone fall short, as easy stretches of text are easy at every depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft

_DEPTHS, _RANKS, _LOGITS = 4, 3, 10
#: Of the ten bins of logit q, as log q.
EDGES = torch.arange(-4.0, 5.0).sigmoid().log()
_LIFTED = 8  # levels with a lift of their own
_LIFT_STEP = 0.02
_MOST_LIFT = 2.0
_LEAST, _MOST = 1e-6, 1 - 1e-6


@dataclass(frozen=True, eq=False)
class Acceptance:
    """The calibration as a plan carries it: c = base + slope q in each bin.

    Attributes:
        base: f32[120], s / (n + m) by bin; see ``bins``.
        slope: f32[120], m / (n + m).
        shift: nats added to the logit of every c, for this request.
        lift: factor on c at depth d, at index d - 1; 1 beyond its end.
    """

    base: Tensor
    slope: Tensor
    shift: float = 0.0
    lift: tuple[float, ...] = ()

    def log_of(self, logq: Tensor, depth: int) -> Tensor:
        """f32[W, k]: log c of offers at ``depth`` >= 1 with log q [W, k], likeliest first.

        Siblings are scaled down to a sum of 1 at most; offers of log q = -inf get -inf.
        """
        index = _places(depth, logq.shape[-1], logq.device) + torch.bucketize(
            logq.contiguous(), _edges(logq)
        )
        q = logq.exp()
        base, slope = self.base.to(logq.device), self.slope.to(logq.device)
        c = torch.addcmul(base[index], slope[index], q).clamp_(_LEAST, _MOST)
        if self.shift:
            c = torch.sigmoid(torch.logit(c) + self.shift)
        if depth <= len(self.lift):
            c = (c * self.lift[depth - 1]).clamp_max_(_MOST)
        c *= q > 0
        return (c / c.sum(-1, keepdim=True).clamp_min_(1.0)).log_()


def bins(logq: Tensor, depth: Tensor, rank: Tensor) -> Tensor:
    """i64[...]: depth {1, 2, 3-4, 5+} x rank {1, 2, 3+} x ten bins of logit q."""
    deep = (depth >= 2).long() + (depth >= 3) + (depth >= 5)
    place = rank.clamp_max(_RANKS - 1)
    return (deep * _RANKS + place) * _LOGITS + torch.bucketize(logq, _edges(logq))


@lru_cache(maxsize=256)
def _places(depth: int, k: int, device: torch.device) -> Tensor:
    """i64[k]: the first bin of each rank at one depth."""
    rank = torch.arange(k, device=device)
    lowest = torch.full_like(rank, -1).float() * torch.inf
    return bins(lowest, torch.full_like(rank, depth), rank)


@lru_cache(maxsize=256)
def first_bins(num_steps: int, topk: int) -> Tensor:
    """i32[num_steps, topk]: the first bin of each depth and rank; log q adds the edges below it."""
    rows = [_places(depth, topk, torch.device("cpu")) for depth in range(1, num_steps + 1)]
    return torch.stack(rows).to(torch.int32)


def _edges(like: Tensor) -> Tensor:
    return EDGES if like.device.type == "cpu" else EDGES.to(like.device)


@dataclass
class Calibration:
    """The counts behind ``Acceptance``, and how well its predictions came true.

    Attributes:
        prior: m.
        decay: of all counts, per round.
        lift: factor on c by depth.
        predicted, followed, weight: sums by tenth of predicted c, for the calibration error.
    """

    prior: float = 20.0
    decay: float = 0.999
    lift: list[float] = field(default_factory=lambda: [1.0] * _LIFTED)
    follows: Tensor = field(default_factory=lambda: torch.zeros(_DEPTHS * _RANKS * _LOGITS))
    labels: Tensor = field(default_factory=lambda: torch.zeros(_DEPTHS * _RANKS * _LOGITS))
    predicted: Tensor = field(default_factory=lambda: torch.zeros(10, dtype=torch.float64))
    followed: Tensor = field(default_factory=lambda: torch.zeros(10, dtype=torch.float64))
    weight: Tensor = field(default_factory=lambda: torch.zeros(10, dtype=torch.float64))

    def acceptance(self, shift: float = 0.0) -> Acceptance:
        """The calibration as it stands; later labels do not change it."""
        weight = self.labels + self.prior
        return Acceptance(self.follows / weight, self.prior / weight, shift, tuple(self.lift))

    def observe(self, draft: Draft, path: list[int]) -> float:
        """Take in the nodes under ``path``, whose followed nodes all have known successors.

        Returns the sum of (followed - predicted) over them, the slope of the log likelihood in a
        common shift of all logits.
        """
        tree = draft.tree
        if draft.rank is None or draft.score is None or not path:
            return 0.0
        # A few numbers per node, counted on the host wherever they were drafted.
        parent, depth, logq = tree.parent.cpu(), tree.depth.cpu(), tree.logq.cpu()
        rank, score = draft.rank.cpu(), draft.score.cpu()
        self._lift(depth, score, path)
        on_path = torch.zeros(tree.num_nodes, dtype=torch.bool)
        on_path[path] = True
        judged = ((parent >= 0) & on_path[parent.clamp_min(0)]).nonzero().squeeze(-1)
        self.follows *= self.decay
        self.labels *= self.decay
        if not judged.numel():
            return 0.0
        label = on_path[judged].float()
        step = score[judged] - score[parent[judged]]
        guess = step.exp().clamp(0.0, 1.0)
        index = bins(logq[judged], depth[judged], rank[judged])
        self.follows.index_add_(0, index, label)
        self.labels.index_add_(0, index, torch.ones_like(label))
        tenth = (guess * 10).long().clamp_max(9)
        self.predicted.index_add_(0, tenth, guess.double())
        self.followed.index_add_(0, tenth, label.double())
        self.weight.index_add_(0, tenth, torch.ones_like(label, dtype=torch.float64))
        return float((label - guess).sum())

    def _lift(self, depths: Tensor, score: Tensor, path: list[int]) -> None:
        """Move each level's lift until as many whole paths are followed as were predicted.

        Bins of c cannot see that an easy stretch of text is easy at every depth: products of c fall
        short of it.
        """
        expected = torch.zeros(int(depths.max()) + 1)
        expected.index_add_(0, depths, score.exp())
        for depth, guess in enumerate(expected.tolist()[1 : _LIFTED + 1], 1):
            moved = self.lift[depth - 1] * math.exp(_LIFT_STEP * ((depth < len(path)) - guess))
            self.lift[depth - 1] = min(_MOST_LIFT, max(1 / _MOST_LIFT, moved))

    @property
    def error(self) -> float | None:
        """Expected calibration error of the predictions made so far, by tenths; None before any."""
        total = float(self.weight.sum())
        return float((self.followed - self.predicted).abs().sum()) / total if total else None

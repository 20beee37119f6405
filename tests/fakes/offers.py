"""Growing trees from rows of q, whose tokens say where they were offered."""

from __future__ import annotations

from typing import Any

import torch

from adaptivespec.draft.growth import Growth
from adaptivespec.policy.plan import TreePlan

ROOT = 9
Level = list[list[float]]


def grow(plan: TreePlan, *levels: Level, **flags: Any) -> Growth:
    """Offer `levels` of q, a row per frontier node; offer i of level d holds token 100 d + i."""
    growth = Growth(ROOT, plan, **flags)
    for number, level in enumerate(levels, 1):
        q = torch.tensor(level)
        assert q.shape[0] == growth.width
        growth.expand(100 * number + torch.arange(q.numel()).view(q.shape), q.log())
        if growth.stopped:
            break
    return growth


def tokens(growth: Growth) -> list[int]:
    return growth.draft().tree.validate().token.tolist()


def scores(growth: Growth) -> list[float]:
    score = growth.draft().score
    assert score is not None
    return score.exp().tolist()


FIRST: Level = [[0.5, 0.3, 0.1]]
#: Under 0.5 and 0.3: path probabilities .2 .1 .05 and .27 .015 .003.
SECOND: Level = [[0.4, 0.2, 0.1], [0.9, 0.05, 0.01]]

"""TALON's confidence-gated tree."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field

from adaptivespec.policy.base import (
    MOST_NODES,
    MOST_STEPS,
    MOST_TOPK,
    Policy,
    PolicyOptions,
    TreePlan,
)
from adaptivespec.policy.plan import Keep, Stop


class TalonOptions(PolicyOptions):
    """Options of TALON; 16 nodes of topk 4 suit a CPU."""

    num_draft_tokens: int = Field(
        60, ge=2, le=MOST_NODES, description="nodes verified, root included"
    )
    topk: int = Field(10, ge=1, le=MOST_TOPK, description="children tried per node")
    mu: float = Field(0.03, ge=0, le=1, description="share of the level's best p that a node needs")
    num_steps: int = Field(8, ge=1, le=MOST_STEPS, description="most levels")


class TalonPolicy(Policy):
    """Each level keeps the nodes near its best; levels are added until the tree is full.

    With p(u) the product of q along a node's path, a level keeps {u : p(u) >= mu max p}, and only
    those: a confident level is narrow and the tree deep, an unsure one wide and the tree shallow.
    Growing ends with num_draft_tokens nodes or num_steps levels. Where the last level brings too
    many, those of smallest p in the whole tree go. The first level is kept whole.
    (TALON, arXiv 2601.07353.)
    """

    name: ClassVar[str] = "talon"
    formula: ClassVar[str] = "a level keeps p(u) >= mu max p; grow until n nodes"
    source: ClassVar[str] = "TALON 2601.07353"
    Options: ClassVar[type[PolicyOptions]] = TalonOptions

    def largest(self) -> TreePlan:
        """The rule itself."""
        o = cast(TalonOptions, self.options)
        return TreePlan(
            o.num_steps,
            o.topk,
            o.num_draft_tokens,
            keep=Keep(width=o.num_draft_tokens - 1, relative=o.mu, drop=True, first=2),
            stop=Stop(full=True),
        )

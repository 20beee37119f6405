"""OPT-Tree: grow while the expected accept length grows."""

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


class OptTreeOptions(PolicyOptions):
    """Options of OPT-Tree; the size suits a CPU (the paper: 50 to 60 on a GPU)."""

    num_draft_tokens: int = Field(
        16, ge=2, le=MOST_NODES, description="nodes verified, root included"
    )
    topk: int = Field(10, ge=1, le=MOST_TOPK, description="children tried per node")
    threshold: float = Field(
        0.6, ge=0, le=1, description="least growth of the expected accept length per level, tokens"
    )
    num_steps: int = Field(10, ge=1, le=MOST_STEPS, description="most levels")


class OptTreePolicy(Policy):
    """The tree of largest expected accept length, grown while another level adds enough.

    With n = num_draft_tokens, each level expands its n - 1 nodes of largest path probability p(u);
    after it E = the sum of the n - 1 largest p among all candidates. Growing ends when E grew by
    no more than the threshold, or after num_steps levels; the n - 1 best are verified. The paper
    tries n children per node; here topk, as the rest is hardly ever among the best.

    A level adds at most 1 to E, and the first adds the mass of the root's topk children. At 0.6 a
    head that is right half of the time mostly stops after two or three levels, and after the first
    where the root is unsure. Tune the threshold first: lower is deeper, and pays where a pass of
    the drafter is cheap. (Wang et al., arXiv 2406.17276.)
    """

    name: ClassVar[str] = "opt_tree"
    formula: ClassVar[str] = "E = sum of the n - 1 best p(u); stop when a level adds <= threshold"
    source: ClassVar[str] = "OPT-Tree 2406.17276"
    Options: ClassVar[type[PolicyOptions]] = OptTreeOptions

    def largest(self) -> TreePlan:
        """The rule itself."""
        o = cast(OptTreeOptions, self.options)
        return TreePlan(
            o.num_steps,
            o.topk,
            o.num_draft_tokens,
            keep=Keep(width=o.num_draft_tokens - 1),
            stop=Stop(min_gain=o.threshold),
        )

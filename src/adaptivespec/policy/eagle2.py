"""The dynamic tree of EAGLE-2."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field

from adaptivespec.policy.base import (
    MOST_NODES,
    MOST_STEPS,
    MOST_TOPK,
    Policy,
    PolicyOptions,
    Signals,
    TreePlan,
)


class Eagle2Options(PolicyOptions):
    """Options of the dynamic tree; the defaults suit a CPU (EAGLE-2 on a GPU: 7, 10, 60)."""

    num_steps: int = Field(5, ge=1, le=MOST_STEPS, description="draft passes")
    topk: int = Field(4, ge=1, le=MOST_TOPK, description="frontier, and children of each node")
    num_draft_tokens: int = Field(
        16, ge=0, le=MOST_NODES, description="nodes verified, root included"
    )


class Eagle2Policy(Policy):
    """EAGLE-2's dynamic tree: expand the topk likeliest nodes per level, verify the best of all.

    Every pass gives each of the topk frontier nodes topk children; the topk of largest cumulative
    log q are the next frontier, all stay candidates, and the best num_draft_tokens - 1 of them by
    cumulative log q are verified. The shape adapts through the drafter's confidence; the three
    numbers stay fixed. (arXiv 2406.16858.)
    """

    name: ClassVar[str] = "eagle2"
    Options: ClassVar[type[PolicyOptions]] = Eagle2Options

    def propose(self, signals: Signals) -> TreePlan:
        """Always the same three numbers."""
        return self.largest()

    def largest(self) -> TreePlan:
        """The three numbers."""
        options = cast(Eagle2Options, self.options)
        return TreePlan(options.num_steps, options.topk, options.num_draft_tokens)

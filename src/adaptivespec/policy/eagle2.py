"""The dynamic tree of EAGLE-2."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from adaptivespec.policy.base import MOST_NODES, PolicyOptions
from adaptivespec.policy.static import StaticOptions, StaticPolicy


class Eagle2Options(StaticOptions):
    """Options of the dynamic tree; the defaults suit a CPU (EAGLE-2 on a GPU: 7, 10, 60)."""

    num_draft_tokens: int = Field(
        16, ge=0, le=MOST_NODES, description="nodes verified, root included"
    )


class Eagle2Policy(StaticPolicy):
    """EAGLE-2's dynamic tree: expand the topk likeliest nodes per level, verify the best of all.

    Every pass gives each of the topk frontier nodes topk children; the topk of largest cumulative
    log q are the next frontier, all stay candidates, and the best num_draft_tokens - 1 of them by
    cumulative log q are verified. The shape adapts through the drafter's confidence; the three
    numbers stay fixed, so the plan is that of ``static`` with a larger tree. (arXiv 2406.16858.)
    """

    name: ClassVar[str] = "eagle2"
    formula: ClassVar[str] = "expand the topk best per level; verify the best n by product of q"
    source: ClassVar[str] = "EAGLE-2 2406.16858"
    Options: ClassVar[type[PolicyOptions]] = Eagle2Options

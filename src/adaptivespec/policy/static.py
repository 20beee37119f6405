"""A fixed shape."""

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


class StaticOptions(PolicyOptions):
    """Options of the fixed shape."""

    num_steps: int = Field(5, ge=0, le=MOST_STEPS, description="draft passes")
    topk: int = Field(4, ge=1, le=MOST_TOPK, description="children per frontier node")
    num_draft_tokens: int = Field(
        8, ge=0, le=MOST_NODES, description="nodes verified, root included"
    )


class StaticPolicy(Policy):
    """The same (num_steps, topk, num_draft_tokens) at every step.

    (EAGLE-3 as served by SGLang, arXiv 2503.01840.)
    """

    name: ClassVar[str] = "static"
    formula: ClassVar[str] = "(num_steps, topk, num_draft_tokens) at every step"
    source: ClassVar[str] = "EAGLE-3 2503.01840, SGLang"
    Options: ClassVar[type[PolicyOptions]] = StaticOptions

    def largest(self) -> TreePlan:
        """The shape itself."""
        options = cast(StaticOptions, self.options)
        return TreePlan(options.num_steps, options.topk, options.num_draft_tokens)

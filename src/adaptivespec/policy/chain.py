"""A chain of drafts: one child per level."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field

from adaptivespec.policy.base import MOST_STEPS, Policy, PolicyOptions, TreePlan
from adaptivespec.policy.plan import Stop


class ChainOptions(PolicyOptions):
    """Options of the chain."""

    num_steps: int = Field(5, ge=1, le=MOST_STEPS, description="tokens drafted per step")
    min_confidence: float = Field(
        0.0, ge=0, le=1, description="stop drafting below this probability (0.4 is usual)"
    )


class ChainPolicy(Policy):
    """One child per level, num_steps levels; stops early when the drafter is unsure.

    (Leviathan et al., arXiv 2211.17192; the early stop as in Hugging Face's assisted generation.)
    """

    name: ClassVar[str] = "chain"
    formula: ClassVar[str] = "num_steps levels of one child; stop at q < min_confidence"
    source: ClassVar[str] = "Leviathan et al. 2211.17192"
    tree: ClassVar[bool] = False
    Options: ClassVar[type[PolicyOptions]] = ChainOptions

    def largest(self) -> TreePlan:
        """The chain itself."""
        options = cast(ChainOptions, self.options)
        return TreePlan(
            options.num_steps, 1, options.num_steps + 1, stop=Stop(options.min_confidence)
        )

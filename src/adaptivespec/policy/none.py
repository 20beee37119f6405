"""Plain decoding."""

from __future__ import annotations

from typing import ClassVar

from adaptivespec.policy.base import NOTHING, Policy, TreePlan


class NonePolicy(Policy):
    """Draft nothing: plain decoding, one token a step."""

    name: ClassVar[str] = "none"
    formula: ClassVar[str] = "the root alone"
    source: ClassVar[str] = "plain decoding"
    tree: ClassVar[bool] = False
    needs_draft: ClassVar[bool] = False

    def largest(self) -> TreePlan:
        """The root alone."""
        return NOTHING

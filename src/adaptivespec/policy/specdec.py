"""SpecDec++ with the drafter's own confidence."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field

from adaptivespec.policy.base import MOST_STEPS, Policy, PolicyOptions, TreePlan
from adaptivespec.policy.plan import Stop


class SpecDecOptions(PolicyOptions):
    """Options of the candidate length."""

    num_steps: int = Field(8, ge=1, le=MOST_STEPS, description="most tokens drafted per step")
    threshold: float = Field(
        0.7, ge=0, le=1, description="stop when P(something was rejected) exceeds this; 1 = never"
    )


class SpecDecPolicy(Policy):
    """A chain that ends when some token of it was probably rejected already.

    P(something was rejected) = 1 - prod q over the chain. SpecDec++ predicts each factor with a
    trained head; here it is the drafter's q. The token that crosses the threshold is still
    verified, as its draft is paid for. (Huang et al., arXiv 2405.19715.)
    """

    name: ClassVar[str] = "specdec"
    formula: ClassVar[str] = "a chain; stop at 1 - prod q > threshold"
    source: ClassVar[str] = "SpecDec++ 2405.19715"
    tree: ClassVar[bool] = False
    Options: ClassVar[type[PolicyOptions]] = SpecDecOptions

    def largest(self) -> TreePlan:
        """The rule itself."""
        o = cast(SpecDecOptions, self.options)
        return TreePlan(o.num_steps, 1, o.num_steps + 1, stop=Stop(min_path=1 - o.threshold))

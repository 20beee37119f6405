"""A fixed sparse tree."""

from __future__ import annotations

from typing import Annotated, ClassVar, cast

from pydantic import Field, field_validator

from adaptivespec.policy.base import MOST_TOPK, Policy, PolicyOptions, TreePlan

Rank = Annotated[int, Field(ge=0, lt=MOST_TOPK)]

#: The 15 positions of largest product of positional acceptance, as ``sequoia`` has it by default.
POSITIONS = (
    (0,), (1,), (2,), (3,),
    (0, 0), (0, 1), (0, 2), (1, 0), (2, 0),
    (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0),
    (0, 0, 0, 0),
    (0, 0, 0, 0, 0),
)  # fmt: skip


class MedusaOptions(PolicyOptions):
    """Options of the sparse tree."""

    positions: tuple[tuple[Rank, ...], ...] = Field(
        POSITIONS, min_length=1, description="nodes as ranks of their paths, parents first"
    )

    @field_validator("positions")
    @classmethod
    def _legal(cls, positions: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        TreePlan.fixed(positions)
        return positions


class MedusaPolicy(Policy):
    """A fixed sparse tree: the same positions at every step, whatever the drafter says.

    A position is the ranks of its path: [0, 2] is the third child of the first child of the root.
    The default has 16 nodes with the root and 5 levels. Like Medusa's it was made greedily: the
    position of largest estimated probability of being followed, the product over its path of the
    positional acceptance, was added until there were 15; see ``sequoia`` for the measurement.
    (Cai et al., arXiv 2401.10774, section 2.3.3.)
    """

    name: ClassVar[str] = "medusa"
    formula: ClassVar[str] = "a fixed list of positions"
    source: ClassVar[str] = "Medusa 2401.10774"
    Options: ClassVar[type[PolicyOptions]] = MedusaOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._plan = TreePlan.fixed(cast(MedusaOptions, self.options).positions)

    def largest(self) -> TreePlan:
        """The positions themselves."""
        return self._plan

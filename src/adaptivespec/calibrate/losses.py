"""What a lossy answer costs, against the strict answer to the same prompt: losses in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["LOSSES", "LossKind", "Pair", "losses_of"]

LossKind = Literal["harm", "disagreement", "drop"]

LOSSES: dict[str, str] = {
    "harm": "strict is right and the lossy answer is wrong",
    "disagreement": "the final answer is not that of strict",
    "drop": "accuracy lost, net of answers that only the lossy rule gets right",
}
"""Kinds of loss, and what each counts."""


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt.

    Attributes:
        strict_right, lossy_right: by the task's grader; None where there is none.
        agrees: whether the final answers are the same.
    """

    strict_right: bool | None
    lossy_right: bool | None
    agrees: bool

    @property
    def harmed(self) -> bool:
        """Strict is right, the lossy answer is wrong."""
        return bool(self.strict_right) and not self.lossy_right

    @property
    def helped(self) -> bool:
        """The lossy answer is right, strict is wrong."""
        return bool(self.lossy_right) and not self.strict_right


def losses_of(pairs: Sequence[Pair], kind: LossKind) -> list[float]:
    """The loss of every pair, in the order given.

    harm, disagreement: 1 or 0. drop: (1 + strict_right - lossy_right) / 2, so that its mean is
    (1 + drop) / 2; a pair without a change has 1/2.
    """
    if kind == "disagreement":
        return [float(not pair.agrees) for pair in pairs]
    if kind == "harm":
        return [float(pair.harmed) for pair in pairs]
    return [(1 + pair.harmed - pair.helped) / 2 for pair in pairs]

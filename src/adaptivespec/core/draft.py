"""What a drafter delivers for one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from adaptivespec.core.tree import DraftTree


@dataclass(frozen=True, eq=False)
class Draft:
    """A tree and how it came about.

    Attributes:
        tree: the N nodes to verify, the root first.
        rank: i64[N], a node's place among the children offered with it, 0 = likeliest; 0 at the
            root. None where nothing was drafted.
        score: f32[N], log of the path probability the tree was chosen by (q, or calibrated
            acceptance), in nats; 0 at the root.
        num_candidates: offers the nodes were chosen from.
        num_levels: levels that were grown; the first needs no pass of the drafter of its own.
        reason: why the tree is what it is, for traces: ``stopped`` (what ended the growth), and
            for priced trees ``gain`` (expected tokens), ``price`` (in tokens) and ``nodes``.
    """

    tree: DraftTree
    rank: Tensor | None = None
    score: Tensor | None = None
    num_candidates: int = 0
    num_levels: int = 0
    reason: Mapping[str, float | str] = field(default_factory=dict)

"""Sequoia's tree: the best shape for measured positional acceptance and measured costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Annotated, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from adaptivespec.policy.base import MOST_STEPS, Policy, PolicyOptions, Signals, TreePlan
from adaptivespec.policy.costs import CostProfile

Node = tuple[int, ...]  # the ranks of its path
Probability = Annotated[float, Field(ge=0, le=1)]

#: p_b of the shipped head for SmolLM2-135M-Instruct: greedy, bfloat16, strict rule, 64 tokens after
#: each of the first 10 questions of GSM8K test and 5 of MT-bench; 813 followed nodes to depth 4.
#: Ranks 6 and 7 are pooled, so that the sequence does not rise.
ACCEPTANCE = (0.523, 0.118, 0.055, 0.044, 0.025, 0.018, 0.018, 0.014)
_NODES, _STEPS = 64, 8  # most that the hardware-aware choice considers
_FIXED_NODES = 16  # where no costs are known


class SequoiaOptions(PolicyOptions):
    """Options of Sequoia."""

    acceptance: tuple[Probability, ...] = Field(
        ACCEPTANCE,
        min_length=1,
        max_length=16,
        description="P(the b-th likeliest child of a followed node is followed)",
    )
    num_draft_tokens: int | None = Field(
        None,
        ge=2,
        le=512,
        description="nodes verified, root included; null = the best for this machine, at most 64",
    )
    num_steps: int | None = Field(
        None, ge=1, le=MOST_STEPS, description="most levels; null = the best up to 8"
    )

    @field_validator("acceptance")
    @classmethod
    def _disjoint(cls, acceptance: tuple[float, ...]) -> tuple[float, ...]:
        if sum(acceptance) > 1 + 1e-6:
            raise ValueError(
                f"must sum to at most 1, as only one child is followed; got {sum(acceptance):g}"
            )
        return acceptance


class SequoiaPolicy(Policy):
    """The tree of most expected tokens under positional acceptance; its size suits the machine.

    T(m, l, b), the expected tokens of a tree of at most m nodes and l levels whose root has at
    most b children, is max_y T(y, l, b - 1) + p_b max_b' T(m - y, l - 1, b'). With costs, (m, l)
    minimises seconds / T: those of one verify pass over m nodes and of l - 1 passes of the drafter
    over the nodes that have children, as the first level is free; m = 1 is plain decoding. Without
    costs m = 16 and l = 8. The tree never looks at the drafter's confidence.
    (Chen et al., arXiv 2402.12374, sections 3.1 and 3.3.)
    """

    name: ClassVar[str] = "sequoia"
    formula: ClassVar[str] = "T(m,l,b) = max_y T(y,l,b-1) + p_b max T(m-y,l-1); min seconds / T"
    source: ClassVar[str] = "Sequoia 2402.12374"
    Options: ClassVar[type[PolicyOptions]] = SequoiaOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(SequoiaOptions, self.options)

    @property
    def needs_costs(self) -> bool:
        """True when the machine decides on the size."""
        return self._opts.num_draft_tokens is None or self._opts.num_steps is None

    @property
    def fixed_shape(self) -> bool:
        """Always: ``largest`` may be a bound only, but every plan is a fixed tree."""
        return True

    def propose(self, signals: Signals) -> TreePlan:
        """Always the same tree."""
        o = self._opts
        return best_tree(o.acceptance, o.num_draft_tokens, o.num_steps, self.costs)

    def largest(self) -> TreePlan:
        """The tree, or bounds on it where the machine decides."""
        o = self._opts
        if not self.needs_costs:
            return best_tree(o.acceptance, o.num_draft_tokens, o.num_steps, None)
        return TreePlan(o.num_steps or _STEPS, len(o.acceptance), o.num_draft_tokens or _NODES)


@lru_cache(maxsize=64)
def best_tree(
    acceptance: tuple[float, ...],
    num_draft_tokens: int | None,
    num_steps: int | None,
    costs: CostProfile | None,
) -> TreePlan:
    """The plan of the tree of fewest seconds per expected token; None = to be chosen."""
    table = Table(
        acceptance,
        num_draft_tokens or (_FIXED_NODES if costs is None else _NODES),
        num_steps or _STEPS,
    )
    if costs is None:
        return TreePlan.fixed(table.tree(table.nodes, table.levels))
    sizes = [num_draft_tokens] if num_draft_tokens else range(1, _NODES + 1)
    depths = [num_steps] if num_steps else range(1, _STEPS + 1)
    shapes = [(table.tree(*shape), table.tokens(*shape)) for shape in product(sizes, depths)]
    best, _ = min(shapes, key=lambda shape: seconds(costs, shape[0]) / shape[1])
    return TreePlan.fixed(best)


def seconds(costs: CostProfile, tree: tuple[Node, ...]) -> float:
    """A round with this tree: each level below the first needs a pass over its parents."""
    rows = Counter(len(parent) for parent in {node[:-1] for node in tree} if parent)
    return costs.round_s([rows[depth] for depth in sorted(rows)], len(tree) + 1)


class Table:
    """The dynamic programme for trees of at most ``nodes`` nodes and ``levels`` levels.

    T never falls with b, so the best b' is that of all children. ``best[l, m]`` is T(m, l, all),
    ``left[l, b, m]`` the y of T(m, l, b + 1): nodes that stay for the root and earlier children.
    """

    def __init__(self, acceptance: tuple[float, ...], nodes: int, levels: int) -> None:
        self.nodes, self.levels, self.ranks = nodes, levels, len(acceptance)
        size = np.arange(nodes + 1)
        rest = size[:, None] - size  # m - y at [m, y]
        legal = (rest >= 0) & (size > 0)  # the root always stays
        self.best: NDArray[np.float64] = np.zeros((levels + 1, nodes + 1))
        self.best[0, 1:] = 1.0
        self.left = np.zeros((levels + 1, self.ranks, nodes + 1), dtype=np.int64)
        for level in range(1, levels + 1):
            total = self.best[0]  # no children
            below = self.best[level - 1][np.maximum(rest, 0)]
            for b, p in enumerate(acceptance):
                value = np.where(legal, total + p * below, -np.inf)
                # Of equal splits the one with the smallest child, so that no node is idle.
                self.left[level, b] = nodes - value[:, ::-1].argmax(1)
                total = value.max(1)
                total[0] = 0.0
            self.best[level] = total

    def tokens(self, nodes: int, levels: int) -> float:
        """T: expected tokens of a step with the best such tree, the target's own included."""
        return float(self.best[levels, nodes])

    def tree(self, nodes: int, levels: int) -> tuple[Node, ...]:
        """The positions of that tree, level by level."""
        return tuple(sorted(self._below((), nodes, levels), key=lambda node: (len(node), node)))

    def _below(self, path: Node, nodes: int, levels: int) -> Iterator[Node]:
        if levels == 0:
            return
        for b in range(self.ranks - 1, -1, -1):
            left = int(self.left[levels, b, nodes])
            if left < nodes:
                child = (*path, b)
                yield child
                yield from self._below(child, nodes - left, levels - 1)
            nodes = left

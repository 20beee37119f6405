"""A plan: the tree to draft at one step, as data.

A policy says what it wants before a step and nothing during it: no callback per node or level. Any
backend that can grow a tree can carry out a plan; ``draft.growth`` does it with tensors, a level at
a time. Scores are path probabilities: the product over a node's path of the drafter's q, or of the
calibrated acceptance c where the plan brings one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.policy.acceptance import Acceptance

MOST_STEPS = 64
MOST_TOPK = 64
MOST_NODES = 65536


def _within(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"must be in [{low}, {high}], got {value!r}", field=field)


@dataclass(frozen=True)
class Keep:
    """Which offered nodes of a level are expanded next: the best by score, and of those ...

    Attributes:
        width: at most so many, in [1, 65536]; None = the plan's topk.
        relative: only those with a score of at least this share of the level's best, in [0, 1].
        absolute: only those with a score of at least this, in [0, 1].
        drop: nodes that are not kept are no candidates for the tree either.
        first: the first level where relative, absolute and drop apply, >= 1.
    """

    width: int | None = None
    relative: float = 0.0
    absolute: float = 0.0
    drop: bool = False
    first: int = 1

    def __post_init__(self) -> None:
        if self.width is not None:
            _within("width", self.width, 1, MOST_NODES)
        _within("relative", self.relative, 0, 1)
        _within("absolute", self.absolute, 0, 1)
        _within("first", self.first, 1, MOST_STEPS)


@dataclass(frozen=True)
class Lookahead:
    """The priced stop: are the next one, two, ... passes worth their time?

    Under a frontier node of score a the next levels are expected to hold nodes of score a h, a h^2,
    ...; each gains what it has above the bar, the score that a node needs to be in the tree. The
    bar is the least score that is in it now or the price of one node more, whichever is less.

    Attributes:
        follow: h for the nodes at depth d, at index d - 1: how often some child is followed once
            its parent is; the last entry serves deeper levels.
        price: what j more passes cost, in tokens, at index j - 1.
    """

    follow: tuple[float, ...]
    price: tuple[float, ...]

    def powers(self, depth: int) -> list[float]:
        """h, h^2, ... of the levels from ``depth`` on."""
        h = self.follow[min(depth, len(self.follow)) - 1]
        return [h**j for j in range(1, len(self.price) + 1)]


@dataclass(frozen=True)
class Stop:
    """When growing ends before num_steps; everything is off by default.

    Attributes:
        min_confidence: the level's best new node has a conditional q below this, in [0, 1].
        min_path: the level's best new node has a score below this, in [0, 1].
        min_gain: the sum of the best num_draft_tokens - 1 scores grew by no more than this over the
            level, in tokens; None = off.
        full: there are num_draft_tokens - 1 candidates.
        lookahead: none of the next levels is worth its price.
    """

    min_confidence: float = 0.0
    min_path: float = 0.0
    min_gain: float | None = None
    full: bool = False
    lookahead: Lookahead | None = None

    def __post_init__(self) -> None:
        _within("min_confidence", self.min_confidence, 0, 1)
        _within("min_path", self.min_path, 0, 1)
        if self.min_gain is not None:
            _within("min_gain", self.min_gain, 0, MOST_NODES)


@dataclass(frozen=True)
class TreePlan:
    """A tree to draft. It asks at most: min(num_draft_tokens, available) nodes are delivered.

    Attributes:
        num_steps: levels below the root, in [0, 64]; 0 = draft nothing.
        topk: children tried for each expanded node, in [1, 64].
        num_draft_tokens: nodes verified, the root included, in [0, 65536]; 0 and 1 = draft nothing.
        keep: which nodes of a level are expanded.
        stop: when to end early.
        prices: (size, price in tokens) of every size that may be verified, root included, sizes
            rising; the tree gets the size of largest 1 + sum of scores - price. Empty = always
            num_draft_tokens.
        acceptance: turns the drafter's q into calibrated acceptance; None = scores are made of q.
        positions: a fixed tree in place of all of the above: each node is the ranks of its path,
            (0, 2) being the third child of the first child of the root. Parents come first.
    """

    num_steps: int
    topk: int
    num_draft_tokens: int
    keep: Keep = Keep()
    stop: Stop = Stop()
    prices: tuple[tuple[int, float], ...] = ()
    acceptance: Acceptance | None = None
    positions: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        _within("num_steps", self.num_steps, 0, MOST_STEPS)
        _within("topk", self.topk, 1, MOST_TOPK)
        _within("num_draft_tokens", self.num_draft_tokens, 0, MOST_NODES)
        before = 0
        for size, price in self.prices:
            if size <= before or not math.isfinite(price):
                raise ConfigError(
                    f"sizes must rise from 1 and prices be finite, got {size} at {price!r}",
                    field="prices",
                )
            before = size

    @classmethod
    def fixed(cls, positions: tuple[tuple[int, ...], ...]) -> TreePlan:
        """The plan of a fixed tree; ConfigError unless every parent stands before its child."""
        known: set[tuple[int, ...]] = {()}
        for node in positions:
            if not node or node[-1] < 0 or node[:-1] not in known or node in known:
                raise ConfigError(
                    f"{list(node)} must be new and come after its parent", field="positions"
                )
            known.add(node)
        depth = max((len(node) for node in positions), default=0)
        topk = max((node[-1] for node in positions), default=0) + 1
        return cls(depth, topk, len(positions) + 1, positions=positions)

    @property
    def triple(self) -> tuple[int, int, int]:
        """(num_steps, topk, num_draft_tokens)."""
        return self.num_steps, self.topk, self.num_draft_tokens

    @property
    def draft_nothing(self) -> bool:
        """True when the tree is the root alone: plain decoding."""
        return self.num_steps == 0 or self.num_draft_tokens <= 1

    @property
    def width(self) -> int:
        """Most nodes expanded in one level."""
        if self.positions:
            return max(1, len(self.positions))
        return self.keep.width or self.topk

    @property
    def available(self) -> int:
        """Nodes a tree of this depth and width can have, the root included."""
        if self.positions:
            return 1 + sum(len(node) <= self.num_steps for node in self.positions)
        return available_nodes(self.num_steps, self.topk, self.width)

    @property
    def fixed_shape(self) -> bool:
        """True when drawn drafts may fill it: a plain chain, or a fixed tree of whole families.

        Then the shape cannot depend on what is drawn, and siblings are those drawn first, in order.
        """
        if self.positions:
            places = {node: place for place, node in enumerate(self.positions)}
            elder = ((*node[:-1], node[-1] - 1) for node in self.positions)
            return all(
                node[-1] == 0 or places.get(before, len(places)) < places[node]
                for node, before in zip(self.positions, elder, strict=True)
            )
        plain = self.stop == Stop() and self.keep == Keep() and not self.prices
        return self.topk == 1 and plain

    def capped(self, remaining: int) -> TreePlan:
        """No deeper than ``remaining`` tokens can use: every step ends with one of its own."""
        levels = max(0, remaining - 1)
        return self if self.num_steps <= levels else replace(self, num_steps=levels)

    def within(self, most: int) -> TreePlan:
        """Of at most ``most`` nodes, the root included, and no deeper than a chain of them."""
        if self.num_draft_tokens <= most:
            return self
        return replace(
            self,
            num_steps=min(self.num_steps, most - 1),
            num_draft_tokens=most,
            prices=tuple(pair for pair in self.prices if pair[0] <= most),
            positions=self.positions[: most - 1],
        )


NOTHING = TreePlan(0, 1, 1)
"""The plan of plain decoding."""


def fillable(triple: tuple[int, int, int]) -> TreePlan:
    """The plan of a triple; ValueError when it asks for more nodes than its shape has.

    A triple that drafts nothing may ask for anything.
    """
    steps, topk, tokens = triple
    plan = TreePlan(steps, topk, tokens)  # bounds
    if not plan.draft_nothing and tokens > plan.available:
        raise ValueError(
            f"num_draft_tokens must be in [2, {plan.available}] for {steps} steps of topk {topk}, "
            f"got {tokens}"
        )
    return plan


def available_nodes(num_steps: int, topk: int, width: int | None = None) -> int:
    """Root, ``topk`` nodes on level 1, width * topk candidates at most on each deeper one."""
    total, expanded = 1, 1
    for _ in range(num_steps):
        total += expanded * topk
        expanded = min(expanded * topk, width or topk)
    return total

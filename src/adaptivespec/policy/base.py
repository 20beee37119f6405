"""The contract of a draft policy: which tree to draft next, from signals the last step left.

A policy belongs to one request at a time: ``begin`` resets what it remembers. ``plan`` changes
nothing; ``observe`` is where it learns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import spec_of

MOST_STEPS = 64
MOST_TOPK = 64
MOST_NODES = 65536


@dataclass(frozen=True)
class TreePlan:
    """A shape to draft. It asks at most: min(num_draft_tokens, available) nodes are delivered.

    Attributes:
        num_steps: levels below the root, in [0, 64]; 0 = draft nothing.
        topk: children tried for each frontier node, in [1, 64].
        num_draft_tokens: nodes verified, the root included, in [0, 65536]; 0 and 1 = draft nothing.
        min_confidence: stop drafting after a level whose best new token has a probability below
            this, in [0, 1].
    """

    num_steps: int
    topk: int
    num_draft_tokens: int
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        for field, low, high in (
            ("num_steps", 0, MOST_STEPS),
            ("topk", 1, MOST_TOPK),
            ("num_draft_tokens", 0, MOST_NODES),
            ("min_confidence", 0, 1),
        ):
            value = getattr(self, field)
            if not low <= value <= high:
                raise ConfigError(f"must be in [{low}, {high}], got {value!r}", field=field)

    @property
    def triple(self) -> tuple[int, int, int]:
        """(num_steps, topk, num_draft_tokens)."""
        return self.num_steps, self.topk, self.num_draft_tokens

    @property
    def draft_nothing(self) -> bool:
        """True when the tree is the root alone: plain decoding."""
        return self.num_steps == 0 or self.num_draft_tokens <= 1

    @property
    def available(self) -> int:
        """Nodes a tree of this depth and width can have, the root included."""
        return available_nodes(self.num_steps, self.topk)

    def capped(self, remaining: int) -> TreePlan:
        """No deeper than ``remaining`` tokens can use: every step ends with one of its own."""
        levels = max(0, remaining - 1)
        return self if self.num_steps <= levels else replace(self, num_steps=levels)


NOTHING = TreePlan(0, 1, 1)
"""The plan of plain decoding."""


def available_nodes(num_steps: int, topk: int) -> int:
    """Root, ``topk`` nodes on level 1, topk * topk candidates on each deeper one (EAGLE-2)."""
    return 1 if num_steps == 0 else 1 + topk + (num_steps - 1) * topk * topk


@dataclass(frozen=True)
class Signals:
    """What is known before a step is drafted.

    Attributes:
        root_confidence: the drafter's top-1 probability at the root, in [0, 1].
        output_len: output tokens so far.
        remaining: output tokens still allowed, >= 1.
        context_len: tokens in the context, prompt included.
    """

    root_confidence: float
    output_len: int = 0
    remaining: int = MOST_NODES
    context_len: int = 0


class PolicyOptions(BaseModel):
    """Base of every policy's options: unknown names, NaN and infinities are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Policy(ABC):
    """A draft policy. Subclasses set ``name`` and implement ``propose`` and ``largest``.

    Attributes:
        name: as registered.
        Options: the policy's options, a pydantic model.
        needs_draft: False when the policy never drafts, so that no drafter need be loaded.
    """

    name: ClassVar[str]
    Options: ClassVar[type[PolicyOptions]] = PolicyOptions
    needs_draft: ClassVar[bool] = True

    def __init__(self, options: PolicyOptions | None = None) -> None:
        self.options = self.Options() if options is None else options

    @property
    def label(self) -> str:
        """Name and options that are not the default, as ``make_policy`` reads them."""
        return spec_of(self.name, self.options.model_dump(mode="json", exclude_defaults=True))

    def begin(self) -> None:  # noqa: B027
        """A new request starts: forget the last one."""

    def plan(self, signals: Signals) -> TreePlan:
        """The tree to draft now, never deeper than the tokens that remain."""
        return self.propose(signals).capped(signals.remaining)

    @abstractmethod
    def propose(self, signals: Signals) -> TreePlan:
        """The tree this policy wants, whatever remains."""

    def observe(  # noqa: B027
        self, plan: TreePlan, num_accepted: int, num_promoted: int, num_verified: int
    ) -> None:
        """A step is done.

        Args:
            plan: what ``plan`` returned for it.
            num_accepted: followed drafts, promoted ones included.
            num_promoted: promoted ones among them.
            num_verified: drafted nodes in the tree, the root not counted.
        """

    @abstractmethod
    def largest(self) -> TreePlan:
        """Bounds, field by field, on every plan, for reservations."""

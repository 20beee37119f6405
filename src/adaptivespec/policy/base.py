"""The contract of a draft policy: which tree to draft next, from signals the last step left.

A policy belongs to one request at a time: ``begin`` resets what it remembers. ``plan`` changes
nothing; ``observe`` is where it learns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

from adaptivespec.core.registry import spec_of
from adaptivespec.policy.plan import (
    MOST_NODES,
    MOST_STEPS,
    MOST_TOPK,
    NOTHING,
    TreePlan,
    available_nodes,
)

if TYPE_CHECKING:
    from adaptivespec.core.draft import Draft
    from adaptivespec.policy.costs import CostProfile

__all__ = [
    "MOST_NODES",
    "MOST_STEPS",
    "MOST_TOPK",
    "NOTHING",
    "Outcome",
    "Policy",
    "PolicyOptions",
    "Signals",
    "TreePlan",
    "available_nodes",
]


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


@dataclass(frozen=True)
class Outcome:
    """What came of a step: only what was committed counts.

    Attributes:
        num_accepted: followed drafts, promoted ones included.
        num_promoted: promoted ones among them.
        num_verified: drafted nodes in the tree, the root not counted.
        committed: tokens the step produced, its bonus included.
        path: followed nodes of ``draft.tree``, the root first.
        draft: what was drafted; None when nothing is known of it.
        seconds: wall time of "draft", "verify" and "host"; empty when it was not measured.
        context_len: tokens in the context before the step.
        root_confidence: as in the step's signals; None when nothing was asked of the drafter.
    """

    num_accepted: int
    num_promoted: int
    num_verified: int
    committed: int = 1
    path: Sequence[int] = (0,)
    draft: Draft | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    context_len: int = 0
    root_confidence: float | None = None


class PolicyOptions(BaseModel):
    """Base of every policy's options: unknown names, NaN and infinities are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Policy(ABC):
    """A draft policy. Subclasses set ``name`` and implement ``largest``, most ``propose`` too.

    Attributes:
        name: as registered.
        formula, source: for the table of policies: the decision in one line, and its paper.
        Options: the policy's options, a pydantic model.
        needs_draft: False when the policy never drafts, so that no drafter need be loaded.
        tree: False when it only ever drafts chains.
        costs: what passes cost on this machine; set by the engine where ``needs_costs``.
        memory: what outlives a request, None when nothing does. The engine hands the memory of one
            request to the next that uses the same policy, options and rule.
    """

    name: ClassVar[str]
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    Options: ClassVar[type[PolicyOptions]] = PolicyOptions
    needs_draft: ClassVar[bool] = True
    tree: ClassVar[bool] = True
    costs: CostProfile | None = None
    memory: object | None = None

    def __init__(self, options: PolicyOptions | None = None) -> None:
        self.options = self.Options() if options is None else options

    @property
    def needs_costs(self) -> bool:
        """True when ``costs`` must be filled before the first plan."""
        return False

    @property
    def fixed_shape(self) -> bool:
        """True when no tree's shape depends on what is drafted, as drawn drafts demand."""
        return self.largest().fixed_shape

    @property
    def label(self) -> str:
        """Name and options that are not the default, as ``make_policy`` reads them."""
        return spec_of(self.name, self.options.model_dump(mode="json", exclude_defaults=True))

    @property
    def resting(self) -> bool:
        """True when the next step drafts nothing whatever the signals: the drafter isn't asked."""
        return False

    def begin(self) -> None:  # noqa: B027
        """A new request starts: forget the last one."""

    def plan(self, signals: Signals) -> TreePlan:
        """The tree to draft now, never deeper than the tokens that remain."""
        return self.propose(signals).capped(signals.remaining)

    def propose(self, signals: Signals) -> TreePlan:
        """The tree this policy wants, whatever remains; ``largest`` where it never changes."""
        return self.largest()

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:  # noqa: B027
        """A step is done; ``plan`` is what ``plan`` returned for it."""

    @abstractmethod
    def largest(self) -> TreePlan:
        """Bounds, field by field, on every plan, for reservations."""

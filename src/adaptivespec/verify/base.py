"""The contract of a verification rule.

A rule looks at the target's law at every node and rewrites the token that the strict walk will
follow there. It mutates nothing: not the law, not the tree, not the state. Budgets over time are
``Limits``, applied to the walk's outcome; memory over time goes through ``observe``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import spec_of
from adaptivespec.verify.limits import Ledger, Limits

if TYPE_CHECKING:
    from torch import Tensor

    from adaptivespec.core.law import Law
    from adaptivespec.core.sampling import Sampler
    from adaptivespec.core.tree import DraftTree
    from adaptivespec.core.verdict import Choice, Verdict


@dataclass(frozen=True, eq=False)
class VerifyState:
    """What a rule may know about one request besides the logits.

    Attributes:
        protected: bool[V], tokens never promoted and never overridden: EOS, stop ids, special,
            thinking and tool tokens.
        sampler: the request's sampler, for the promotion stream.
        ledger: promotions charged so far.
        digit_ids: bool[V], tokens that hold a digit; None when the tokenizer was not asked.
        memory: what the rule wants to remember within the request, its own to fill in ``observe``.
    """

    protected: Tensor
    sampler: Sampler
    ledger: Ledger = field(default_factory=Ledger)
    digit_ids: Tensor | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def protected_with_digits(self) -> Tensor:
        """bool[V]: ``protected`` and every token that holds a digit; ConfigError when unknown."""
        if self.digit_ids is None:
            raise ConfigError(
                "needs to know which tokens are digits",
                field="rule_options.protect_digits",
                remedy="Fill VerifyState.digit_ids",
            )
        return self.protected | self.digit_ids


@dataclass(frozen=True, eq=False)
class NodeTest:
    """What a rule decides at temperature 0, as data: for targets that choose and follow themselves.

    The target's own token is followed where it was drafted, else the child of least drop among
    those that pass; nothing is promoted over or to a guarded token.

    Attributes:
        guarded: bool[V], tokens never promoted and never overridden.
        limit: nats; a child passes when it lies less than this below the peak of its parent's row.
        in_order: the first child that passes is followed, also before the target's own token.
    """

    guarded: Tensor
    limit: float = 0.0
    in_order: bool = False


class RuleOptions(BaseModel):
    """Base of every rule's options: unknown names, NaN and infinities are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Rule(ABC):
    """A verification rule. Subclasses set ``name`` and implement ``choose`` and ``lossless``.

    Attributes:
        name: as registered.
        formula, source: for the table of rules: the acceptance in one line, and its paper.
        Options: the rule's options, a pydantic model.
        presets: named option sets.
        trained: True when it needs a checkpoint that was trained for the target.
        tree: False when it is defined on chains only.
        sampling: False when it is defined at temperature 0 only; the engine then refuses others.
        signals: what of the target's row it reads: "margins" (drops of the children and the
            target's own token), "logits" (more of the row) or "hidden" (the last hidden state).
        sampled_drafts: drafts must be drawn from the drafter's law (``DraftTree.q``).
        draft_hidden: the tree must carry the drafter's features (``DraftTree.hidden``).
        tree_independent: at every temperature a seeded answer's tokens are the same whatever trees
            were drafted; at temperature 0 that holds of every lossless rule.
    """

    name: ClassVar[str]
    formula: ClassVar[str] = ""
    source: ClassVar[str] = ""
    Options: ClassVar[type[RuleOptions]] = RuleOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    trained: ClassVar[bool] = False
    tree: ClassVar[bool] = True
    sampling: ClassVar[bool] = True
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "logits"
    sampled_drafts: ClassVar[bool] = False
    draft_hidden: ClassVar[bool] = False
    tree_independent: ClassVar[bool] = False

    def __init__(self, options: RuleOptions | None = None) -> None:
        self.options = self.Options() if options is None else options

    @property
    @abstractmethod
    def lossless(self) -> bool:
        """True when emitted tokens have the target's own law: at temperature 0 its argmax."""

    @property
    def limits(self) -> Limits | None:
        """Budgets on promotions; None when there are none."""
        return None

    @property
    def label(self) -> str:
        """Name and options that are not the default, as ``make_rule`` reads them."""
        return spec_of(self.name, self.options.model_dump(mode="json", exclude_defaults=True))

    def check_target(self, name: str) -> None:  # noqa: B027
        """Refuse a target called ``name`` that the rule cannot serve; before the first step."""

    @abstractmethod
    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The token to follow at every node; valid until logits are overwritten."""

    def node_test(self, state: VerifyState) -> NodeTest | None:
        """`choose` at temperature 0 as a test of each node by itself; None where it is not one."""
        return None

    def observe(  # noqa: B027
        self, tree: DraftTree, choice: Choice, verdict: Verdict, state: VerifyState
    ) -> None:
        """Learn from a committed step, into ``state.memory``. Most rules have no memory."""

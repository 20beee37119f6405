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
from typing import TYPE_CHECKING, Any, ClassVar

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
    """

    protected: Tensor
    sampler: Sampler
    ledger: Ledger = field(default_factory=Ledger)
    digit_ids: Tensor | None = None

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


class RuleOptions(BaseModel):
    """Base of every rule's options: unknown names, NaN and infinities are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Rule(ABC):
    """A verification rule. Subclasses set ``name`` and implement ``choose`` and ``lossless``.

    Attributes:
        name: as registered.
        Options: the rule's options, a pydantic model.
        presets: named option sets.
    """

    name: ClassVar[str]
    Options: ClassVar[type[RuleOptions]] = RuleOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, options: RuleOptions | None = None) -> None:
        self.options = self.Options() if options is None else options

    @property
    @abstractmethod
    def lossless(self) -> bool:
        """True when outputs are those of strict verification, token for token."""

    @property
    def limits(self) -> Limits | None:
        """Budgets on promotions; None when there are none."""
        return None

    @property
    def label(self) -> str:
        """Name and options that are not the default, as ``make_rule`` reads them."""
        return spec_of(self.name, self.options.model_dump(mode="json", exclude_defaults=True))

    @abstractmethod
    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The token to follow at every node of one tree; valid until logits are overwritten."""

    def observe(self, verdict: Verdict, state: VerifyState) -> None:  # noqa: B027
        """Learn from a committed step. Most rules have no memory."""

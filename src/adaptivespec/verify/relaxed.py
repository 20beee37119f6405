"""Relaxed acceptance of TensorRT-LLM, made for the thinking sections of reasoning models."""

from __future__ import annotations

import math
from typing import ClassVar, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor

from adaptivespec.core.law import Law, at_parent, log_norm_and_entropy
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.limits import Limits
from adaptivespec.verify.paths import exact, follow_best, kth_largest


class RelaxedOptions(RuleOptions):
    """Options of relaxed acceptance."""

    relaxed_topk: int = Field(10, ge=1, description="among the target's so many likeliest tokens")
    relaxed_delta: float = Field(0.6, ge=0, le=1, description="probability below the likeliest")
    think_only: bool = Field(False, description="only between the thinking tokens")
    think_ids: tuple[int, int] | None = Field(None, description="their (opening, closing) ids")

    @model_validator(mode="after")
    def _distinct(self) -> RelaxedOptions:
        if self.think_ids is not None and self.think_ids[0] == self.think_ids[1]:
            raise ValueError("think_ids must be two different ids")
        return self


class RelaxedRule(Rule):
    """Lossy: where strict would stop, accept a draft that is likely enough beside the top token.

    A child x is eligible when it is among the target's ``relaxed_topk`` likeliest tokens, ties with
    the last of them included, and p(x) >= max p - relaxed_delta. p is the softmax of the logits at
    temperature 1; at T > 0 it is p_T, and x must be possible under it. The target's own token is
    followed whenever it was drafted, then the eligible child of largest p, the first on ties.

    The bar is a difference of probabilities: at relaxed_delta = 0.6 it refuses nothing while
    max p <= 0.6, however far x lies below the top token, and only the rank still counts.
    """

    name: ClassVar[str] = "relaxed"
    formula: ClassVar[str] = "x = y, else x in top k and p(x) >= max p - delta"
    source: ClassVar[str] = "TensorRT-LLM, relaxed acceptance"
    Options: ClassVar[type[RuleOptions]] = RelaxedOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(RelaxedOptions, self.options)
        self._limits = Limits(think_only=self._opts.think_only, think_ids=self._opts.think_ids)

    @property
    def lossless(self) -> bool:
        """Never: even at top 1 and delta 0 a token that ties with the argmax is accepted."""
        return False

    @property
    def limits(self) -> Limits | None:
        """Thinking sections only, when asked for."""
        return self._limits if self._limits.any else None

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token, or the likeliest eligible child where it was not drafted."""
        drop, tokens = law.child_drop(tree), law.target
        if tree.num_nodes > 1:
            tokens = self._rewrite(law, tree, state.protected, drop)
        return Choice(law.target, tokens, drop, law.target_drop)

    def _rewrite(self, law: Law, tree: DraftTree, protected: Tensor, drop: Tensor) -> Tensor:
        if law.scaled is None:
            rows, log_norm = law.logits, law.log_norm
        else:
            rows = law.scaled
            log_norm, _ = log_norm_and_entropy(rows, torch.zeros_like(law.peak))
        value = at_parent(rows, tree)
        below = drop if law.scaled is None else -value  # ln(max p / p(x)) under either law
        largest = torch.exp(-log_norm).gather(-1, tree.parent_index)
        near = largest * -torch.expm1(-below) <= self._opts.relaxed_delta  # max p - p(x)
        ranked = value >= kth_largest(rows, self._opts.relaxed_topk).gather(-1, tree.parent_index)
        eligible = (near & ranked) > protected[tree.token_index]  # of booleans: "and not"
        score = torch.where(eligible, below, math.inf)  # that of an impossible token is +inf anyway
        score = torch.where(exact(law.target, tree), -math.inf, score)
        return follow_best(law.target, tree, score, protected)

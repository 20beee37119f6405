"""The margin rule of AdaptiveSpec: a promotion overrides a rejection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor

from adaptivespec.core.law import Law, at_parent
from adaptivespec.core.registry import spec_of
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import NodeTest, Rule, RuleOptions, VerifyState
from adaptivespec.verify.limits import Limits
from adaptivespec.verify.paths import exact, follow_least

_SMALLEST_UNIFORM = 2.0**-25  # half a step of float32 uniforms: keeps log(-log(u)) finite at u = 0


class MarginOptions(RuleOptions):
    """Options of the margin rule."""

    kappa: float = Field(0.2, ge=0, description="promote above this margin; 1 = never, lossless")
    protect_digits: bool = Field(False, description="never promote or override a digit")
    max_promotions_per_step: int | None = Field(None, ge=0, description="promotions per step")
    exact_between: bool = Field(False, description="an exact match between two promotions")
    max_regret: float | None = Field(None, ge=0, description="nats per regret_window tokens")
    regret_window: int = Field(256, ge=1, description="output tokens")
    skip_tokens: int = Field(0, ge=0, description="none among the first so many output tokens")
    think_only: bool = Field(False, description="only between the thinking tokens")
    think_ids: tuple[int, int] | None = Field(None, description="their (opening, closing) ids")

    @model_validator(mode="after")
    def _distinct(self) -> MarginOptions:
        if self.think_ids is not None and self.think_ids[0] == self.think_ids[1]:
            raise ValueError("think_ids must be two different ids")
        return self

    @property
    def lossless(self) -> bool:
        """True when nothing can ever be promoted."""
        return self.kappa >= 1 or self.max_promotions_per_step == 0


class MarginRule(Rule):
    """Lossy: where strict would stop, accept a draft whose p / max p exceeds kappa.

    The target's own token is followed whenever it was drafted; only a rejection is overridden. At
    kappa >= 1 the rule is strict verification, token for token. (arXiv 2609.02897: kappa = 0.2.)
    """

    name: ClassVar[str] = "margin"
    formula: ClassVar[str] = "x = y, else p(x) / max p > kappa"
    source: ClassVar[str] = "AdaptiveSpec 2609.02897"
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "margins"
    Options: ClassVar[type[RuleOptions]] = MarginOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "strict": {"kappa": 1.0},
        "paper": {"kappa": 0.2},
        "safe": {
            "kappa": 0.3,
            "max_promotions_per_step": 1,
            "exact_between": True,
            "max_regret": 4.0,
            "regret_window": 256,
        },
    }

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(MarginOptions, self.options)
        self._limit = drop_limit(self._opts.kappa)
        self._limits = Limits(
            max_promotions_per_step=self._opts.max_promotions_per_step,
            exact_between=self._opts.exact_between,
            max_regret=self._opts.max_regret,
            regret_window=self._opts.regret_window,
            skip_tokens=self._opts.skip_tokens,
            think_only=self._opts.think_only,
            think_ids=self._opts.think_ids,
        )

    @property
    def kappa(self) -> float:
        """The margin a promoted draft must exceed."""
        return self._opts.kappa

    @property
    def label(self) -> str:
        """As for every rule, with kappa always in it."""
        given = self.options.model_dump(mode="json", exclude_defaults=True)
        return spec_of(self.name, {"kappa": self.kappa, **given})

    @property
    def lossless(self) -> bool:
        """True when nothing can ever be promoted."""
        return self._opts.lossless

    @property
    def limits(self) -> Limits | None:
        """The limits that are on; None when there are none."""
        return self._limits if self._limits.any else None

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token, or the best eligible child where the target's was not drafted."""
        drop, tokens = law.child_drop(tree), law.target
        if not self.lossless and tree.num_nodes > 1:
            noise = None
            if law.scaled is not None:
                noise = state.sampler.promotion_noise(tree.num_nodes, tree.device)
            tokens = promote(law, tree, self._limit, self._protected(state), noise, drop)
        return Choice(law.target, tokens, drop, law.target_drop)

    def node_test(self, state: VerifyState) -> NodeTest:
        """Nothing passes where the rule is lossless."""
        return NodeTest(self._protected(state), 0.0 if self.lossless else float(self._limit))

    def _protected(self, state: VerifyState) -> Tensor:
        return state.protected_with_digits if self._opts.protect_digits else state.protected


def drop_limit(kappa: float) -> Tensor:
    """f32 scalar, nats: -ln(kappa), below which a child is eligible; +inf at kappa 0."""
    return torch.tensor(math.inf if kappa == 0 else -math.log(kappa), dtype=torch.float32)


def promote(
    law: Law,
    tree: DraftTree,
    limit: Tensor,
    protected: Tensor,
    noise: Tensor | None = None,
    child_drop: Tensor | None = None,
) -> Tensor:
    """The target's token at every node, replaced by an eligible child where it was not drafted.

    A child is eligible when its drop is less than ``limit`` (strictly, in float32), it is not
    protected, and at T > 0 it has positive probability. A node whose own token is protected keeps
    it. At T = 0 the child of largest margin wins, then the one of lowest index; at T > 0 one is
    drawn from p_T restricted to the eligible children (Gumbel-max).

    Args:
        law: of one tree or of a batch.
        tree: N nodes.
        limit: f32 scalar, f32[..., 1] with one entry for each tree, or f32[..., N] with one for
            each child; see ``drop_limit``.
        protected: bool[V].
        noise: f32[..., N] uniform in [0, 1); needed at T > 0.
        child_drop: ``law.child_drop(tree)`` where the caller has it.

    Returns i64[..., N].
    """
    drop = law.child_drop(tree) if child_drop is None else child_drop
    # Between booleans a > b is "a and not b". Root and padding drop by +inf, which passes no limit.
    eligible = (drop < limit) > protected[tree.token_index]
    return promote_eligible(law, tree, drop, eligible, protected[law.target], noise)


def promote_eligible(
    law: Law,
    tree: DraftTree,
    drop: Tensor,
    eligible: Tensor,
    closed: Tensor,
    noise: Tensor | None = None,
) -> Tensor:
    """``promote`` for a caller who knows which children are eligible, and which nodes are closed.

    Args:
        law: of one tree or of a batch.
        tree: N nodes.
        drop: f32[..., N], ``law.child_drop(tree)``.
        eligible: bool[..., N], children that may be promoted; not the root, not padding.
        closed: bool[..., N], nodes that keep the target's own token.
        noise: f32[..., N] uniform in [0, 1); needed at T > 0.

    Returns i64[..., N].
    """
    score = drop
    if law.scaled is not None:
        if noise is None:
            raise ValueError("noise is needed at temperature > 0")
        # log p up to a constant that siblings share; an excluded token has -inf and scores +inf.
        logp = at_parent(law.scaled, tree)
        # argmin of log(Exp(1)) - log p is Gumbel-max; the largest uniform is below 1 by 2^-24.
        score = noise.clamp_min(_SMALLEST_UNIFORM).log().neg().log() - logp
        if law.greedy is not None:
            score = torch.where(law.greedy, drop, score)
    score = torch.where(eligible, score, math.inf)
    # The target's own token beats every sibling: choosing it rewrites nothing.
    score = torch.where(exact(law.target, tree), -math.inf, score)
    return follow_least(law.target, tree, score, closed)

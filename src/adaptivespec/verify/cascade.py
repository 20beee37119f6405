"""A speculative cascade's deferral rule, carried over to a tree as it stands."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field

from adaptivespec.core.law import Law, at_parent
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import NodeTest, Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import follow_first


class CascadeOptions(RuleOptions):
    """Options of the cascade rule."""

    base: float = Field(0.3, gt=0, le=1, description="least p / max p of an accepted draft")


class CascadeRule(Rule):
    """Lossy: accept the first draft whose p / max p reaches ``base``, ahead of the target's own.

    Children are tried in draft order (node index); the first with p(x) >= base * max p is followed,
    else the target's own token y. p is p_T at T > 0, and y is drawn from it. A node whose own y is
    protected keeps it, and no other protected token is accepted.

    This is the naive port of a ratio rule, written for chains, to a tree. An earlier sibling that
    merely passes replaces the target's own token even where that was drafted too, and every such
    promotion is a loss for nothing: the exact child would have been followed at no regret, and the
    subtree below it, drafted for the likelier continuation, is thrown away. Even at base = 1 a tie
    is lost to the earlier sibling. ``margin`` is the ratio rule without this cost.
    """

    name: ClassVar[str] = "cascade"
    formula: ClassVar[str] = "first x with p(x) >= base * max p, else y"
    source: ClassVar[str] = "SpecCascade 2405.19261, TokenV3"
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "margins"
    Options: ClassVar[type[RuleOptions]] = CascadeOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._limit = -math.log(cast(CascadeOptions, self.options).base)

    @property
    def lossless(self) -> bool:
        """Never: at base = 1 a sibling that ties with the argmax still comes first."""
        return False

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The first child that passes, else the target's own token."""
        drop, tokens = law.child_drop(tree), law.target
        if tree.num_nodes > 1:
            below = drop if law.scaled is None else -at_parent(law.scaled, tree)
            passes = (below <= self._limit) > state.protected[tree.token_index]
            tokens = follow_first(law.target, tree, passes, state.protected)
        return Choice(law.target, tokens, drop, law.target_drop)

    def node_test(self, state: VerifyState) -> NodeTest:
        """Drops up to the limit pass, so the test is one float32 above it."""
        limit = torch.tensor(self._limit, dtype=torch.float32)
        return NodeTest(state.protected, float(limit.nextafter(torch.tensor(math.inf))), True)

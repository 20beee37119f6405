"""MARS: accept the runner-up when the two largest logits lie close together."""

from __future__ import annotations

import math
from typing import ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.law import Law, at_parent
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import exact, follow_best, kth_largest


class MarsOptions(RuleOptions):
    """Options of the MARS rule."""

    theta: float = Field(
        0.9, ge=0, le=1, description="accept above this z_2 / z_1; 1 = never, lossless"
    )


class MarsRule(Rule):
    """Lossy: where strict would stop, accept the target's runner-up if z_2 / z_1 > theta.

    z_1 >= z_2 are the two largest logits, before softmax and temperature; a child is the runner-up
    when its logit equals z_2, so ties count. z_1 must be positive: a ratio of negative numbers
    grows as the tokens move apart. At T > 0 the test is the same on a rejection of the drawn y, and
    the runner-up must be possible under p_T; the argmax itself is then followed only where it is y.

    The ratio is not shift invariant, though the softmax is: adding a constant to all logits changes
    no probability and changes the decision. (10, 8) is refused at theta = 0.9, (110, 108) accepted.
    So one theta means different things for different models, rows and logit biases.
    """

    name: ClassVar[str] = "mars"
    formula: ClassVar[str] = "x = y, else z_x = z_2 and z_2 / z_1 > theta"
    source: ClassVar[str] = "MARS 2601.15498"
    Options: ClassVar[type[RuleOptions]] = MarsOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(MarsOptions, self.options)

    @property
    def lossless(self) -> bool:
        """True at theta = 1: no ratio is above it."""
        return self._opts.theta == 1

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token, or the runner-up where the target's was not drafted."""
        tokens = law.target
        if tree.num_nodes > 1 and not self.lossless:
            tokens = self._rewrite(law, tree, state.protected)
        return Choice(law.target, tokens, law.child_drop(tree), law.target_drop)

    def _rewrite(self, law: Law, tree: DraftTree, protected: Tensor) -> Tensor:
        second = kth_largest(law.logits, 2).float()
        close = (law.peak > 0) & (second / law.peak > self._opts.theta)
        runner_up = at_parent(law.logits, tree).float() == second.gather(-1, tree.parent_index)
        eligible = runner_up & close.gather(-1, tree.parent_index)
        if law.scaled is not None:
            eligible = eligible & (at_parent(law.scaled, tree) > -math.inf)
        eligible = eligible > protected[tree.token_index]  # of booleans: "and not"
        score = torch.where(eligible, 0.0, math.inf)
        score = torch.where(exact(law.target, tree), -math.inf, score)
        return follow_best(law.target, tree, score, protected)

"""Typical acceptance of Medusa."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.law import Law, at_parent, log_norm_and_entropy
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import exact, follow_path, longest_path


class TypicalOptions(RuleOptions):
    """Options of typical acceptance."""

    epsilon: float = Field(0.3, ge=0, le=1, description="hard threshold: enough at any entropy")
    delta: float = Field(0.09, ge=0, description="scale of the threshold that entropy lowers")


class TypicalRule(Rule):
    """Lossy at T > 0: accept a draft whose p_T is above a bar that falls with entropy.

    A child x is acceptable when p_T(x) > min(epsilon, delta * exp(-H(p_T))), H in nats, p_T with
    the request's top-k, top-p and min-p. Of the paths of acceptable nodes the longest is followed,
    on ties the one with the largest sum of log p_T, then the lowest node index. At its end the
    target's own token y is emitted, drawn there as ever. Should y be a drafted child, the walk goes
    on along the target's own tokens: that is lossless and costs nothing.

    At temperature 0 the rule is strict. Protected tokens are accepted only where they are y, and a
    node whose own y is protected keeps it.

    The paper's epsilon is 0.3 and its delta 0.09; since delta is the smaller, epsilon then never
    decides. Several engines swap the two numbers (posterior_threshold 0.09, posterior_alpha 0.3):
    that is ``typical:0.09,0.3`` here, which never accepts more.
    """

    name: ClassVar[str] = "typical"
    formula: ClassVar[str] = "p_T(x) > min(epsilon, delta * exp(-H(p_T))), longest path"
    source: ClassVar[str] = "Medusa 2401.10774"
    Options: ClassVar[type[RuleOptions]] = TypicalOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(TypicalOptions, self.options)

    @property
    def lossless(self) -> bool:
        """Never: at T > 0 no setting is strict on every vocabulary."""
        return False

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The longest acceptable path at T > 0; elsewhere and at T = 0 the target's own tokens."""
        tokens = law.target
        if law.scaled is not None and tree.num_nodes > 1:
            tokens = self._rewrite(law, law.scaled, tree, state.protected)
        return Choice(law.target, tokens, law.child_drop(tree), law.target_drop)

    def _rewrite(self, law: Law, scaled: Tensor, tree: DraftTree, protected: Tensor) -> Tensor:
        log_norm, entropy = log_norm_and_entropy(scaled, torch.zeros_like(law.peak))
        logp = at_parent(scaled, tree) - log_norm.gather(-1, tree.parent_index)
        bar = (self._opts.delta * torch.exp(-entropy)).clamp_max(self._opts.epsilon)
        typical = logp.exp() > bar.gather(-1, tree.parent_index)
        closed = protected[tree.token_index] | protected[law.target].gather(-1, tree.parent_index)
        accepted = typical & (exact(law.target, tree) | ~closed)
        gain = torch.where(tree.is_child, logp, 0.0)
        return follow_path(law.target, tree, longest_path(accepted, gain, tree))

"""SGLang's target-only speculative sampling with its two acceptance thresholds."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.law import Law, at_parent, log_norm_and_entropy
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import exact, family, follow_first


class ThresholdOptions(RuleOptions):
    """Options of the threshold rule."""

    threshold_single: float = Field(1.0, gt=0, le=1, description="accept p_T(x) from here on")
    threshold_acc: float = Field(1.0, gt=0, le=1, description="divides the cumulative probability")


class ThresholdRule(Rule):
    """Lossless at (1, 1), lossy below: one coin against the siblings' cumulative probability.

    Siblings are tried in draft order. The first child x is accepted for which coin <= (sum of p_T
    of the siblings tried so far, x included) / threshold_acc, or p_T(x) >= threshold_single. If
    there is none, the token comes from p_T without the tried children. (SGLang's options are
    speculative_accept_threshold_single and speculative_accept_threshold_acc.)

    The coin is not a number of its own but follows from the target's token y and a uniform U of the
    promotion stream: with y the i-th child it is (p_1 + ... + p_{i-1}) + U p_i, else
    total + U (1 - total). So it is uniform, y is what (1, 1) would emit, and a token counts as
    promoted exactly where a lowered bar changed it. At (1, 1) that is strict verification, and a
    probability that merely rounds to 1 accepts nothing.

    At temperature 0 the rule is strict. Protected tokens are accepted only where they are y, and a
    node whose own y is protected keeps it.
    """

    name: ClassVar[str] = "threshold"
    formula: ClassVar[str] = "coin <= sum of tried p_T / threshold_acc, or p_T(x) >= single"
    source: ClassVar[str] = "SGLang, tree_speculative_sampling_target_only"
    Options: ClassVar[type[RuleOptions]] = ThresholdOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(ThresholdOptions, self.options)

    @property
    def lossless(self) -> bool:
        """True when both thresholds are 1."""
        return self._opts.threshold_single == 1 and self._opts.threshold_acc == 1

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The first accepted child at T > 0; else, and at T = 0, the target's own token."""
        tokens = law.target
        if law.scaled is not None and tree.num_nodes > 1 and not self.lossless:
            noise = state.sampler.promotion_noise(tree.num_nodes, tree.device)
            single, acc = self._opts.threshold_single, self._opts.threshold_acc
            tokens = accept_first(law, tree, single, acc, state.protected, noise)
        return Choice(law.target, tokens, law.child_drop(tree), law.target_drop)


def accept_first(
    law: Law, tree: DraftTree, single: float, acc: float, protected: Tensor, noise: Tensor
) -> Tensor:
    """The target's token at every node, replaced by the first child that the thresholds accept.

    Args:
        law: at T > 0, of one tree or of a batch.
        tree: N nodes.
        single, acc: the two thresholds, in (0, 1].
        protected: bool[V].
        noise: f32[..., N] uniform in [0, 1), the U of each node.

    Returns i64[..., N].
    """
    if law.scaled is None:
        raise ValueError("the thresholds are defined at temperature > 0")
    log_norm, _ = log_norm_and_entropy(law.scaled, torch.zeros_like(law.peak))
    p = torch.exp(at_parent(law.scaled, tree) - log_norm.gather(-1, tree.parent_index))
    own = exact(law.target, tree)
    accepted = torch.zeros_like(own)
    if acc < 1:  # else the coin accepts y alone: no sibling before it reaches the coin
        share = torch.where(family(tree), p.unsqueeze(-2), 0.0)  # [..., v, child of v]
        tried = share.cumsum(-1)
        total = tried[..., -1]
        hit = family(tree) & own.unsqueeze(-2)
        drafted = hit.any(-1)
        start = torch.where(drafted, torch.where(hit, tried - share, 0.0).sum(-1), total)
        width = torch.where(hit, share, 0.0).sum(-1)
        width = torch.where(drafted, width, (1 - total).clamp_min(0.0))
        coin = start + noise * width
        enough = coin.unsqueeze(-1) <= tried / acc
        accepted = enough.gather(-2, tree.parent_index.unsqueeze(-2)).squeeze(-2)
    if single < 1:  # at 1 it means certain, and then y is that token
        accepted = accepted | (p >= single)
    accepted = (accepted & (p > 0)) > protected[tree.token_index]  # of booleans: "and not"
    return follow_first(law.target, tree, accepted | own, protected)

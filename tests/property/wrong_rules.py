"""Rules that say the wrong thing about themselves, each in a way of its own, and one that is right.

The suite that holds the registered rules to their claims is shown to refuse them.
"""

from dataclasses import replace

import torch
from pydantic import Field

from adaptivespec.core.law import at_parent
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions
from adaptivespec.verify.limits import Limits
from adaptivespec.verify.margin import drop_limit, promote
from adaptivespec.verify.rejection import RejectionOptions, RejectionRule
from adaptivespec.verify.strict import StrictRule


class _SaysLossless(Rule):
    @property
    def lossless(self):
        return True


class LooseMargin(_SaysLossless):
    """The margin rule at 0.2."""

    name = "loose"

    def choose(self, law, tree, state):
        drop, noise = law.child_drop(tree), None
        if law.scaled is not None:
            noise = state.sampler.promotion_noise(tree.num_nodes)
        tokens = promote(law, tree, drop_limit(0.2), state.protected, noise, drop)
        return Choice(law.target, tokens, drop, law.target_drop)


class HiddenMargin(LooseMargin):
    """The margin rule, which passes its promotions off as the target's own tokens."""

    name = "hidden"

    def choose(self, law, tree, state):
        choice = super().choose(law, tree, state)
        return replace(choice, target=choice.tokens)


class DeepMargin(LooseMargin):
    """The margin rule below the root and at T > 0 only: the root's token has the right law."""

    name = "deep"

    def choose(self, law, tree, state):
        choice = super().choose(law, tree, state)
        keep = (tree.depth == 0) | torch.tensor(law.scaled is None)
        return replace(choice, tokens=torch.where(keep, law.target, choice.tokens))


class LimitedMargin(LooseMargin):
    """The margin rule under a limit that cuts every promotion: what it says is right."""

    name = "limited"

    @property
    def limits(self):
        return Limits(max_promotions_per_step=0)


class NaiveTopOne(_SaysLossless):
    """The first child with probability min(1, p / q), else y, as if nothing had been tried.

    The drafts are the drafter's likeliest tokens, so no q belongs into it at all.
    """

    name = "naive"

    def choose(self, law, tree, state):
        drop, tokens = law.child_drop(tree), law.target
        if law.scaled is not None and tree.num_nodes > 1:
            p = at_parent(law.scaled.softmax(-1), tree)
            taken = state.sampler.promotion_noise(tree.num_nodes) < p / tree.logq.exp()
            score = torch.where(taken, tree.index, torch.inf)
            best, child = torch.where(_family(tree), score.unsqueeze(-2), torch.inf).min(-1)
            tokens = torch.where(best < torch.inf, tree.token_index.gather(-1, child), tokens)
        return Choice(law.target, tokens, drop, law.target_drop)


class LenientRejection(RejectionRule):
    """Rejection sampling with a lenience of 0.6 that is kept quiet."""

    name = "lenient"
    Options = RuleOptions

    def __init__(self, options=None):
        super().__init__(RejectionOptions(lenience=0.6))

    @property
    def lossless(self):
        return True

    def choose(self, law, tree, state):
        return RejectionRule(self.options).choose(law, tree, state)


class ModestStrict(StrictRule):
    """Strict verification, said to be lossy."""

    name = "modest"

    @property
    def lossless(self):
        return False


class Careless(_SaysLossless):
    """Follows the first child, whatever it holds."""

    name = "careless"

    def choose(self, law, tree, state):
        first = torch.where(_family(tree), tree.index, tree.num_nodes).amin(-1)
        token = tree.token_index.gather(-1, first.clamp_max(tree.num_nodes - 1))
        tokens = torch.where(first < tree.num_nodes, token, law.target)
        return Choice(law.target, tokens, law.child_drop(tree), law.target_drop)


class AboveZero(LooseMargin):
    """The margin rule where raw logits are positive."""

    name = "above"

    def choose(self, law, tree, state):
        choice = super().choose(law, tree, state)
        return replace(choice, tokens=torch.where(law.peak > 0, choice.tokens, law.target))


class BandOptions(RuleOptions):
    width: float = Field(1.0, ge=0, le=2)


class Band(LooseMargin):
    """Promotes what drops by a certain amount, neither less nor more."""

    name = "band"
    Options = BandOptions

    def choose(self, law, tree, state):
        drop = law.child_drop(tree)
        band = torch.where((drop - self.options.width).abs() < 0.2, drop, torch.inf)
        free = torch.zeros_like(state.protected)
        tokens = promote(replace(law, scaled=None), tree, drop_limit(0.0), free, None, band)
        return Choice(law.target, tokens, drop, law.target_drop)


class InPlace(LooseMargin):
    """Writes what it decides into the law."""

    name = "in place"

    def choose(self, law, tree, state):
        choice = super().choose(law, tree, state)
        law.target.copy_(choice.tokens)
        return choice


class Neighbour(LooseMargin):
    """Promotes by the mean over all nodes, those of other trees and the padding included."""

    name = "neighbour"

    def choose(self, law, tree, state):
        choice = super().choose(law, tree, state)
        loud = law.peak > law.peak.mean()
        return replace(choice, tokens=torch.where(loud, choice.tokens, law.target))


def _family(tree):
    return tree.parent.unsqueeze(-2) == tree.index.unsqueeze(-1)  # (v, i): i is a child of v

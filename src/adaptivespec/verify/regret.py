"""ASD: the longest prefix that a local gate, a few exceptions and a ledger of regret allow."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.law import Law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import exact, family

_ROUNDING = 1e-6  # nats


class RegretOptions(RuleOptions):
    """Options of the regret rule."""

    gate: float = Field(1.6, ge=0, description="nats; an exception's regret is below it")
    max_exceptions: int = Field(2, ge=0, description="promotions per step")
    max_regret: float | None = Field(16.0, ge=0, description="nats per request; null = no ledger")


class RegretRule(Rule):
    """Lossy: follow the longest path with at most m promotions, each of regret below the gate.

    The regret of x is max z - z_x, in nats. A path follows the target's own token y or, as an
    exception, any unprotected child of regret < gate under a node whose y is not protected. It is
    the longest such path from the root, so a sibling may be taken although y was drafted, when its
    path is longer. Ties: less regret in total, then y, then the lower index.

    The ledger: promotions of a request may not cost more than ``max_regret`` nats together. A path
    that would overdraw it gives way to the best one with fewer exceptions; with none left the step
    is strict. The budget is looked up here, and not cut from the walk afterwards, because a cut
    would also lose the drafts that strict would have followed instead. Defined at temperature 0.
    (ASD, arXiv 2608.03447; the default gate is a margin of 0.2.)
    """

    name: ClassVar[str] = "regret"
    formula: ClassVar[str] = "longest path of x = y and at most m x of max z - z_x < gate"
    source: ClassVar[str] = "ASD 2608.03447"
    sampling: ClassVar[bool] = False
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "margins"
    Options: ClassVar[type[RuleOptions]] = RegretOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(RegretOptions, self.options)

    @property
    def lossless(self) -> bool:
        """True when nothing can ever be promoted."""
        return self._opts.max_exceptions == 0 or self._opts.gate == 0

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token at every node, rewritten along the chosen path."""
        drop, tokens = law.child_drop(tree), law.target
        if not self.lossless and tree.num_nodes > 1:
            most, budget = self._opts.max_exceptions, self._opts.max_regret
            left = math.inf if budget is None else max(budget - state.ledger.regret, 0.0)
            tokens = longest_prefix(law, tree, drop, self._opts.gate, most, left, state.protected)
        return Choice(law.target, tokens, drop, law.target_drop)


def longest_prefix(
    law: Law,
    tree: DraftTree,
    drop: Tensor,
    gate: float,
    most: int,
    left: float,
    protected: Tensor,
) -> Tensor:
    """The target's token at every node, rewritten along the longest path that is allowed.

    Args:
        law: of one tree or of a batch.
        tree: N nodes.
        drop: f32[..., N], ``law.child_drop(tree)``.
        gate: nats; an exception drops by less.
        most: exceptions on the path.
        left: nats that the exceptions may cost together.
        protected: bool[V].

    Returns i64[..., N].
    """
    y, token, above = law.target, tree.token_index, tree.parent_index
    match = exact(y, tree) & tree.is_child
    eligible = (drop < gate) & (drop <= left)
    exception = eligible > (match | protected[token] | protected[y].gather(-1, above))
    # A draft is worth 1. All exceptions of a path together cost less than 1, so that a longer path
    # always wins; float64 keeps 40 bits and more for the regret beside the length.
    most = min(most, tree.max_depth)
    regret = torch.where(exception, drop, 0.0).double()
    unit = most * regret.amax(-1, keepdim=True) + 1  # nats that one draft is worth
    gain = torch.where(match, 1.0, torch.where(exception, 1 - regret / unit, -math.inf))
    # Everything below has a column for each number of exceptions that may still be made.
    spare = torch.arange(most + 1, device=tree.device)
    after = spare - exception.long().unsqueeze(-1)  # i64[..., N, m + 1], once the child is taken
    gain = torch.where(after < 0, -math.inf, gain.unsqueeze(-1))
    after = after.clamp_min(0)
    parent = above.unsqueeze(-1).expand_as(after)
    offer = worth = torch.zeros_like(gain)
    for _ in range(tree.max_depth):  # after d rounds, right for nodes with d levels below them
        offer = gain + worth.gather(-1, after)  # of the best path that begins at the node
        worth = torch.zeros_like(worth).scatter_reduce(-2, parent, offer, "amax")
    # Among equal offers y comes first, then the lower index.
    size = tree.num_nodes
    order = torch.where(match, tree.index, tree.index + size).unsqueeze(-1).unsqueeze(-3)
    best = family(tree).unsqueeze(-1) & (offer.unsqueeze(-3) == worth.unsqueeze(-2))  # (v, i, m)
    first = torch.where(best, order, 2 * size).amin(-2)
    # The walk through states (node, exceptions left), numbered row by row.
    taken = first % size * (most + 1) + spare - (first >= size).long()
    here = tree.index.unsqueeze(-1) * (most + 1) + spare
    follow = torch.where(first < 2 * size, taken, here).flatten(-2)
    states = [_affordable(worth[..., 0, :], unit, left)]
    for _ in range(tree.max_depth):
        states.append(follow.gather(-1, states[-1]))
    node = torch.cat(states, -1) // (most + 1)  # i64[..., D + 1]; the last one repeats
    come, go = node[..., :-1], node[..., 1:]
    return y.scatter(-1, come, torch.where(go > come, token.gather(-1, go), y.gather(-1, come)))


def _affordable(worth: Tensor, unit: Tensor, left: float) -> Tensor:
    """i64[..., 1]: the most exceptions whose best path is paid for.

    Its ``worth`` f64[..., m + 1] is its length less regret / ``unit``, a share of 1.
    """
    spare = torch.arange(worth.shape[-1], device=worth.device)
    regret = (worth.ceil() - worth) * unit
    return torch.where(regret <= left + _ROUNDING, spare, 0).amax(-1, keepdim=True)

"""The control: promotions by the toss of a coin, blind to the margin."""

from __future__ import annotations

from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.law import Law, at_parent
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import exact, follow_least


class CoinOptions(RuleOptions):
    """Options of the coin rule."""

    rate: float = Field(0.5, ge=0, le=1, description="share of promotable nodes that promote")


class CoinRule(Rule):
    """Lossy: where strict would stop, accept the drafter's best child with probability ``rate``.

    A control, not a way to decode. It promotes where ``margin`` may, as often as it is told to,
    but knows nothing of p(x) / max p: what ``margin`` does better at an equal number of promotions
    is what the margin is worth. The drafter's likeliest child is taken, so the drafter's knowledge
    is kept. The target's own token y is followed wherever it was drafted; protected tokens are
    neither promoted nor overridden, nor is one accepted that cannot occur.

    The coin of a node is a hash of its output position and y, not a random number: requests repeat,
    and at temperature 0 no random number is drawn.
    """

    name: ClassVar[str] = "coin"
    formula: ClassVar[str] = "x = y, else u < rate for the likeliest x"
    source: ClassVar[str] = "a control"
    # Its coin is a hash of y's own id, and a replay numbers tokens anew.
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "logits"
    Options: ClassVar[type[RuleOptions]] = CoinOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._rate = cast(CoinOptions, self.options).rate

    @property
    def lossless(self) -> bool:
        """True when nothing is ever promoted."""
        return self._rate == 0

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token; where it was not drafted and the coin says so, the first child's."""
        drop, tokens = law.child_drop(tree), law.target
        if tree.num_nodes > 1 and not self.lossless:
            heads = toss(state.ledger.outputs + tree.depth, law.target) < self._rate
            # Root, padding and impossible tokens drop by +inf. Of booleans a > b is "and not".
            passes = (drop < torch.inf) > state.protected[tree.token_index]
            if law.scaled is not None:
                passes = passes & (at_parent(law.scaled, tree) > -torch.inf)
            own = (exact(law.target, tree) & tree.is_child).float()
            drafted = torch.zeros_like(own).scatter_add(-1, tree.parent_index, own) > 0
            score = torch.where(passes, -tree.logq, torch.inf)
            closed = state.protected[law.target] | drafted | ~heads
            tokens = follow_least(law.target, tree, score, closed)
        return Choice(law.target, tokens, drop, law.target_drop)


def toss(position: Tensor, token: Tensor) -> Tensor:
    """f32 in [0, 1): a coin for each pair of i64 numbers, the same for the same pair.

    Two rounds of multiply and shift (constants of splitmix64), of which the upper 24 bits are kept.
    """
    mixed = position * 0x9E3779B97F4A7C1 + token * 0xBF58476D1CE4E5B
    for constant in (0x94D049BB133111E, 0x2545F4914F6CDD1):
        mixed = (mixed ^ (mixed >> 29)) * constant
    return ((mixed >> 40) & 0xFFFFFF).float() / (1 << 24)

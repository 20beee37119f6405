"""The strict walk over rewritten tokens, and its outcome on the host.

A rule rewrites the target's token at every node; one walk then serves every rule: from the root,
step to the child that holds the node's token, until there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree


class Kind(StrEnum):
    """Why a token was emitted."""

    EXACT = "exact"  # a drafted token that is the target's own choice
    PROMOTED = "promoted"  # a drafted token accepted in place of the target's choice
    BONUS = "bonus"  # the target's own token, after the last followed draft


@dataclass(frozen=True, eq=False)
class Choice:
    """What a rule decided at every node.

    Attributes:
        target: i64[..., N], the target's own token y.
        tokens: i64[..., N], the token after the rule's rewriting.
        child_drop: f32[..., N], nats the node's token lies below the peak of its parent's row.
        target_drop: f32[..., N], nats y lies below the peak of the node's own row; 0 at T = 0.
    """

    target: Tensor
    tokens: Tensor
    child_drop: Tensor
    target_drop: Tensor


@dataclass(frozen=True, eq=False)
class Followed:
    """The followed path of every tree of a batch.

    Attributes:
        path: i64[..., D + 1], node ids from the root on, padded with -1 (D = the tree's max_depth).
        length: i64[...], nodes on the path, the root included.
        bonus: i64[...], the token at the deepest followed node.
    """

    path: Tensor
    length: Tensor
    bonus: Tensor


def follow(tree: DraftTree, tokens: Tensor) -> Followed:
    """Walk from the root along children that hold their parent's token.

    Vectorised over nodes and batch; the only loop is over depth. Padding is never followed.

    Args:
        tree: siblings hold distinct tokens, so the walk is unique.
        tokens: i64[..., N], a rule's token at every node, >= 0 outside of padding.
    """
    reach = reached(tree, tokens)
    size = tree.max_depth + 1
    slot = torch.where(reach, tree.depth, size)  # nodes off the path share one spare slot
    path = torch.full((*reach.shape[:-1], size + 1), -1, dtype=torch.int64, device=tree.device)
    path = path.scatter_(-1, slot, tree.index.expand_as(slot))[..., :size]
    length = reach.sum(-1)
    last = path.gather(-1, length.unsqueeze(-1) - 1)
    return Followed(path, length, tokens.gather(-1, last).squeeze(-1))


def reached(tree: DraftTree, tokens: Tensor) -> Tensor:
    """bool[..., N]: the nodes on the followed path, one at each depth."""
    # Padding holds -1, which no rule chooses; the root is reached by definition.
    reach = tree.token == tokens.gather(-1, tree.parent_index)
    reach[..., 0] = True
    for _ in range(tree.max_depth - 1):  # children of the root are settled; one level a round
        reach = reach & reach.gather(-1, tree.parent_index)
    return reach


@dataclass(frozen=True)
class Verdict:
    """The outcome of one step of one request, on the host.

    Attributes:
        path: followed node ids, the root first.
        tokens: emitted tokens: those of path[1:], then the bonus.
        kinds: why each was emitted.
        drops: nats each lies below the peak of its row: 0 for the argmax.
        strict: the target's own token at each position: what strict would have emitted there.
        strict_drops: nats the target's own token lies below the peak.
    """

    path: list[int]
    tokens: list[int]
    kinds: list[Kind]
    drops: list[float]
    strict: list[int]
    strict_drops: list[float]

    @classmethod
    def of_path(
        cls,
        path: list[int],
        drafted: list[int],
        drops: list[float],
        strict: list[int],
        bonus: int,
        strict_drops: list[float],
        bonus_drop: float,
    ) -> Verdict:
        """From a followed path and, node by node of it: the target's own token and its drop.

        `drafted` and `drops` are of path[1:], their drops being below the peaks of the rows before.
        """
        pairs = zip(drafted, strict, strict=False)
        kinds = [Kind.EXACT if token == own else Kind.PROMOTED for token, own in pairs]
        return cls(
            path=path,
            tokens=[*drafted, bonus],
            kinds=[*kinds, Kind.BONUS],
            drops=[*drops, bonus_drop],
            strict=strict,
            strict_drops=strict_drops,
        )

    @property
    def margins(self) -> list[float]:
        """p / max p of each emitted token, in [0, 1]."""
        return [math.exp(-drop) for drop in self.drops]

    @property
    def bonus(self) -> int | None:
        """The token that ends the step; None when a stop came before it."""
        return self.tokens[-1] if len(self.tokens) == len(self.path) else None

    @property
    def num_accepted(self) -> int:
        """Followed drafts, exact and promoted."""
        return len(self.path) - 1

    @property
    def num_promoted(self) -> int:
        """Followed drafts that were not the target's own choice."""
        return self.kinds.count(Kind.PROMOTED)

    @property
    def regret(self) -> float:
        """Nats charged: the sum of -ln margin over promoted tokens."""
        pairs = zip(self.kinds, self.drops, strict=True)
        return sum((drop for kind, drop in pairs if kind is Kind.PROMOTED), 0.0)

    def cut(self, keep_nodes: int) -> Verdict:
        """Follow the first ``keep_nodes`` drafts only, then emit the target's own token.

        Raises ValueError unless 0 <= keep_nodes <= num_accepted.
        """
        if not 0 <= keep_nodes <= self.num_accepted:
            raise ValueError(f"keep_nodes must be in [0, {self.num_accepted}], got {keep_nodes}")
        if keep_nodes == self.num_accepted:
            return self
        return Verdict(
            path=self.path[: keep_nodes + 1],
            tokens=[*self.tokens[:keep_nodes], self.strict[keep_nodes]],
            kinds=[*self.kinds[:keep_nodes], Kind.BONUS],
            drops=[*self.drops[:keep_nodes], self.strict_drops[keep_nodes]],
            strict=self.strict[: keep_nodes + 1],
            strict_drops=self.strict_drops[: keep_nodes + 1],
        )

    def committed(self, kept: int) -> Verdict:
        """Only the first ``kept`` emitted tokens, as ``commit`` decided; the rest never existed."""
        if not 0 <= kept <= len(self.tokens):
            raise ValueError(f"kept must be in [0, {len(self.tokens)}], got {kept}")
        if kept == len(self.tokens):
            return self
        return replace(
            self,
            path=self.path[: kept + 1],
            tokens=self.tokens[:kept],
            kinds=self.kinds[:kept],
            drops=self.drops[:kept],
            strict=self.strict[:kept],
            strict_drops=self.strict_drops[:kept],
        )


def verdict(tree: DraftTree, choice: Choice) -> Verdict:
    """``follow`` for an unbatched tree, brought to the host in a single transfer."""
    child_drop, target_drop, drafted, rewritten, target, reach = _to_host(
        choice.child_drop,
        choice.target_drop,
        tree.token,
        choice.tokens,
        choice.target,
        reached(tree, choice.tokens),
    )
    path = [node for node, on_path in enumerate(reach) if on_path]  # parents come first
    last = path[-1]
    return Verdict.of_path(
        path,
        drafted=[int(drafted[node]) for node in path[1:]],
        drops=[child_drop[node] for node in path[1:]],
        strict=[int(target[node]) for node in path],
        bonus=int(rewritten[last]),
        strict_drops=[target_drop[node] for node in path],
        bonus_drop=target_drop[last],
    )


def _to_host(*arrays: Tensor) -> list[list[float]]:
    """Arrays [N] as lists, in a single transfer from an accelerator."""
    if arrays[0].device.type == "cpu":
        return [array.tolist() for array in arrays]  # nothing to transfer: packing only costs
    # float64 holds token ids and float32 drops exactly, so one tensor carries everything.
    packed: list[list[float]] = torch.stack([array.double() for array in arrays]).tolist()
    return packed

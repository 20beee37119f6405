"""Steps that several rules share: choosing among children, among paths, and ranks within a row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree

_BLOCK = 128  # tokens per block of ``kth_largest``


def family(tree: DraftTree) -> Tensor:
    """bool[..., N, N]: (v, i) is True when i is a child of v."""
    return tree.parent.unsqueeze(-2) == tree.index.unsqueeze(-1)


def exact(target: Tensor, tree: DraftTree) -> Tensor:
    """bool[..., N]: nodes that hold their parent's own token y, i64[..., N]; root: anything."""
    return tree.token == target.gather(-1, tree.parent_index)


def follow_best(target: Tensor, tree: DraftTree, score: Tensor, protected: Tensor) -> Tensor:
    """``follow_least`` where nodes whose own token is protected (bool[V]) are closed."""
    return follow_least(target, tree, score, protected[target])


def follow_least(target: Tensor, tree: DraftTree, score: Tensor, closed: Tensor) -> Tensor:
    """The target's own token at every node, replaced by the child of least score.

    Args:
        target: i64[..., N], y.
        tree: N nodes.
        score: f32[..., N]; the lowest index wins ties, +inf is never followed.
        closed: bool[..., N], nodes that keep the target's own token.

    Returns i64[..., N].
    """
    best, child = torch.where(family(tree), score.unsqueeze(-2), math.inf).min(-1)  # first on ties
    replace = (best < math.inf) > closed  # of booleans: "and not"
    return torch.where(replace, tree.token_index.gather(-1, child), target)


def follow_first(target: Tensor, tree: DraftTree, accepted: Tensor, protected: Tensor) -> Tensor:
    """``follow_best`` with the first accepted child (bool[..., N]) in draft order."""
    return follow_best(target, tree, torch.where(accepted, tree.index, math.inf), protected)


def longest_path(accepted: Tensor, gain: Tensor, tree: DraftTree) -> Tensor:
    """i64[...]: the deepest node that is reached through accepted nodes alone; the root if none is.

    Ties go to the largest sum of ``gain`` along the path, then to the lowest index.

    Args:
        accepted: bool[..., N]; what it says of root and padding is not read.
        gain: f32[..., N], below +inf; 0 at the root.
        tree: N nodes.
    """
    reach = accepted & tree.is_child
    reach[..., 0] = True
    total = gain
    for _ in range(tree.max_depth - 1):  # children of the root are settled; one level a round
        reach = reach & reach.gather(-1, tree.parent_index)
        total = gain + total.gather(-1, tree.parent_index)
    depth = torch.where(reach, tree.depth, -1)
    deepest = depth == depth.amax(-1, keepdim=True)
    return torch.where(deepest, total, -math.inf).max(-1).indices  # first on ties


def follow_path(target: Tensor, tree: DraftTree, leaf: Tensor) -> Tensor:
    """i64[..., N]: the target's own tokens; on the way to ``leaf`` (i64[...]) those of the path."""
    tokens, node = target.clone(), leaf.unsqueeze(-1)
    for _ in range(tree.max_depth):
        parent = tree.parent_index.gather(-1, node)
        drafted, own = tree.token.gather(-1, node), tokens.gather(-1, parent)
        tokens.scatter_(-1, parent, torch.where(node > 0, drafted, own))  # above the root: nothing
        node = parent
    return tokens


def kth_largest(rows: Tensor, k: int) -> Tensor:
    """[...]: the k-th largest entry of each row of [..., V], equal entries counted one by one.

    The k blocks with the largest maxima hold an entry of that value, so only they are ranked, and
    no row is copied or sorted. The least entry when k > V.
    """
    k = min(k, rows.shape[-1])
    whole = rows.shape[-1] - rows.shape[-1] % _BLOCK
    if whole > k * _BLOCK:
        blocks = rows[..., :whole].reshape(*rows.shape[:-1], -1, _BLOCK)  # a view
        highest = blocks.amax(-1).topk(k, dim=-1).indices.unsqueeze(-1)
        chosen = blocks.gather(-2, highest.expand(*highest.shape[:-1], _BLOCK)).flatten(-2)
        rows = torch.cat([chosen, rows[..., whole:]], -1)
    return rows.topk(k, dim=-1).values[..., -1]

"""The draft trees of a batch, from the arrays SGLang verifies them with."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree

__all__ = ["tree_of"]


def tree_of(
    candidates: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    positions: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
) -> DraftTree:
    """The trees of B requests with N nodes each; nothing is read from the device.

    A node that nothing links to becomes padding. SGLang drafts one when a node's score ties with
    its parent's (a probability of exactly 1) and the parent is left out. What hangs from it is kept
    as it is: no walk reaches it.

    Args:
        candidates: i64[B, N], tokens; node 0 is the root.
        next_token: i64[B, N], the first child of each node, -1 for none.
        next_sibling: i64[B, N], the sibling after each node, -1 for none.
        positions: i64[B * N], seq_len + depth.
        seq_lens: i64[B], the position of each root.
        topk: most children of a node; with 1 the trees are chains.
        num_steps: most levels below the root. It becomes ``max_depth``, of which shallower trees
            leave some unused.

    ``logq`` is 0: the margin rule does not read it.
    """
    depth = positions.view_as(candidates) - seq_lens.unsqueeze(-1)
    logq = torch.zeros_like(candidates, dtype=torch.float32)
    index = torch.arange(candidates.shape[-1], device=candidates.device).expand_as(candidates)
    if topk == 1:
        return DraftTree(candidates, index - 1, depth, logq, num_steps)
    first = _linked_from(next_sibling, index, index)
    for _ in range((topk - 2).bit_length()):  # of topk - 1 hops to the first sibling
        first = first.gather(-1, first)
    parent = _linked_from(next_token, index, torch.full_like(index, -1)).gather(-1, first)
    lost = (parent < 0) & (index > 0)
    token, depth = candidates.masked_fill(lost, -1), depth.masked_fill(lost, 0)
    return DraftTree(token, parent, depth, logq, num_steps)


def _linked_from(link: Tensor, index: Tensor, default: Tensor) -> Tensor:
    """i64[B, N]: the node whose ``link`` leads to each node; ``default`` where there is none."""
    spare = torch.nn.functional.pad(default, (0, 1))  # takes the links that lead nowhere
    return spare.scatter_(-1, link.remainder(index.shape[-1] + 1), index)[..., :-1]

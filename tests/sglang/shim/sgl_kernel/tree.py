"""Draft trees: their links, mask and positions, and the strict walk through them.

A tree has N nodes, node 0 the root. Children are linked as a list: a node's first child and each
child's next sibling, -1 where there is none. `retrive_*` is how SGLang's operators spell it.
"""

from __future__ import annotations

import torch
from torch import Tensor

QLEN_ONLY = 1  # the mask covers the tree alone: bool[B, N, N]


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    num_draft_tokens: int,
    tree_mask_mode: int,
) -> None:
    """Fill the links [B, N], the mask and the positions of the trees from what was selected.

    Candidate c was offered by beam c // topk, where 0 is the root and beam t > 0 continues
    candidate `parent_list[:, t]`. `selected_index` [B, N - 1] holds the candidates that became
    nodes 1, 2, ..., rising.
    """
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError(f"tree_mask_mode {tree_mask_mode}: a CPU uses QLEN_ONLY alone")
    batch, n = len(seq_lens), num_draft_tokens
    parent = _parents(parent_list, selected_index, topk)  # [B, N], -1 for the root and orphans
    row = torch.arange(batch)[:, None]

    # Up from each node to the root, marking what is passed.
    mask = torch.zeros(batch, n, n, dtype=torch.bool)
    mask[:, :, 0] = True
    here = torch.arange(n).expand(batch, n)
    node_depth = torch.zeros(batch, n, dtype=torch.long)
    for _ in range(depth):
        below_root = here > 0
        node_depth += below_root
        mask[row, torch.arange(n), here] = True
        here = torch.where(below_root, parent.gather(1, here), here).clamp(min=0)
    tree_mask[: mask.numel()] = mask.view(-1)
    positions.copy_((seq_lens[:, None] + node_depth).view(-1))
    retrive_index.copy_(torch.arange(batch * n).view(batch, n))

    # Nodes have rising candidates, so of the children of a node the first has the smallest index.
    later_sibling = (parent[:, :, None] == parent[:, None, :]).triu(1)  # [B, node, sibling]
    later_sibling &= parent[:, :, None] >= 0
    retrive_next_sibling.copy_(_first(later_sibling))
    retrive_next_token.copy_(_first(parent[:, None, :] == torch.arange(n)[:, None]))


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Follow each tree from its root to the child that equals the target's token, while one does.

    Writes the flat indices of the nodes passed to `accept_index` [B, levels], the number of
    children followed to `accept_token_num` [B], and the target's token after each node passed to
    `predicts` [B * N].
    """
    levels = accept_index.shape[1]
    columns = (candidates, retrive_index, retrive_next_token, retrive_next_sibling, target_predict)
    trees = zip(*(column.view(candidates.shape).tolist() for column in columns), strict=True)
    for row, (token, flat, child, sibling, target) in enumerate(trees):
        path, node = [0], child[0]
        while node != -1 and len(path) < levels:
            if token[node] == target[path[-1]]:
                path.append(node)
                node = child[node]
            else:
                node = sibling[node]
        passed = [flat[node] for node in path]
        accept_index[row, : len(path)] = torch.tensor(passed, dtype=accept_index.dtype)
        accept_token_num[row] = len(path) - 1
        predicts[passed] = torch.tensor([target[node] for node in path], dtype=predicts.dtype)


def _parents(parent_list: Tensor, selected: Tensor, topk: int) -> Tensor:
    """i64[B, N]: the parent of each node; -1 for the root, and where the parent is no node."""
    beam = selected // topk
    if parent_list.numel():
        continued = parent_list.gather(1, beam.clamp(max=parent_list.shape[1] - 1))
        found = 1 + _first(selected[:, None, :] == continued[:, :, None])
        found = found.masked_fill(found == 0, -1)
    else:
        found = torch.zeros_like(selected)
    parent = torch.where(beam == 0, 0, found)
    return torch.cat([parent.new_full((len(parent), 1), -1), parent], 1)


def _first(mask: Tensor) -> Tensor:
    """Along the last axis, the index of the first True, or -1."""
    return torch.where(mask.any(-1), mask.to(torch.uint8).argmax(-1), -1)

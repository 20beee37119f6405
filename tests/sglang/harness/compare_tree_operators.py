"""Compares the shim's tree operators with SGLang's Triton kernels, in Triton's interpreter.

Exits with 1 where they differ.
"""

from __future__ import annotations

import sys

import sgl_kernel
import torch
from sglang.kernels.ops.speculative import spec_tree
from sglang.srt.speculative.eagle_utils import TreeMaskMode, organize_draft_results
from sglang.srt.speculative.spec_utils import select_top_k_tokens
from torch import Tensor

Arrays = tuple[Tensor, ...]
Shape = tuple[int, int, int, int]

SHAPES: tuple[Shape, ...] = (  # batch, topk, num_steps, num_draft_tokens
    (1, 4, 3, 8),
    (3, 4, 5, 16),
    (2, 2, 2, 4),
    (2, 8, 6, 32),
    (2, 1, 4, 5),
    (2, 3, 1, 3),
)
VOCAB = 50


def selected(batch: int, topk: int, steps: int, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """(parent list, selected candidates, their tokens) as SGLang's drafting leaves them."""
    scores, tokens, parents = [], [], []
    probability = torch.rand(batch, topk).sort(-1, descending=True).values
    offered = torch.randint(0, VOCAB, (batch, topk))
    hidden, best = torch.zeros(batch, 4), None
    for step in range(steps):
        _, hidden, best, (score, token, parent) = select_top_k_tokens(
            step, probability, offered, hidden, best, topk
        )
        scores.append(score)
        tokens.append(token)
        parents.append(parent)
        probability = torch.rand(batch * topk, topk).sort(-1, descending=True).values
        offered = torch.randint(0, VOCAB, (batch * topk, topk))
    parent_list, index, drafted = organize_draft_results(scores, tokens, parents, nodes)
    return parent_list, index, drafted


def built(parents: Tensor, index: Tensor, lengths: Tensor, shape: Shape, shim: bool) -> Arrays:
    """(mask, positions, flat index, first child, next sibling)."""
    batch, topk, steps, nodes = shape
    mask = torch.ones(batch * nodes * nodes, dtype=torch.bool)
    positions = torch.empty(batch * nodes, dtype=torch.long)
    flat, child, sibling = torch.full((3, batch, nodes), -1)
    mode = int(TreeMaskMode.QLEN_ONLY)
    outputs = mask, positions, flat, child, sibling
    if shim:
        operator = sgl_kernel.build_tree_kernel_efficient_cpu
        operator(parents, index, lengths, *outputs, topk, steps, nodes, mode)
    else:
        before = lengths.cumsum(0) - lengths
        spec_tree.sgl_build_tree_kernel_efficient_triton[(batch,)](
            parents,
            index,
            lengths,
            before,
            *outputs,
            topk=topk,
            depth=steps,
            draft_token_num=nodes,
            tree_mask_mode=mode,
            batch_size=batch,
            parent_list_stride=parents.stride(0),
            selected_index_stride=index.stride(0),
        )
    return outputs


def walked(tokens: Tensor, links: Arrays, target: Tensor, steps: int, shim: bool) -> Arrays:
    """(tokens after each node passed, nodes passed, how many)."""
    batch, nodes = tokens.shape
    predicts = torch.zeros(batch * nodes, dtype=torch.int32)
    passed = torch.full((batch, steps + 1), -1, dtype=torch.int32)
    count = torch.empty(batch, dtype=torch.int32)
    arrays = predicts, passed, count, tokens, *links, target
    if shim:
        sgl_kernel.verify_tree_greedy_cpu(*arrays)
    else:
        spec_tree.verify_tree_greedy_kernel_triton[(batch,)](
            *arrays, batch_size=batch, num_speculative_tokens=steps + 1, num_draft_tokens=nodes
        )
    return predicts, passed, count


def main() -> int:
    torch.manual_seed(0)
    followed = 0
    for shape in SHAPES * 3:
        batch, _, steps, nodes = shape
        parents, index, drafted = selected(*shape)
        lengths = torch.randint(3, 9, (batch,))
        theirs, ours = (built(parents, index, lengths, shape, shim) for shim in (False, True))
        tokens = torch.cat([torch.zeros(batch, 1, dtype=torch.long), drafted], 1)
        child = theirs[3]
        # At most nodes the target agrees with the first child.
        agrees = (child >= 0) & (torch.rand(batch, nodes) < 0.7)
        other = torch.randint(0, VOCAB, (batch, nodes))
        target = torch.where(agrees, tokens.gather(1, child.clamp(min=0)), other)
        theirs += walked(tokens, theirs[2:], target, steps, shim=False)
        ours += walked(tokens, ours[2:], target, steps, shim=True)
        followed += int(ours[-1].sum())
        if not all(map(torch.equal, theirs, ours)):
            print(f"{shape}: SGLang {theirs}\nshim {ours}")
            return 1
    print(f"equal; {followed} drafts followed")
    return 0 if followed else 1


if __name__ == "__main__":
    sys.exit(main())

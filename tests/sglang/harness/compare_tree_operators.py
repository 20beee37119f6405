"""Compares the shim's tree operators with SGLang's Triton kernels, in Triton's interpreter.

Exits with 1 where they differ.
"""

from __future__ import annotations

import sys

import sgl_kernel
import torch
from sglang.kernels.ops.speculative import spec_tree
from sglang.srt.speculative.eagle_utils import organize_draft_results
from sglang.srt.speculative.spec_utils import select_top_k_tokens
from torch import Tensor

SHAPES = (  # batch, topk, num_steps, num_draft_tokens
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


def build(operator, batch: int, topk: int, steps: int, nodes: int, *inputs: Tensor):
    """(mask, positions, flat index, first child, next sibling)."""
    mask = torch.ones(batch * nodes * nodes, dtype=torch.bool)
    positions = torch.empty(batch * nodes, dtype=torch.long)
    index, child, sibling = torch.full((3, batch, nodes), -1)
    mode = spec_tree.TreeMaskMode.QLEN_ONLY
    operator(*inputs, mask, positions, index, child, sibling, topk, steps, nodes, mode)
    return mask, positions, index, child, sibling


def walk(operator, steps: int, candidates: Tensor, links: tuple[Tensor, ...], target: Tensor):
    """(tokens after each node passed, nodes passed, how many)."""
    predicts = torch.zeros(candidates.numel(), dtype=torch.int32)
    passed = torch.full((len(candidates), steps + 1), -1, dtype=torch.int32)
    count = torch.empty(len(candidates), dtype=torch.int32)
    operator(predicts, passed, count, candidates, *links, target)
    return predicts, passed, count


def main() -> int:
    torch.manual_seed(0)
    followed = 0
    for shape in SHAPES * 3:
        batch, topk, steps, nodes = shape
        parent_list, index, drafted = selected(*shape)
        inputs = parent_list, index, torch.randint(3, 9, (batch,))
        theirs = build(spec_tree.sgl_build_tree_kernel_triton, *shape, *inputs)
        ours = build(sgl_kernel.build_tree_kernel_efficient_cpu, *shape, *inputs)
        candidates = torch.cat([torch.zeros(batch, 1, dtype=torch.long), drafted], 1)
        child = theirs[3]
        # At most nodes the target agrees with the first child.
        agreed = candidates.gather(1, child.clamp(min=0))
        agrees = (child >= 0) & (torch.rand(batch, nodes) < 0.7)
        target = torch.where(agrees, agreed, torch.randint(0, VOCAB, (batch, nodes)))
        theirs += walk(spec_tree.verify_tree_greedy_triton, steps, candidates, theirs[2:], target)
        ours += walk(sgl_kernel.verify_tree_greedy_cpu, steps, candidates, ours[2:], target)
        followed += int(ours[-1].sum())
        if not all(map(torch.equal, theirs, ours)):
            print(f"{shape}: SGLang {theirs}\nshim {ours}")
            return 1
    print(f"equal; {followed} drafts followed")
    return 0 if followed else 1


if __name__ == "__main__":
    sys.exit(main())

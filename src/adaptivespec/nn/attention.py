"""Attention of a few query rows over a cache, and the masks that trees need."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention.

    `q [R, heads, D]`, `k, v [kv_heads, T, D]`, `mask [groups * R, T]` additive (from
    `additive_mask`) or None when every row sees everything.  Returns `[R, heads * D]`.
    The query heads that share a key head become rows of one product.
    """
    rows, heads, head_dim = q.shape
    kv_heads = k.shape[0]
    groups = heads // kv_heads
    q = q.view(rows, kv_heads, groups, head_dim).permute(1, 2, 0, 3)
    q = q.reshape(1, kv_heads, groups * rows, head_dim)
    out = F.scaled_dot_product_attention(q, k.unsqueeze(0), v.unsqueeze(0), attn_mask=mask)
    out = out.view(kv_heads, groups, rows, head_dim).permute(2, 0, 1, 3)
    return out.reshape(rows, heads * head_dim)


def additive_mask(visible: Tensor, prefix: int, groups: int, dtype: torch.dtype) -> Tensor:
    """Mask `[groups * R, prefix + C]` from `visible bool[R, C]`: the prefix is seen by all rows."""
    rows, columns = visible.shape
    mask = torch.zeros(rows, prefix + columns, dtype=dtype, device=visible.device)
    mask[:, prefix:].masked_fill_(~visible, float("-inf"))
    return mask.repeat(groups, 1)


def causal(rows: int, device: torch.device | None = None) -> Tensor:
    """`visible bool[rows, rows]` of a plain run of tokens."""
    return torch.ones(rows, rows, dtype=torch.bool, device=device).tril()


def pieces(tokens: Tensor, start: int, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """A run of `tokens i64[K]` that begins at position `start`, in pieces of at most `size`.

    Of each piece its tokens and positions `[R]`, and what its rows see of it, as `causal`.
    """
    for piece in tokens.split(size):
        rows = piece.shape[0]
        positions = torch.arange(start, start + rows, device=tokens.device)
        yield piece, positions, causal(rows, tokens.device)
        start += rows

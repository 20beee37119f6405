"""Attention over a paged KV pool, in float32, one request at a time.

So a request's result does not depend, to the last bit, on which others are in its batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def decode_attention_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    slots: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    rows: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross: bool,
    sliding_window: int,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
) -> None:
    """One query [heads, dim] per row; its key and value are stored in `slots` first."""
    _refuse(logit_cap, is_cross, sliding_window, sinks)
    if key is not None and value is not None:
        k_buffer[slots] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[slots] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, (row, length) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        seen = req_to_token[row, :length].long()
        output[i : i + 1] = _attention(
            query[i : i + 1], k_buffer[seen], v_buffer[seen], sm_scale, None
        )


def extend_attention_cpu(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    output: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    rows: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross: bool,
    sliding_window: int,
    encoder_lens: Tensor | None = None,
    sinks: Tensor | None = None,
    tree_mask: Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """The last `extend_seq_lens[i]` positions of each row attend to all before them in that row.

    Among themselves they see what `tree_mask` says (an E x E block per request, one after the
    other), or what came before. Keys and values are in the pool already.
    """
    _refuse(logit_cap, is_cross, sliding_window, sinks)
    offset = 0
    columns = (rows, seq_lens, extend_seq_lens, extend_start_loc)
    for row, length, new, start in zip(*(column.tolist() for column in columns), strict=True):
        mask = None
        if tree_mask is not None:
            mask = tree_mask[offset : offset + new * new].view(new, new)
            offset += new * new
        elif is_causal:
            mask = torch.ones(new, new, dtype=torch.bool).tril()
        seen = req_to_token[row, :length].long()
        output[start : start + new] = _attention(
            query[start : start + new], k_buffer[seen], v_buffer[seen], sm_scale, mask
        )


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    rows: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """[B * topk, pool_len]: for each beam the slots of the sequence, then those of its own drafts.

    Beam k drafts into the positions from `seq_len + k * num_steps` on of its request's row.
    """
    drafts = seq_lens[:, None] + torch.arange(topk) * num_steps  # [B, topk]
    table = req_to_token[rows.long()].repeat_interleave(topk, 0)
    step = torch.arange(num_steps)
    to = seq_lens.repeat_interleave(topk)[:, None] + step
    source = drafts.view(-1, 1) + step
    return table.scatter(1, to, table.gather(1, source))


def _attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None
) -> Tensor:
    """[T, H, D] of query [T, H, D] over key and value [S, Hk, D].

    `mask` [T, T] says which of the last T keys each query sees; it sees all those before.
    """
    tokens, heads, dim = query.shape
    groups = heads // key.shape[1]
    # Queries that share a key head are stacked, so the keys need not be repeated.
    q = query.float().view(tokens, -1, groups, dim).permute(1, 2, 0, 3)  # [Hk, G, T, D]
    k, v = key.float().transpose(0, 1), value.float().transpose(0, 1)  # [Hk, S, D]
    scores = q.flatten(1, 2) @ k.transpose(1, 2) * scale  # [Hk, G * T, S]
    if mask is not None:
        scores.view(*q.shape[:3], -1)[..., -tokens:].masked_fill_(~mask, float("-inf"))
    out = (scores.softmax(-1) @ v).view(*q.shape[:3], -1)
    return out.permute(2, 0, 1, 3).reshape(tokens, heads, -1).to(query.dtype)


def _refuse(logit_cap: float, is_cross: bool, sliding_window: int, sinks: Tensor | None) -> None:
    """NotImplementedError for what a Llama and its head do not use."""
    if is_cross or sinks is not None or sliding_window > 0 or (logit_cap or 0) > 0:
        raise NotImplementedError("only full self-attention without logit cap and sinks")

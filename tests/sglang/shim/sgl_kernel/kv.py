"""Bookkeeping of KV slots: `req_to_token[row, position]` is the slot of a token of a request."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    rows: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    slots: Tensor,
    pool_len: int,
) -> None:
    """Write `slots`, one request after the other, to positions [start, end) of each row."""
    row, position = _positions(rows, start, end)
    req_to_token[row, position] = slots[: len(row)].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    rows: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    slots: Tensor,
    pool_len: int,
) -> None:
    """Read the slots of positions [start, end) of each row into `slots`."""
    row, position = _positions(rows, start, end)
    slots[: len(row)] = req_to_token[row, position].to(slots.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    rows: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    slots: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the slots of the `topk * num_steps` positions after each sequence into `slots`."""
    assign_extend_cache_locs_cpu(
        rows, req_to_token, seq_lens, seq_lens + topk * num_steps, slots, pool_len
    )


def fill_bonus_tokens_cpu(tokens: Tensor, lengths: Tensor, bonus: Tensor, stride: int) -> None:
    """The last of the `lengths[i]` tokens that request i committed, `stride` apart in `tokens`."""
    last = torch.arange(len(lengths)) * stride + lengths.long() - 1
    bonus.copy_(tokens.reshape(-1)[last])


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, slots: Tensor, accepted: Tensor) -> None:
    """The slots of the accepted nodes (those that are not -1), packed to the front."""
    nodes = accept_index.reshape(-1).long()
    nodes = nodes[nodes >= 0]
    accepted[: len(nodes)] = slots[nodes]


def copy_all_layer_kv_cache_cpu(
    pointers: Tensor, row_bytes: Tensor, to_slots: Tensor, from_slots: Tensor
) -> None:
    """In each buffer (a pointer and the bytes of a row) copy rows, which may overlap."""
    if not to_slots.numel():
        return
    to, source = to_slots.long().numpy(), from_slots.long().numpy()
    rows = int(max(to.max(), source.max())) + 1
    for pointer, width in zip(pointers.tolist(), row_bytes.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * width)).from_address(pointer)
        buffer = np.frombuffer(memory, np.uint8).reshape(rows, width)
        buffer[to] = buffer[source]


def rotate_input_ids_cpu(
    input_ids: Tensor,
    start: Tensor,
    lengths: Tensor,
    last_token: Tensor,
    last_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens left by one and put `last_token` at the end (or `last_index`)."""
    ends = start + lengths - 1
    for first, end in zip(start.tolist(), ends.tolist(), strict=True):
        input_ids[first:end] = input_ids[first + 1 : end + 1].clone()
    input_ids[(ends if last_index is None else last_index).long()] = last_token.reshape(-1)


def _positions(rows: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Row and position of each element of the ranges [start, end), one range after the other."""
    lengths = (end - start).long()
    row = rows.long().repeat_interleave(lengths)
    before = lengths.cumsum(0) - lengths
    position = torch.arange(len(row)) + (start.long() - before).repeat_interleave(lengths)
    return row, position

"""Attention of an unrolled head: the text's keys, and a later step's own keys at the same row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from adaptivespec.train.head.pack import Pack


class UnrolledAttention(Function):
    """Attention of the packed rows at unroll step k.

    Args:
        q: `[R, heads, D]`, rotated.
        keys, values: `[B * kv, C, D]` of step 0 for all positions, columns as in `Pack.mask`; the
            values of its last `steps - 1` columns are zero.
        own: keys and values `[R, kv, D]` of steps 1..k, in turn; row r sees only its own of them.

    Returns `[R, heads * D]`.  Scores of own keys take the last columns, so one softmax serves both
    sorts, and the padded matrix has one shape for all steps.
    """

    @staticmethod
    def forward(
        ctx: Any, pack: Pack, q: Tensor, keys: Tensor, values: Tensor, *own: Tensor
    ) -> Tensor:
        rows, heads, dim = q.shape
        kv, columns = keys.shape[0] // pack.count, keys.shape[1]
        q = q * dim**-0.5
        grouped = q.view(rows, kv, heads // kv, dim)
        padded = pack.pad(q).reshape(keys.shape[0], -1, dim)
        score = torch.bmm(padded, keys.transpose(1, 2))
        table = score.view(pack.count, heads, -1, columns)
        table += pack.mask
        for j, key in enumerate(own[::2]):
            said = (grouped * key.unsqueeze(2)).sum(-1).view(rows, heads)
            table[..., pack.own_column(j)] = pack.pad_heads(said)
        weight = torch.softmax(score, -1, out=score)
        out = pack.unpad(torch.bmm(weight, values).view(pack.count, heads, -1, dim))
        table = weight.view_as(table)
        for j, value in enumerate(own[1::2]):
            share = pack.unpad_heads(table[..., pack.own_column(j)]).view(rows, kv, -1, 1)
            out.view_as(grouped).addcmul_(share, value.unsqueeze(2))
        ctx.save_for_backward(q, padded, weight, keys, values, *own)
        ctx.pack = pack
        return out.view(rows, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, padded, weight, keys, values, *own = ctx.saved_tensors
        pack: Pack = ctx.pack
        rows, heads, dim = q.shape
        kv = keys.shape[0] // pack.count
        g = grads[0].view(rows, kv, heads // kv, dim)
        # Padding stands in for a real row; what it would send back must not reach that row.
        g_padded = pack.pad(grads[0].view(rows, heads, dim), zero=True).view_as(padded)
        g_values = torch.bmm(weight.transpose(1, 2), g_padded)
        g_weight = torch.bmm(g_padded, values.transpose(1, 2))
        table = weight.view(pack.count, heads, -1, keys.shape[1])
        g_table = g_weight.view_as(table)
        g_own: list[Tensor] = []
        for j, value in enumerate(own[1::2]):
            said = (g * value.unsqueeze(2)).sum(-1).view(rows, heads)
            g_table[..., pack.own_column(j)] = pack.pad_heads(said, zero=True)
            share = pack.unpad_heads(table[..., pack.own_column(j)]).view(rows, kv, -1, 1)
            g_own.append((share * g).sum(2))
        # In place, here and above: these matrices are large enough for fresh memory to cost time.
        g_score = torch.ops.aten._softmax_backward_data.out(
            g_weight, weight, -1, weight.dtype, grad_input=g_weight
        )
        g_keys = torch.bmm(g_score.transpose(1, 2), padded)
        g_q = pack.unpad(torch.bmm(g_score, keys).view(pack.count, heads, -1, dim))
        g_table = g_score.view_as(table)
        grouped = q.view_as(g)
        both: list[Tensor] = []
        for j, key in enumerate(own[::2]):
            share = pack.unpad_heads(g_table[..., pack.own_column(j)]).view(rows, kv, -1, 1)
            g_q.view_as(g).addcmul_(share, key.unsqueeze(2))
            both += [(share * grouped).sum(2), g_own[j]]
        return None, g_q.mul_(dim**-0.5), g_keys, g_values, *both

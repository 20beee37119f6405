"""Differentiable pieces of the head that cost less than their compositions in torch.

All of them take packed rows `[R, ...]` in bfloat16 or float32; statistics are kept in float32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from adaptivespec.nn.rope import rotate


class Weight:
    """A weight matrix `[out, in]` in compute precision; its gradient is one product at the end.

    Every use notes its input and the gradient of its output.  Over all unroll steps together
    these give the weight's gradient in one matrix product, accumulated in float32.
    """

    def __init__(self) -> None:
        self.value = torch.empty(0)
        self.uses: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        self.joined: dict[tuple[int, int, int], Tensor] = {}

    def set(self, value: Tensor, dtype: torch.dtype) -> None:
        """Take over a float32 `value`; the buffer is kept between calls."""
        if self.value.shape != value.shape or self.value.dtype != dtype:
            self.value, self.joined = torch.empty_like(value, dtype=dtype), {}
        self.value.copy_(value)
        self.uses = {}

    def note(self, x: Tensor, gradient: Tensor, rows: tuple[int, int] | None = None) -> None:
        """Note an input `[R, in]` and the gradient `[R, out]` of its output, or of `rows` of it."""
        span = rows or (0, self.value.shape[0])
        self.uses.setdefault(span, []).append((x, gradient))

    def gradient(self) -> Tensor:
        """`[out, in]` of all uses since `set`, which it forgets."""
        parts = []
        for span, uses in self.uses.items():
            x, g = (self._join(span, i, [use[i] for use in uses]) for i in (0, 1))
            parts.append((span, g.t() @ x))
        self.uses = {}
        whole = (0, self.value.shape[0])
        if len(parts) == 1 and parts[0][0] == whole:
            return parts[0][1]
        total = torch.zeros(self.value.shape)
        for (start, stop), part in parts:
            total[start:stop] += part
        return total

    def _join(self, span: tuple[int, int], side: int, parts: list[Tensor]) -> Tensor:
        """Rows of all `parts`, in a buffer that is kept: fresh memory costs as much as copying."""
        if len(parts) == 1:
            return parts[0]
        rows, key = sum(t.shape[0] for t in parts), (*span, side)
        if key not in self.joined or self.joined[key].shape[0] < rows:
            self.joined[key] = torch.empty(rows, parts[0].shape[1], dtype=parts[0].dtype)
        return torch.cat(parts, out=self.joined[key][:rows])


class Linear(Function):
    """`x @ W[start:stop].T (+ addend)`.

    `anchor` is a parameter behind the weight: it makes torch call `backward` and gets no gradient
    here.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Weight, rows: tuple[int, int], anchor: Tensor, addend: Any
    ) -> Tensor:
        w = weight.value[rows[0] : rows[1]]
        ctx.save_for_backward(x)
        ctx.weight, ctx.rows, ctx.w, ctx.added = weight, rows, w, addend is not None
        return F.linear(x, w) if addend is None else torch.addmm(addend, x, w.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), g = ctx.saved_tensors, grads[0]
        ctx.weight.note(x, g, ctx.rows)
        back = g @ ctx.w if ctx.needs_input_grad[0] else None
        return back, None, None, None, g if ctx.added else None


class RmsNorm(Function):
    """`x / sqrt(mean(x^2) + eps) * gain` over the last dimension of `x [R, H]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = (norm.square_().div_(x.shape[-1]).add_(eps)).rsqrt_()
        ctx.save_for_backward(x, gain, scale)
        return (x.float() * scale).mul_(gain).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, gain, scale = ctx.saved_tensors
        g, unit = grads[0].float(), x.float() * scale
        along = g * unit
        g_gain = along.sum(0)
        if not ctx.needs_input_grad[0]:
            return None, g_gain, None
        mean = torch.mv(along, gain).div_(x.shape[-1]).unsqueeze(1)
        back = torch.addcmul(g * gain, unit, mean, value=-1).mul_(scale)
        return back.to(x.dtype), g_gain, None


class Rotate(Function):
    """Rotary position embedding of `x [R, heads, D]`; its transpose turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        return rotate(grads[0], cos, -sin), None, None


class SwiGlu(Function):
    """`silu(gate) * up` of `both [R, 2 F]`, the gate first."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, -1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (both,), g = ctx.saved_tensors, grads[0]
        gate, up = both.chunk(2, -1)
        back = torch.empty_like(both)
        g_gate, g_up = back.chunk(2, -1)
        torch.ops.aten.silu.out(gate, out=g_up).mul_(g)
        torch.mul(g, up, out=g_gate)
        torch.ops.aten.silu_backward.grad_input(g_gate, gate, grad_input=g_gate)
        return back


class Take(Function):
    """Rows `index i64[n]` of `x [R, ...]`; the first `count` are distinct, the rest padding."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape, ctx.count = x.shape, count
        return x[index]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (index,), g = ctx.saved_tensors, grads[0]
        back = torch.zeros(ctx.shape, dtype=g.dtype)
        back[index[: ctx.count]] = g[: ctx.count]
        return back, None, None

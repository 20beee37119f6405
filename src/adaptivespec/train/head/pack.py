"""Texts of unlike lengths as one batch: which rows are computed, and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Shapes are rounded up to these, since matrix kernels are compiled once per shape.
LENGTH_STEP, ROWS_STEP = 64, 32


@dataclass
class Pack:
    """`count` texts of up to `length` positions, and the `rows` positions that draft.

    Text b lies at `b * length`.  Its positions `firsts[b]..` are packed one text after another;
    the first `real` packed rows are these, the rest is padding.  Attention works on padded
    `[count, heads, longest, ...]` matrices whose columns are the positions, then one column for
    each later unroll step.
    """

    count: int
    length: int
    steps: int
    longest: int
    real: int
    place: Tensor  # i64[rows], b * length + position; padding names position `length - 1`
    position: Tensor  # i64[rows]
    slot: Tensor  # i64[count * longest], the packed row in each padded place
    filled: Tensor  # bool[count * longest], whether that place is a row's own
    cell: Tensor  # i64[rows], the padded place of each packed row
    mask: Tensor  # [count, 1, longest, length + steps - 1], 0 where visible, -inf elsewhere

    @classmethod
    def of(
        cls, lengths: Sequence[int], firsts: Sequence[int], steps: int, dtype: torch.dtype
    ) -> Pack:
        """Rows `firsts[b] <= t < lengths[b]` of texts with `lengths[b]` positions draft."""
        count = len(lengths)
        # One position more than the longest text: padding rows read it, and nothing counts there.
        length = rounded(max(lengths) + steps, LENGTH_STEP) - (steps - 1)
        counts = [max(n - first, 0) for n, first in zip(lengths, firsts, strict=True)]
        longest, real = rounded(max(counts), LENGTH_STEP), sum(counts)
        rows = rounded(real, ROWS_STEP)
        place = torch.full((rows,), length - 1)
        slot = torch.zeros(count, longest, dtype=torch.long)
        filled = torch.zeros(count, longest, dtype=torch.bool)
        cell = torch.zeros(rows, dtype=torch.long)
        start = 0
        for b, (first, size) in enumerate(zip(firsts, counts, strict=True)):
            span = torch.arange(size)
            place[start : start + size] = b * length + first + span
            slot[b, :size] = start + span
            filled[b, :size] = True
            cell[start : start + size] = b * longest + span
            start += size
        last = torch.tensor(firsts)[:, None] + torch.arange(longest)  # [count, longest]
        columns = torch.arange(length + steps - 1)
        visible = (columns <= last[..., None]) & (columns < length)
        mask = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, -torch.inf)
        return cls(
            count=count,
            length=length,
            steps=steps,
            longest=longest,
            real=real,
            place=place,
            position=place % length,
            slot=slot.view(-1),
            filled=filled.view(-1),
            cell=cell,
            mask=mask.unsqueeze(1),
        )

    @property
    def rows(self) -> int:
        return self.place.shape[0]

    def own_column(self, j: int) -> int:
        """The column of the own key of unroll step `j + 1`."""
        return self.length + j

    def pad(self, x: Tensor, zero: bool = False) -> Tensor:
        """`[rows, heads, D]` to `[count, heads, longest, D]`; unfilled places repeat or are 0."""
        out = x[self.slot]
        if zero:
            out *= self.filled.view(-1, 1, 1)
        heads, dim = x.shape[1:]
        return out.view(self.count, self.longest, heads, dim).transpose(1, 2).contiguous()

    def pad_heads(self, x: Tensor, zero: bool = False) -> Tensor:
        """`[rows, heads]` to `[count, heads, longest]`, as `pad`."""
        return self.pad(x.unsqueeze(-1), zero).squeeze(-1)

    def unpad(self, x: Tensor) -> Tensor:
        """`[count, heads, longest, D]` to `[rows, heads, D]`; padding rows are 0."""
        heads, dim = x.shape[1], x.shape[3]
        out = x.transpose(1, 2).reshape(-1, heads, dim)[self.cell]
        out[self.real :] = 0
        return out

    def unpad_heads(self, x: Tensor) -> Tensor:
        """`[count, heads, longest]` to `[rows, heads]`, as `unpad`."""
        return self.unpad(x.unsqueeze(-1)).squeeze(-1)


def rounded(number: int, step: int) -> int:
    """`number` rounded up to a multiple of `step`, at least one step."""
    return max(-(-number // step), 1) * step

"""A preallocated key/value cache for one sequence, with room for a tree of tentative rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Rows(Protocol):
    """Where a pass puts the keys and values of its rows, and what these may look at."""

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write `k, v [R, kv_heads, D]`; those of all rows in sight, `[kv_heads, T, D]`."""


class KVCache:
    """Keys and values of one sequence: `[layers, kv_heads, capacity, head_dim]` each.

    Rows `[0, length)` are committed.  A pass writes its rows behind them, at
    `[length, length + R)`; they count only once `commit` says which of them stay.
    """

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        shape = (num_layers, num_kv_heads, capacity, head_dim)
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros_like(self.k)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.k.shape[2]

    @property
    def num_bytes(self) -> int:
        return 2 * self.k.numel() * self.k.element_size()

    # Buffers grown inside an inference pass may only be written inside one.
    @torch.inference_mode()
    def reserve(self, rows: int) -> None:
        """Make room for `rows` in all, keeping what is written; grows by half at least."""
        if rows <= self.capacity:
            return
        rows = max(rows, self.capacity * 3 // 2)
        for name in ("k", "v"):
            old = getattr(self, name)
            new = old.new_zeros((*old.shape[:2], rows, old.shape[3]))
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    def behind(self, rows: int = 0) -> Rows:
        """Where a pass writes that comes `rows` rows behind the committed ones."""
        return _Behind(self, self.length + rows)

    @torch.inference_mode()
    def commit(self, rows: Sequence[int]) -> None:
        """Keep the tentative rows `rows` (offsets from `length`, ascending), in that order."""
        count = len(rows)
        if list(rows) != list(range(count)):
            start = self.length
            index = torch.tensor(rows, device=self.k.device) + start
            self.k[:, :, start : start + count] = self.k.index_select(2, index)
            self.v[:, :, start : start + count] = self.v.index_select(2, index)
        self.length += count

    @torch.inference_mode()
    def copy(self, other: KVCache, rows: int) -> None:
        """Hold the first `rows` rows of `other`, of the same shape, in place of all it held."""
        self.length = 0
        self.reserve(rows)
        self.k[:, :, :rows] = other.k[:, :, :rows]
        self.v[:, :, :rows] = other.v[:, :, :rows]
        self.length = rows

    def truncate(self, length: int) -> None:
        """Forget the rows from `length` on."""
        self.length = min(self.length, length)


@dataclass(frozen=True)
class _Behind:
    """Rows from `start` on. All before them are in sight."""

    cache: KVCache
    start: int

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        end = self.start + k.shape[0]
        keys, values = self.cache.k[layer, :, :end], self.cache.v[layer, :, :end]
        keys[:, self.start :] = k.transpose(0, 1)
        values[:, self.start :] = v.transpose(0, 1)
        return keys, values

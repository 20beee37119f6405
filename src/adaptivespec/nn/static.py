"""Passes of fixed shapes over caches of fixed size, for devices that replay what was captured.

A GPU runs a pass of a few rows faster than a host can launch its kernels one by one, so they are
captured as a CUDA graph and launched together.  A graph repeats the same work on the same memory:
shapes are rounded up to a bucket, what differs between passes lies in tensors, and a cache that
grows leaves its graphs behind.  Buffers and graphs of a sequence that has ended serve the next one.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from adaptivespec.nn.kv import KVCache

#: The smallest bucket.  All passes within a bucket run the same kernels, so that rows of plain
#: decoding and of chains get the same bits; siblings put their keys in other columns, and may round
#: otherwise.
LEAST_ROWS = 16
#: A cache's capacity is a multiple, which aligns the rows of masks for any attention kernel.
_LEAST_CAPACITY = 256


def bucket(rows: int, least: int = LEAST_ROWS) -> int:
    """The number of rows that a pass of `rows` is rounded up to: a power of two from `least` on."""
    return max(least, 1 << (rows - 1).bit_length())


class Capture(Protocol):
    """How work on fixed memory is done again and again on a device."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """What does that work again, given that it has been done once."""

    def wait(self) -> None:
        """Return when all that was begun is done."""


class Uncaptured:
    """Does the work anew each time: what a device without graphs has."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def wait(self) -> None:
        pass


class CudaGraphs:
    """Captures CUDA graphs on one device; they share the memory of what they compute on the way.

    They must run one after another, as those of one engine do.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                work()  # kernels load and libraries take their workspaces outside of a capture
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads of a server may use the device meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                work()
        return graph.replay

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()


def capture_for(device: torch.device) -> Capture:
    """How passes on `device` are repeated."""
    return CudaGraphs(device) if device.type == "cuda" else Uncaptured()


class StaticPass:
    """Work captured when it first runs: fill its `inputs`, `run` it, and read its `outputs`.

    Outputs are memory of their own, overwritten by the next run of this pass alone.

    Args:
        inputs: tensors that the work reads, by name.
        body: the work, on them and on other tensors that stay where they are. Done twice over, it
            leaves what it leaves when done once.
        capture: how it is repeated.
    """

    def __init__(
        self,
        inputs: dict[str, Tensor],
        body: Callable[[], Sequence[Tensor]],
        capture: Capture,
    ) -> None:
        self.inputs = inputs
        self.outputs: tuple[Tensor, ...] = ()
        self._body, self._capture = body, capture
        self._replay: Callable[[], None] | None = None

    def run(self) -> None:
        """Do the work on what the inputs hold now."""
        if self._replay is None:
            self.outputs = tuple(torch.empty_like(result) for result in self._body())
            self._replay = self._capture.capture(self._work)
        self._replay()

    def forget(self) -> None:
        """Clear the numbers that the inputs hold: rows that a run leaves unfilled are computed."""
        for given in self.inputs.values():
            if given.is_floating_point():
                given.zero_()

    def _work(self) -> None:
        for output, result in zip(self.outputs, self._body(), strict=True):
            output.copy_(result)


@dataclass
class _Memory:
    """Buffers `[layers, kv_heads, capacity, head_dim]`, and the passes captured over them."""

    k: Tensor
    v: Tensor
    passes: dict[Hashable, StaticPass] = field(default_factory=dict)


class StaticCache(KVCache):
    """A `KVCache` whose passes are captured; its capacity is a power of two.

    Made by `StaticCaches`.  A captured pass looks at all its capacity through a mask, so what lies
    beyond the committed rows must be numbers: forgetting everything clears it.
    """

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self.length = 0

    @property
    def k(self) -> Tensor:
        return self._memory.k

    @k.setter
    def k(self, buffer: Tensor) -> None:
        self._memory.k = buffer

    @property
    def v(self) -> Tensor:
        return self._memory.v

    @v.setter
    def v(self, buffer: Tensor) -> None:
        self._memory.v = buffer

    def reserve(self, rows: int) -> None:
        if rows > self.capacity:
            self._memory.passes.clear()  # they write to the old buffers
            super().reserve(bucket(rows, _LEAST_CAPACITY))

    @torch.inference_mode()
    def truncate(self, length: int) -> None:
        super().truncate(length)
        if length == 0:
            self.k.zero_()
            self.v.zero_()
            for static in self._memory.passes.values():
                static.forget()

    def captured(self, key: Hashable, make: Callable[[], StaticPass]) -> StaticPass:
        """The pass of that key over the present buffers, made if there is none."""
        found = self._memory.passes.get(key)
        if found is None:
            found = self._memory.passes[key] = make()
        return found


@dataclass(frozen=True)
class StaticRows:
    """Rows `index i64[R]` of a cache's buffers. All of them are in sight; a mask says what is seen.

    Not of the cache itself, which passes over its buffers must not keep alive.
    """

    k: Tensor
    v: Tensor
    index: Tensor

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.k[layer], self.v[layer]
        keys.index_copy_(1, self.index, k.transpose(0, 1))
        values.index_copy_(1, self.index, v.transpose(0, 1))
        return keys, values


class StaticCaches:
    """Hands out caches for one model, and takes them back with their graphs when they are let go.

    Args:
        num_layers, num_kv_heads, head_dim, dtype, device: of the caches.
    """

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._layers, self._heads, self._size = num_layers, num_kv_heads, head_dim
        self._dtype, self._device = dtype, device
        self._free: deque[_Memory] = deque()

    def take(self, capacity: int) -> StaticCache:
        """An empty cache with room for `capacity` rows: one that was used before, if there is."""
        try:
            memory = self._free.pop()
        except IndexError:
            shape = (self._layers, self._heads, bucket(capacity, _LEAST_CAPACITY), self._size)
            k = torch.zeros(shape, dtype=self._dtype, device=self._device)
            memory = _Memory(k, torch.zeros_like(k))
        cache = StaticCache(memory)
        cache.truncate(0)
        cache.reserve(capacity)
        weakref.finalize(cache, self._free.append, memory).atexit = False
        return cache


def static_mask(seen: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """The additive mask `[groups * R, T]` of `seen bool[R, T]`."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill_(~seen, float("-inf")).repeat(groups, 1)

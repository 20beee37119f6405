"""The floor: what no pass of a model can be quicker than on this machine.

A pass reads every weight and the keys and values it sees once, and multiplies every weight with
every row. Reading and multiplying can overlap, so the floor is the longer of the two, at the rates
that this machine shows when it does nothing else.
"""

from __future__ import annotations

from ctypes import Structure, byref, c_double, c_int32, c_int64
from dataclasses import asdict, dataclass
from typing import Any

from adaptivespec.native.library import Library, Mode, NativeModel, load_library

__all__ = ["Floor", "Rates", "Work", "measure_rates"]

#: What is read to measure the memory, at least and at most.
_BYTES = 32 << 20, 1 << 30
_F16 = 2


@dataclass(frozen=True)
class Rates:
    """What a machine does in a second.

    Attributes:
        bytes: read from memory.
        dots: multiply-adds of bytes, as in matrix products in A8.
        floats: multiply-adds of float32, as in attention.
    """

    bytes: float
    dots: float
    floats: float


class _Rates(Structure):
    _fields_ = [(name, c_double) for name in ("bytes", "dots", "floats")]


def measure_rates(
    num_bytes: int, threads: int, seconds: float = 0.9, library: Library | None = None
) -> Rates:
    """Measure this machine for about `seconds`; the best moments count.

    Args:
        num_bytes: of the model. As many (within 32 MB and 1 GB) are read again and again, as its
            passes do: a model that fits into a cache has the floor of that cache.

    Raises:
        NativeError: `threads` is out of bounds, or there is no memory.
    """
    low, high = _BYTES
    size, found = min(max(num_bytes, low), high), _Rates()
    arguments = c_int64(size), c_int32(threads), c_double(seconds), byref(found)
    (library or load_library()).call("as_floor", *arguments)
    return Rates(found.bytes, found.dots, found.floats)


@dataclass(frozen=True)
class Work:
    """What a pass has to do.

    Attributes:
        weight_bytes: read by every pass.
        row_dots: multiply-adds of bytes that a row adds.
        token_bytes: keys and values of a token of context, read once a pass.
        token_floats: multiply-adds of float32 that a token of context adds to every row.
    """

    weight_bytes: int
    row_dots: int
    token_bytes: int
    token_floats: int

    @classmethod
    def of(cls, model: NativeModel, mode: Mode) -> Work:
        """The work of a model's passes. An embedding that is no output matrix is hardly read."""
        c = model.config
        width, kv_width = c.heads * c.head_dim, c.kv_heads * c.head_dim
        layer = c.hidden * (2 * width + 2 * kv_width + 3 * c.ffn)
        output = c.hidden * c.vocab
        read = c.layers * layer + output
        held = read if c.tied else read + output
        return cls(
            weight_bytes=model.num_bytes * read // held,
            row_dots=read * (2 if mode == Mode.A16 else 1),
            token_bytes=2 * c.layers * kv_width * _F16,
            token_floats=2 * c.layers * width,
        )


@dataclass(frozen=True)
class Floor:
    """A machine's rates and a model's work."""

    rates: Rates
    work: Work

    def seconds(self, nodes: int, context: int) -> float:
        """What a pass over `nodes` rows behind `context` tokens takes at least."""
        return max(self.reading(context), self.multiplying(nodes, context))

    def reading(self, context: int) -> float:
        """Seconds of reading weights, keys and values."""
        return (self.work.weight_bytes + context * self.work.token_bytes) / self.rates.bytes

    def multiplying(self, nodes: int, context: int) -> float:
        """Seconds of matrix products and attention."""
        attention = context * self.work.token_floats / self.rates.floats
        return nodes * (self.work.row_dots / self.rates.dots + attention)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        return asdict(self)

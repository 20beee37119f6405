"""The compiled engine from Python: its C interface (csrc/engine.h) behind two classes.

Arrays in, arrays out. A call lets other Python threads run; calls on different caches run side by
side.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int32, c_int64
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptivespec.native.binding import (
    Library,
    NativeError,
    RawConfig,
    RawPass,
    RawRows,
    load_library,
)
from adaptivespec.native.weights import RawTensor

__all__ = [
    "FORMATS",
    "MAX_ROWS",
    "MAX_THREADS",
    "Library",
    "Matrix",
    "Mode",
    "NativeCache",
    "NativeConfig",
    "NativeError",
    "NativeModel",
    "Norm",
    "Rows",
    "load_library",
]

MAX_ROWS = 256
MAX_THREADS = 64

#: Kinds of a RawTensor that are packed as they are.
QUANTISED = {
    "Q4_1": 0,
    "Q8_0": 1,
    "Q4_0": 5,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q4_K": 8,
    "Q5_K": 9,
    "Q6_K": 10,
}
#: Kinds that are quantised when packed: to Q8_0, or to 16 bits.
FLOATS = {"F32": 2, "BF16": 3, "F16": 4}
FORMATS = QUANTISED | FLOATS
_PRECISE, _COARSE = 64, 128  # added to a format of FLOATS

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


def raw_format(kind: str, precise: bool = False, coarse: bool = False) -> int:
    """`as_format` of a kind, with what becomes of floats."""
    how = (_PRECISE if precise else 0) | (_COARSE if coarse else 0)
    return FORMATS[kind] | (how if kind in FLOATS else 0)


class Mode(IntEnum):
    """Activations inside matrix products, per row and 32 columns."""

    A8 = 0
    A16 = 1


class Matrix(IntEnum):
    """Which weight matrix; the layer of the first two is ignored."""

    EMBEDDING = 0
    OUTPUT = 1
    QUERY = 2
    KEY = 3
    VALUE = 4
    ATTENTION_OUTPUT = 5
    GATE = 6
    UP = 7
    DOWN = 8


class Norm(IntEnum):
    """Which gain; the layer of OUTPUT is ignored. QUERY and KEY are those of every head."""

    ATTENTION = 0
    FFN = 1
    OUTPUT = 2
    QUERY = 3
    KEY = 4


@dataclass(frozen=True)
class NativeConfig:
    """Sizes of a model; what the engine serves is written beside `as_config`."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_len: int
    rms_eps: float
    tied: bool


class NativeModel:
    """Weights in memory, packed. Give all of them, then `ready`; then caches and passes."""

    def __init__(self, config: NativeConfig, library: Library | None = None) -> None:
        self.config, self.library = config, library or load_library()
        numbers = [getattr(config, entry[0]) for entry in RawConfig._fields_[:-1]]
        raw = RawConfig(*numbers, int(config.tied))
        self.handle = self.library.made("as_model_new", byref(raw))
        weakref.finalize(self, self.library.freer("as_model_free"), self.handle)

    def rope(self, cos: Floats, sin: Floats) -> None:
        """Rotary tables `[max_len, head_dim / 2]` each."""
        shape = self.config.max_len, self.config.head_dim // 2
        tables = [checked(table, np.float32, shape) for table in (cos, sin)]
        self.library.call("as_model_rope", self.handle, *(t.ctypes.data for t in tables))

    def weight(
        self,
        layer: int,
        which: Matrix,
        tensor: RawTensor,
        row_order: Ints | None = None,
        *,
        precise: bool = False,
        coarse: bool = False,
    ) -> None:
        """One matrix; row r is row `row_order[r]` of `tensor`. It is copied.

        Instead of to Q8_0, `precise` quantises FLOATS to 16 bits, practically float32, and `coarse`
        to Q4_1.
        """
        data = np.ascontiguousarray(tensor.data)
        order = None if row_order is None else checked(row_order, np.int32, (tensor.rows,))
        self.library.call(
            "as_model_weight",
            self.handle,
            layer,
            which,
            raw_format(tensor.kind, precise, coarse),
            data.ctypes.data,
            tensor.rows,
            tensor.columns,
            None if order is None else order.ctypes.data,
        )

    def norm(self, layer: int, which: Norm, gain: Floats) -> None:
        """One gain `[hidden]`, or `[head_dim]` of heads."""
        gain = checked(gain, np.float32, (gain.size,))
        call = self.library.call
        call("as_model_norm", self.handle, layer, which, gain.ctypes.data, gain.size)

    def bias(self, layer: int, which: Matrix, bias: Floats) -> None:
        """The bias of QUERY, KEY or VALUE, one entry a row of the matrix as the engine has it."""
        bias = checked(bias, np.float32, (bias.size,))
        call = self.library.call
        call("as_model_bias", self.handle, layer, which, bias.ctypes.data, bias.size)

    def ready(self) -> None:
        """Raises NativeError when something is missing; weights cannot be given after it."""
        self.library.call("as_model_ready", self.handle)

    @property
    def num_bytes(self) -> int:
        size = c_int64()
        self.library.call("as_model_bytes", self.handle, byref(size))
        return size.value

    def new_cache(self, capacity: int) -> NativeCache:
        return NativeCache(self, capacity)

    def forward(
        self,
        batch: Sequence[Rows],
        *,
        mode: Mode,
        threads: int,
        tap_layers: Sequence[int] = (),
        stalled: Callable[[float], object] | None = None,
    ) -> list[tuple[Floats, Floats, Floats]]:
        """Run rows of several sequences, which share the walk over the weights.

        They stay tentative, and every row gets what it would get in a pass of its own.

        Args:
            batch: the rows, MAX_ROWS at most in all, no cache twice.
            stalled: is told how much of what further threads could bring was lost as they waited
                for one another, 0 to 1.

        Returns:
            Per sequence: logits `[asked, vocab]`, taps `[R, len(tap_layers) * hidden]` and the
            residual stream that leaves the last layer `[asked, hidden]`.

        Raises:
            NativeError: an argument is out of bounds, or another call uses one of the caches.
        """
        sequences, lost = (RawRows * len(batch))(), c_float()
        held = [rows.laid_out(raw) for rows, raw in zip(batch, sequences, strict=True)]
        layers = np.array(tap_layers, dtype=np.int32)
        row_ends = [0, *accumulate(raw.rows for raw in sequences)]
        asked_ends = [0, *accumulate(raw.asked_count for raw in sequences)]
        logits = np.empty((asked_ends[-1], self.config.vocab), np.float32)
        taps = np.empty((row_ends[-1], layers.size * self.config.hidden), np.float32)
        hidden = np.empty((asked_ends[-1], self.config.hidden), np.float32)
        call = RawPass(
            sequence_count=len(batch),
            mode=mode,
            threads=threads,
            tap_count=layers.size,
            sequences=ctypes.addressof(sequences),
            tap_layers=layers.ctypes.data,
            taps=taps.ctypes.data,
            logits=logits.ctypes.data,
            hidden=hidden.ctypes.data,
            stalled=ctypes.addressof(lost),
        )
        self.library.call("as_forward", self.handle, byref(call))
        if stalled is not None:
            stalled(lost.value)
        del held  # the arrays lived until here
        if len(batch) == 1:
            return [(logits, taps, hidden)]
        return [
            (logits[a:b], taps[r:s], hidden[a:b])
            for (a, b), (r, s) in zip(pairwise(asked_ends), pairwise(row_ends), strict=True)
        ]


class NativeCache:
    """Keys and values of one sequence. The model lives at least as long."""

    def __init__(self, model: NativeModel, capacity: int) -> None:
        self.model, self.library = model, model.library
        self.handle = self.library.made("as_cache_new", model.handle, capacity)
        weakref.finalize(self, self.library.freer("as_cache_free"), self.handle)

    @property
    def length(self) -> int:
        """Committed rows."""
        length = c_int32()
        self.library.call("as_cache_length", self.handle, byref(length))
        return length.value

    @property
    def num_bytes(self) -> int:
        size = c_int64()
        self.library.call("as_cache_bytes", self.handle, byref(size))
        return size.value

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows `path`, ascending, of the last pass; drop its others."""
        rows = np.array(path, dtype=np.int32)
        self.library.call("as_cache_commit", self.handle, rows.ctypes.data, rows.size)

    def copy(self, other: NativeCache, rows: int) -> None:
        """Hold the first `rows` committed rows of `other`, in place of all that was held."""
        self.library.call("as_cache_copy", self.handle, other.handle, rows)

    def truncate(self, length: int) -> None:
        """Forget committed rows from `length` on, and all tentative ones."""
        self.library.call("as_cache_truncate", self.handle, length)

    def forward(
        self,
        tokens: Ints,
        parents: Ints | None = None,
        *,
        mode: Mode,
        threads: int,
        tap_layers: Sequence[int] = (),
        asked: Sequence[int] | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Run rows behind the committed ones; they stay tentative.

        Args:
            tokens, parents, asked: as in Rows.

        Returns:
            As `NativeModel.forward` for this sequence; raises as it does.
        """
        rows = Rows(self, tokens, parents, asked)
        return self.model.forward([rows], mode=mode, threads=threads, tap_layers=tap_layers)[0]


@dataclass(frozen=True)
class Rows:
    """What one sequence adds to a pass: `R` rows behind the committed ones of its cache.

    Args:
        tokens: `[R]` ids.
        parents: `[R]` earlier rows, -1 for the committed end; None is a chain.
        asked: rows whose logits and hidden are wanted; None is all.
    """

    cache: NativeCache
    tokens: Ints
    parents: Ints | None = None
    asked: Sequence[int] | None = None

    def laid_out(self, raw: RawRows) -> list[Ints]:
        """Fill `raw`; it is valid as long as the arrays that are returned."""
        count = len(self.tokens)
        tokens = np.ascontiguousarray(self.tokens, np.int32)
        arrays = [tokens]
        raw.cache, raw.rows, raw.asked_count = self.cache.handle, count, count
        raw.tokens = tokens.ctypes.data
        if self.parents is not None:
            arrays.append(checked(self.parents, np.int32, (count,)))
            raw.parents = arrays[-1].ctypes.data
        if self.asked is not None:
            arrays.append(np.array(self.asked, dtype=np.int32))
            raw.asked, raw.asked_count = arrays[-1].ctypes.data, arrays[-1].size
        return arrays


def checked(array: npt.NDArray[Any], dtype: type, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """`array` contiguous and of `dtype`; ValueError unless it has `shape`."""
    if array.shape != shape:
        raise ValueError(f"an array of shape {array.shape} where {shape} belongs")
    return np.ascontiguousarray(array, dtype)

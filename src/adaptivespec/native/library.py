"""The compiled engine from Python: its C interface (csrc/engine.h) behind two classes.

Arrays in, arrays out. A call lets other Python threads run; calls on different caches run side by
side.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.native.build import library_path
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
    "load_library",
]

ABI_VERSION = 1
MAX_ROWS = 64
MAX_THREADS = 64

#: Kinds of a RawTensor that are packed as they are ("Q4_1", "Q8_0") or quantised to Q8_0.
FORMATS = {"Q4_1": 0, "Q8_0": 1, "F32": 2, "BF16": 3}

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class NativeError(AdaptiveSpecError):
    """The compiled engine refused a call; the message is its own."""


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
    """Which gain; the layer of the last is ignored."""

    ATTENTION = 0
    FFN = 1
    OUTPUT = 2


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


class _Config(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("layers", "hidden", "ffn", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_dim", "vocab", "max_len")),
        ("rms_eps", c_float),
        ("flags", c_int32),
    ]


class _Pass(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("rows", "mode", "threads", "tap_count", "asked_count")),
        *((name, c_void_p) for name in ("tokens", "parents", "positions", "tap_layers", "asked")),
        *((name, c_void_p) for name in ("taps", "logits", "hidden")),
    ]


_SIGNATURES: dict[str, list[Any]] = {
    "as_model_new": [POINTER(_Config), POINTER(c_void_p)],
    "as_model_free": [c_void_p],
    "as_model_rope": [c_void_p, c_void_p, c_void_p],
    "as_model_weight": [c_void_p, *[c_int32] * 3, c_void_p, *[c_int32] * 2, c_void_p],
    "as_model_norm": [c_void_p, c_int32, c_int32, c_void_p, c_int32],
    "as_model_ready": [c_void_p],
    "as_model_bytes": [c_void_p, POINTER(c_int64)],
    "as_cache_new": [c_void_p, c_int32, POINTER(c_void_p)],
    "as_cache_free": [c_void_p],
    "as_cache_length": [c_void_p, POINTER(c_int32)],
    "as_cache_bytes": [c_void_p, POINTER(c_int64)],
    "as_cache_commit": [c_void_p, c_void_p, c_int32],
    "as_cache_truncate": [c_void_p, c_int32],
    "as_forward": [c_void_p, c_void_p, POINTER(_Pass)],
}


class Library:
    """A loaded shared library; `call` raises what the library reports."""

    def __init__(self, path: str) -> None:
        try:
            self._dll = ctypes.CDLL(path)
            self._dll.as_abi_version.restype = c_int32
            version = int(self._dll.as_abi_version())
            self._dll.as_error.restype = self._dll.as_isa.restype = c_char_p
            for name, arguments in _SIGNATURES.items():
                function = getattr(self._dll, name)
                function.argtypes, function.restype = arguments, c_int32
        except (OSError, AttributeError) as error:
            raise NativeError(
                f"{path} cannot be loaded ({error})",
                field="backend",
                remedy="Delete that file, so that it is compiled again, or use backend torch",
            ) from error
        if version != ABI_VERSION:
            raise NativeError(
                f"{path} speaks version {version} of the interface, this package {ABI_VERSION}",
                field="backend",
                remedy="Delete that file, so that it is compiled again",
            )

    @property
    def isa(self) -> str:
        """The instruction set it was compiled for."""
        return str(self._dll.as_isa().decode())

    def call(self, name: str, *arguments: Any) -> None:
        if getattr(self._dll, name)(*arguments):
            raise NativeError(self._dll.as_error().decode("utf-8", "replace"), field="backend")

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """The handle that a constructor writes to its last argument."""
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def freer(self, name: str) -> Callable[[c_void_p], object]:
        free: Callable[[c_void_p], object] = getattr(self._dll, name)
        return free


@cache
def load_library() -> Library:
    """The library for this processor, compiled where that was not done yet.

    Raises:
        NativeError: it cannot be loaded; what `build.library_path` raises when it cannot be made.
    """
    return Library(str(library_path()))


class NativeModel:
    """Weights in memory, packed. Give all of them, then `ready`; then caches and passes."""

    def __init__(self, config: NativeConfig, library: Library | None = None) -> None:
        self.config, self.library = config, library or load_library()
        numbers = [getattr(config, entry[0]) for entry in _Config._fields_[:-1]]
        raw = _Config(*numbers, int(config.tied))
        self.handle = self.library.made("as_model_new", byref(raw))
        weakref.finalize(self, self.library.freer("as_model_free"), self.handle)

    def rope(self, cos: Floats, sin: Floats) -> None:
        """Rotary tables `[max_len, head_dim / 2]` each."""
        shape = self.config.max_len, self.config.head_dim // 2
        tables = [_checked(table, np.float32, shape) for table in (cos, sin)]
        self.library.call("as_model_rope", self.handle, *(t.ctypes.data for t in tables))

    def weight(
        self, layer: int, which: Matrix, tensor: RawTensor, row_order: Ints | None = None
    ) -> None:
        """One matrix; row r is row `row_order[r]` of `tensor`. It is copied."""
        data = np.ascontiguousarray(tensor.data)
        order = None if row_order is None else _checked(row_order, np.int32, (tensor.rows,))
        self.library.call(
            "as_model_weight",
            self.handle,
            layer,
            which,
            FORMATS[tensor.kind],
            data.ctypes.data,
            tensor.rows,
            tensor.columns,
            None if order is None else order.ctypes.data,
        )

    def norm(self, layer: int, which: Norm, gain: Floats) -> None:
        """One gain `[hidden]`."""
        gain = _checked(gain, np.float32, (gain.size,))
        call = self.library.call
        call("as_model_norm", self.handle, layer, which, gain.ctypes.data, gain.size)

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
            tokens: `[R]` ids, R at most MAX_ROWS.
            parents: `[R]` earlier rows, -1 for the committed end; None is a chain.
            asked: rows whose logits and hidden are wanted; None is all.

        Returns:
            Logits `[asked, vocab]`, taps `[R, len(tap_layers) * hidden]` and the residual stream
            that leaves the last layer `[asked, hidden]`.

        Raises:
            NativeError: an argument is out of bounds, or another call uses this cache.
        """
        c, rows = self.model.config, len(tokens)
        tokens = np.ascontiguousarray(tokens, np.int32)
        tree = None if parents is None else _checked(parents, np.int32, (rows,))
        layers = np.array(tap_layers, dtype=np.int32)
        which = None if asked is None else np.array(asked, dtype=np.int32)
        count = rows if which is None else which.size
        logits = np.empty((count, c.vocab), np.float32)
        taps = np.empty((rows, layers.size * c.hidden), np.float32)
        hidden = np.empty((count, c.hidden), np.float32)
        call = _Pass(
            rows=rows,
            mode=mode,
            threads=threads,
            tap_count=layers.size,
            asked_count=count,
            tokens=tokens.ctypes.data,
            parents=None if tree is None else tree.ctypes.data,
            tap_layers=layers.ctypes.data,
            asked=None if which is None else which.ctypes.data,
            taps=taps.ctypes.data,
            logits=logits.ctypes.data,
            hidden=hidden.ctypes.data,
        )
        self.library.call("as_forward", self.model.handle, self.handle, byref(call))
        return logits, taps, hidden


def _checked(array: npt.NDArray[Any], dtype: type, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """`array` contiguous and of `dtype`; ValueError unless it has `shape`."""
    if array.shape != shape:
        raise ValueError(f"an array of shape {array.shape} where {shape} belongs")
    return np.ascontiguousarray(array, dtype)

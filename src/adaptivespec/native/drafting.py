"""EAGLE-3 heads in the compiled engine: its C interface (csrc/drafter.h) behind two classes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int32, c_int64, c_void_p
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptivespec.native.library import Floats, Ints, Mode, NativeModel, checked, raw_format
from adaptivespec.native.weights import RawTensor

__all__ = [
    "STOPPED",
    "Grown",
    "HeadConfig",
    "HeadMatrix",
    "HeadNorm",
    "Level",
    "NativeDraft",
    "NativeHead",
    "Plan",
]

#: Why a tree grew no further, by `as_stopped`.
STOPPED = ("", "depth", "nothing kept", "full", "confidence", "path", "gain", "price")


class HeadMatrix(IntEnum):
    """Which weight matrix."""

    FUSE = 0
    QUERY = 1
    KEY = 2
    VALUE = 3
    ATTENTION_OUTPUT = 4
    GATE = 5
    UP = 6
    DOWN = 7
    OUTPUT = 8
    EMBEDDING = 9


class HeadNorm(IntEnum):
    """Which gain."""

    EMBEDDING = 0
    FEATURE = 1
    FFN = 2
    OUTPUT = 3


@dataclass(frozen=True)
class HeadConfig:
    """Sizes of a head; see `as_head_config`."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    draft_vocab: int
    taps: int
    max_len: int
    rms_eps: float


class _Config(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("hidden", "ffn", "heads", "kv_heads", "head_dim")),
        *((name, c_int32) for name in ("draft_vocab", "taps", "max_len")),
        ("rms_eps", c_float),
    ]


class Plan(Structure):
    """`as_plan`: what `adaptivespec.policy.plan.TreePlan` asks for, in C."""

    _fields_ = [
        *((name, c_int32) for name in ("num_steps", "topk", "num_draft_tokens", "width")),
        *((name, c_double) for name in ("keep_relative", "keep_absolute")),
        *((name, c_int32) for name in ("keep_drop", "keep_first")),
        *((name, c_double) for name in ("min_confidence", "min_path", "min_gain")),
        *((name, c_int32) for name in ("full", "price_count")),
        *((name, c_void_p) for name in ("price_sizes", "prices")),
        ("follow_count", c_int32),
        ("follow", c_void_p),
        ("ahead_count", c_int32),
        ("ahead_prices", c_void_p),
        *((name, c_int32) for name in ("bin_count", "edge_count")),
        *((name, c_void_p) for name in ("base", "slope", "edges", "first_bin")),
        ("shift", c_float),
        ("lift_count", c_int32),
        ("lift", c_void_p),
        ("position_count", c_int32),
        *((name, c_void_p) for name in ("parents", "ranks")),
    ]


class _Tree(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("capacity", "nodes", "candidates", "levels")),
        *((name, c_int32) for name in ("stopped", "priced")),
        *((name, c_double) for name in ("gain", "price")),
        *((name, c_void_p) for name in ("token", "parent", "depth", "rank", "logq", "score")),
    ]


class _Level(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("mode", "threads", "rows", "k")),
        *((name, c_void_p) for name in ("tokens", "sources", "features", "logits", "words")),
        ("logq", c_void_p),
    ]


_SIGNATURES: dict[str, list[Any]] = {
    "as_head_new": [c_void_p, POINTER(_Config), POINTER(c_void_p)],
    "as_head_free": [c_void_p],
    "as_head_rope": [c_void_p, c_void_p, c_void_p],
    "as_head_weight": [c_void_p, c_int32, c_int32, c_void_p, c_int32, c_int32],
    "as_head_norm": [c_void_p, c_int32, c_void_p, c_int32],
    "as_head_words": [c_void_p, c_void_p, c_int32],
    "as_head_ready": [c_void_p],
    "as_head_bytes": [c_void_p, POINTER(c_int64)],
    "as_draft_new": [c_void_p, c_int32, POINTER(c_void_p)],
    "as_draft_free": [c_void_p],
    "as_draft_length": [c_void_p, POINTER(c_int32)],
    "as_draft_copy": [c_void_p, c_void_p, c_int32],
    "as_draft_truncate": [c_void_p, c_int32],
    "as_draft_read": [c_void_p, *[c_int32] * 3, c_void_p, c_void_p, POINTER(c_float)],
    "as_draft_level": [c_void_p, POINTER(_Level)],
    "as_draft_grow": [c_void_p, c_int32, c_int32, POINTER(Plan), POINTER(_Tree)],
}


class NativeHead:
    """A head's weights, packed, for one model. Give all of them, then `ready`; then drafts."""

    def __init__(self, model: NativeModel, config: HeadConfig) -> None:
        self.config, self.model, self.library = config, model, model.library
        self.library.declare(_SIGNATURES)
        raw = _Config(*astuple(config))
        self.handle = self.library.made("as_head_new", model.handle, byref(raw))
        weakref.finalize(self, self.library.freer("as_head_free"), self.handle)

    def rope(self, cos: Floats, sin: Floats) -> None:
        """Rotary tables `[max_len, head_dim / 2]` each."""
        shape = self.config.max_len, self.config.head_dim // 2
        tables = [checked(table, np.float32, shape) for table in (cos, sin)]
        self.library.call("as_head_rope", self.handle, *(t.ctypes.data for t in tables))

    def weight(self, which: HeadMatrix, tensor: RawTensor, coarse: bool = False) -> None:
        """One matrix; it is copied. OUTPUT and EMBEDDING are the model's where none is given.

        `coarse` quantises floats to Q4_1 instead of Q8_0.
        """
        data, kind = np.ascontiguousarray(tensor.data), raw_format(tensor.kind, coarse=coarse)
        shape = tensor.rows, tensor.columns
        self.library.call("as_head_weight", self.handle, which, kind, data.ctypes.data, *shape)

    def norm(self, which: HeadNorm, gain: Floats) -> None:
        """One gain `[hidden]`."""
        gain = checked(gain, np.float32, (gain.size,))
        self.library.call("as_head_norm", self.handle, which, gain.ctypes.data, gain.size)

    def words(self, target_ids: Ints) -> None:
        """The model's id of every draft word, `[draft_vocab]`."""
        ids = checked(target_ids, np.int32, (target_ids.size,))
        self.library.call("as_head_words", self.handle, ids.ctypes.data, ids.size)

    def ready(self) -> None:
        """Raises NativeError when something is missing; weights cannot be given after it."""
        self.library.call("as_head_ready", self.handle)

    @property
    def num_bytes(self) -> int:
        size = c_int64()
        self.library.call("as_head_bytes", self.handle, byref(size))
        return size.value


@dataclass(frozen=True, eq=False)
class Level:
    """What the head says after each row of a level.

    `features f32[R, hidden]`, `logits f32[R, draft_vocab]`, and the likeliest words: target ids
    `words i32[R, k]` and `logq f32[R, k]`, likeliest first.
    """

    features: Floats
    logits: Floats
    words: Ints
    logq: Floats


@dataclass(frozen=True, eq=False)
class Grown:
    """A drafted tree of N nodes, the root first.

    `token`, `parent` (-1 at the root), `depth` and `rank` are i64[N], `logq` and `score` f32[N].
    `gain` and `price`, in tokens, are None unless the plan has prices.
    """

    token: npt.NDArray[np.int64]
    parent: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    logq: Floats
    score: Floats
    candidates: int
    levels: int
    stopped: str
    gain: float | None
    price: float | None


class NativeDraft:
    """A head's memory of one sequence. The head lives at least as long."""

    def __init__(self, head: NativeHead, capacity: int, mode: Mode) -> None:
        self.head, self.library, self.mode = head, head.library, mode
        self.handle = self.library.made("as_draft_new", head.handle, capacity)
        weakref.finalize(self, self.library.freer("as_draft_free"), self.handle)

    @property
    def length(self) -> int:
        """Committed rows."""
        length = c_int32()
        self.library.call("as_draft_length", self.handle, byref(length))
        return length.value

    def copy(self, other: NativeDraft, rows: int) -> None:
        """Hold the first `rows` committed rows of `other`, in place of all that was held."""
        self.library.call("as_draft_copy", self.handle, other.handle, rows)

    def truncate(self, length: int) -> None:
        """Forget committed rows from `length` on."""
        self.library.call("as_draft_truncate", self.handle, length)

    def read(self, tokens: Sequence[int], taps: Floats, threads: int = 1) -> float:
        """Append committed rows: `taps [R, taps * hidden]`, and the token after each of them.

        The last token is the root from now on.

        Returns:
            The largest probability of the token after the root.
        """
        c = self.head.config
        ids = np.array(tokens, dtype=np.int32)
        taps = checked(taps, np.float32, (ids.size, c.taps * c.hidden))
        confidence = c_float()
        self.library.call(
            "as_draft_read",
            self.handle,
            self.mode,
            threads,
            ids.size,
            ids.ctypes.data,
            taps.ctypes.data,
            byref(confidence),
        )
        return confidence.value

    def level(
        self,
        k: int,
        tokens: Ints | None = None,
        sources: Ints | None = None,
        threads: int = 1,
    ) -> Level:
        """Run one level of a tree that the caller grows.

        Args:
            k: likeliest words wanted.
            tokens, sources: `i32[R]`, drafted tokens and the row of the last level each stands
                under (0 on the first one). None: look at the root, where a tree begins.
        """
        c = self.head.config
        rows = 0 if tokens is None else len(tokens)
        tokens = None if tokens is None else checked(tokens, np.int32, (rows,))
        sources = None if sources is None else checked(sources, np.int32, (rows,))
        out = Level(
            np.empty((max(rows, 1), c.hidden), np.float32),
            np.empty((max(rows, 1), c.draft_vocab), np.float32),
            np.empty((max(rows, 1), k), np.int32),
            np.empty((max(rows, 1), k), np.float32),
        )
        level = _Level(
            self.mode,
            threads,
            rows,
            k,
            None if tokens is None else tokens.ctypes.data,
            None if sources is None else sources.ctypes.data,
            out.features.ctypes.data,
            out.logits.ctypes.data,
            out.words.ctypes.data,
            out.logq.ctypes.data,
        )
        self.library.call("as_draft_level", self.handle, byref(level))
        return out

    def grow(self, plan: Plan, threads: int = 1) -> Grown:
        """Grow the tree that `plan` asks for under the root."""
        size = max(plan.num_draft_tokens, 1)
        ids = np.empty((4, size), np.int64)
        values = np.empty((2, size), np.float32)
        row, start = 8 * size, ids.ctypes.data
        value_row, value_start = 4 * size, values.ctypes.data
        tree = _Tree(
            capacity=size,
            token=start,
            parent=start + row,
            depth=start + 2 * row,
            rank=start + 3 * row,
            logq=value_start,
            score=value_start + value_row,
        )
        call = self.library.call
        call("as_draft_grow", self.handle, self.mode, threads, byref(plan), byref(tree))
        n = tree.nodes
        return Grown(
            token=ids[0, :n],
            parent=ids[1, :n],
            depth=ids[2, :n],
            rank=ids[3, :n],
            logq=values[0, :n],
            score=values[1, :n],
            candidates=tree.candidates,
            levels=tree.levels,
            stopped=STOPPED[tree.stopped],
            gain=tree.gain if tree.priced else None,
            price=tree.price if tree.priced else None,
        )

"""Choosing and following in the compiled engine (csrc/choose.h), at temperature 0."""

from __future__ import annotations

from ctypes import POINTER, Structure, byref, c_float, c_int32, c_void_p
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptivespec.native.binding import Library
from adaptivespec.native.library import Floats

__all__ = ["Walk", "follow"]


class _Walk(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("nodes", "vocab")),
        *((name, c_void_p) for name in ("token", "parent", "logits", "guarded")),
        ("limit", c_float),
        *((name, c_int32) for name in ("in_order", "fault", "length")),
        *((name, c_void_p) for name in ("path", "best", "drop")),
    ]


_SIGNATURES = {"as_follow": [POINTER(_Walk)]}


@dataclass(frozen=True)
class Walk:
    """The followed path of a tree.

    Attributes:
        path: its nodes, the root first.
        best: the target's own token at each of them.
        drops: nats each lies below the peak of its parent's row; 0 at the root.
        fault: the last node of the path where its row has a value that is not finite; else None.
    """

    path: list[int]
    best: list[int]
    drops: list[float]
    fault: int | None


def follow(
    library: Library,
    token: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
    logits: Floats,
    guarded: npt.NDArray[np.bool_],
    limit: float,
    in_order: bool,
) -> Walk:
    """Walk from the root along children that the target chooses, or that may be promoted.

    Args:
        token, parent: i64[N] of the tree; siblings hold distinct tokens.
        logits: f32[N, V]; only rows on the path are read.
        guarded: bool[V], tokens that are neither promoted nor overridden.
        limit: nats; a child that drops by less may be promoted.
        in_order: take the first child that passes, in place of the target's own token, else the
            child of least drop.

    Raises:
        NativeError: a size, parent or token is out of bounds.
    """
    library.declare(_SIGNATURES)
    nodes, vocab = logits.shape
    if len(token) != nodes or len(parent) != nodes or len(guarded) != vocab:
        raise ValueError("token, parent and guarded must have the sizes of the logits")
    found = np.empty((2, nodes), np.int32)
    drop = np.empty(nodes, np.float32)
    start = found.ctypes.data
    walk = _Walk(
        nodes=nodes,
        vocab=vocab,
        token=token.ctypes.data,
        parent=parent.ctypes.data,
        logits=logits.ctypes.data,
        guarded=guarded.ctypes.data,
        limit=limit,
        in_order=in_order,
        path=start,
        best=start + 4 * nodes,
        drop=drop.ctypes.data,
    )
    library.call("as_follow", byref(walk))
    length = walk.length
    path, best = found[:, :length].tolist()
    return Walk(path, best, drop[:length].tolist(), None if walk.fault < 0 else walk.fault)

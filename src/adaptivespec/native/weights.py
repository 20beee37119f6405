"""Tensors as they lie in their files, for the native engine to pack: nothing is dequantised here.

A GGUF file stores a matrix as rows of blocks. The native engine keeps the blocks' own numbers, so
that its weights are exactly the published ones; of a GGUF file, only the table of tensors is read.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from adaptivespec.core.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RawTensor", "gguf_row_order", "gguf_tensors", "raw_tensor"]

Bytes = npt.NDArray[np.uint8]

_MAGIC = 0x46554747  # "GGUF"
_VERSIONS = (2, 3)
_UINT32, _STRING, _ARRAY = 4, 8, 9
#: Bytes of a metadata value by its type's number; strings and arrays are read otherwise.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_MAX_DIMENSIONS = 4
#: Upper bounds that no real file comes near; a damaged count fails at once, not after minutes.
_MAX_TENSORS, _MAX_KEYS = 1 << 20, 1 << 20


@dataclass(frozen=True)
class RawTensor:
    """A matrix or vector as stored.

    `kind` is a name of ggml's types ("Q4_1", "F32", ...); `data u8[bytes]` are its rows one after
    the other, each in whole blocks; `shape` is rows first, in elements.
    """

    kind: str
    shape: tuple[int, ...]
    data: Bytes

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1

    @property
    def columns(self) -> int:
        return self.shape[-1]

    def dequantised(self) -> npt.NDArray[np.float32]:
        """Its values `f32[shape]`, in the order of the file.

        Raises:
            CheckpointError: a type that cannot be decoded.
        """
        if self.kind == "Q8_0":  # gguf's own way takes a second for a vocabulary
            blocks = self.data.reshape(-1, 34)
            scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
            return (blocks[:, 2:].view(np.int8) * scales).reshape(self.shape)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            kind = GGMLQuantizationType[self.kind]
            values = dequantize(_typed(self.data.reshape(self.rows, -1), self.kind), kind)
        except (KeyError, NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"tensors of type {self.kind} cannot be dequantised ({error})",
                field="model",
                remedy="Use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1 or a K quantisation",
            ) from error
        values = np.asarray(values, dtype=np.float32).reshape(self.shape)
        return values if values.flags.writeable else values.copy()


def raw_tensor(tensor: Tensor) -> RawTensor:
    """A float32, bfloat16 or float16 tensor as the native engine takes it; any other in float32."""
    import torch

    kind = {torch.bfloat16: "BF16", torch.float16: "F16"}.get(tensor.dtype, "F32")
    flat = (tensor.float() if kind == "F32" else tensor).contiguous()
    return RawTensor(kind, tuple(tensor.shape), flat.view(torch.uint8).numpy().reshape(-1))


def _typed(rows: Bytes, kind: str) -> npt.NDArray[np.generic]:
    """gguf wants plain floats as floats, everything else as bytes."""
    plain = {"F32": np.float32, "F16": np.float16}
    return rows.view(plain[kind]) if kind in plain else rows


def gguf_row_order(num_heads: int, head_dim: int) -> npt.NDArray[np.int32]:
    """Where the rows of a query or key projection lie in a GGUF file of the Llama family.

    Row r of the model is row `order[r]` of the file: GGUF pairs rows (2i, 2i + 1) of a head for
    the rotation, the model rows (i, i + head_dim / 2).
    """
    rows = np.arange(num_heads * head_dim, dtype=np.int32)
    return rows.reshape(num_heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1).copy()


def gguf_tensors(path: str | Path) -> dict[str, RawTensor]:
    """Every tensor of a GGUF file by its name there; the data stay in the mapped file.

    Takes some tens of milliseconds: of the metadata, only its extent is read.

    Raises:
        CheckpointError: missing, truncated, or not a GGUF file.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return dict(_read(mapped))
    except OSError as error:
        raise CheckpointError(f"cannot be read ({error.strerror})", field=str(path)) from error
    except (struct.error, ValueError, UnicodeDecodeError) as error:  # ValueError: an empty file
        raise CheckpointError(
            f"not a readable GGUF file, truncated or foreign ({error})",
            field=str(path),
            remedy="Download the file again",
        ) from error


class _Cursor:
    """A place in the file; reads raise struct.error or ValueError past the end."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer, self.at = buffer, 0

    def number(self, format: str) -> int:
        (value,) = struct.unpack_from(f"<{format}", self.buffer, self.at)
        self.at += struct.calcsize(f"<{format}")
        return int(value)

    def count(self, limit: int, what: str) -> int:
        value = self.number("Q")
        if value > limit:
            raise ValueError(f"{value} {what}")
        return value

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.buffer):
            raise ValueError("it ends too early")

    def text(self) -> str:
        size = self.number("Q")
        start = self.at
        self.skip(size)
        return self.buffer[start : self.at].decode("utf-8")

    def skip_strings(self, count: int) -> None:
        # A vocabulary is two hundred thousand of these: kept tight.
        unpack, buffer, at = struct.Struct("<Q").unpack_from, self.buffer, self.at
        for _ in range(count):
            at += 8 + unpack(buffer, at)[0]
        self.at = at
        self.skip(0)

    def skip_value(self, kind: int) -> None:
        if kind == _STRING:
            self.skip_strings(1)
        elif kind == _ARRAY:
            inner, count = self.number("I"), self.number("Q")
            if inner == _STRING:
                self.skip_strings(count)
            else:
                self.skip(_size(inner) * count)
        else:
            self.skip(_size(kind))


def _size(kind: int) -> int:
    if kind not in _SIZES:
        raise ValueError(f"metadata of unknown type {kind}")
    return _SIZES[kind]


def _read(buffer: mmap.mmap) -> Iterator[tuple[str, RawTensor]]:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    cursor = _Cursor(buffer)
    if cursor.number("I") != _MAGIC or cursor.number("I") not in _VERSIONS:
        raise ValueError("no GGUF header of version 2 or 3")
    num_tensors = cursor.count(_MAX_TENSORS, "tensors")
    alignment = 32
    for _ in range(cursor.count(_MAX_KEYS, "metadata keys")):
        key, kind = cursor.text(), cursor.number("I")
        if key == "general.alignment" and kind == _UINT32:
            alignment = max(cursor.number("I"), 1)
        else:
            cursor.skip_value(kind)
    table = []
    for _ in range(num_tensors):
        name, dimensions = cursor.text(), cursor.number("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]
        table.append((name, shape, cursor.number("I"), cursor.number("Q")))
    base = -(-cursor.at // alignment) * alignment
    whole = np.frombuffer(buffer, np.uint8)
    for name, shape, number, offset in table:
        kind = GGMLQuantizationType(number)  # ValueError: an unknown type
        block, size = GGML_QUANT_SIZES[kind]
        if shape[-1] % block:
            raise ValueError(f"rows of {name} are not whole blocks of {kind.name}")
        start = base + offset
        end = start + prod(shape) // block * size
        if end > len(whole):
            raise ValueError(f"{name} reaches beyond the end")
        yield name, RawTensor(kind.name, shape, whole[start:end])

"""GGUF files of the families: metadata, and tensors under their Hugging Face names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.weights.families import FAMILIES

__all__ = ["GgufFile", "canonical_name", "unpermute_rope"]

FloatArray = npt.NDArray[np.float32]

_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ROPE_FACTORS = "rope_freqs.weight"
_PERMUTED = {family.gguf for family in FAMILIES.values() if family.gguf_permuted}


def canonical_name(name: str) -> str:
    """The Hugging Face name of a tensor of these families' GGUF; any other name unchanged."""
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    match = _BLOCK.fullmatch(name)
    if match and match[2] in _IN_BLOCK:
        return f"model.layers.{match[1]}.{_IN_BLOCK[match[2]]}.{match[3]}"
    return name


def unpermute_rope(weight: FloatArray, num_heads: int) -> FloatArray:
    """Undo the row order GGUF gives the query and key projections of a Llama.

    GGUF pairs rows (2i, 2i + 1) of a head for the rotation, Hugging Face (i, i + head_dim / 2).
    ``weight`` is [num_heads * head_dim, columns]; the result has the same shape.
    """
    rows, columns = weight.shape
    half = rows // num_heads // 2
    return weight.reshape(num_heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)


class GgufFile:
    """An open GGUF file. Metadata is decoded, and each tensor dequantised, when asked for."""

    def __init__(self, path: Path, reader: Any) -> None:
        self.path = path
        self._reader = reader
        self._tensors = {canonical_name(tensor.name): tensor for tensor in reader.tensors}

    @classmethod
    def open(cls, path: str | Path, *, keep: bool = True) -> GgufFile:
        """Open ``path``; with ``keep`` the last files stay open, as parsing one takes seconds.

        Raises:
            CheckpointError: missing, truncated or not a GGUF file.
        """
        path = Path(path)
        try:
            stat = path.stat()
        except OSError as error:
            raise CheckpointError(f"cannot be read ({error.strerror})", field=str(path)) from error
        if not keep:
            return _open(path)
        return _open_kept(path.resolve(), stat.st_size, stat.st_mtime_ns)

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value as a Python object, or ``default``.

        Raises:
            CheckpointError: the value cannot be decoded.
        """
        field = self._reader.fields.get(key)
        if field is None:
            return default
        try:
            return field.contents()
        except (ValueError, IndexError, TypeError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"metadata {key} cannot be decoded ({error})", field=str(self.path)
            ) from error

    @property
    def architecture(self) -> str:
        """The value of general.architecture ("" if absent)."""
        return str(self.get("general.architecture", ""))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name -> shape, rows first, without those of :meth:`rope_factors`."""
        return {
            name: tuple(int(size) for size in reversed(tensor.shape))
            for name, tensor in self._tensors.items()
            if name != _ROPE_FACTORS
        }

    def rope_factors(self) -> FloatArray | None:
        """The per-frequency divisors of a scaled rope [head_dim / 2], or None."""
        return self.tensor(_ROPE_FACTORS, 1, 1) if _ROPE_FACTORS in self._tensors else None

    def tensor(self, name: str, num_heads: int, num_kv_heads: int) -> FloatArray:
        """The tensor with the Hugging Face name ``name``, dequantised to float32 in the Hugging
        Face row order.

        Raises:
            CheckpointError: a quantisation that cannot be decoded, or bytes that do not fit the
                shape.
        """
        from gguf.quants import dequantize

        tensor = self._tensors[name]
        shape = tuple(int(size) for size in reversed(tensor.shape))
        try:
            values = np.ascontiguousarray(
                dequantize(tensor.data, tensor.tensor_type), dtype=np.float32
            ).reshape(shape)
        except (NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"tensor {tensor.name} of type {tensor.tensor_type.name} cannot be dequantised "
                f"({error})",
                field=str(self.path),
                remedy="Use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 or a K "
                "quantisation",
            ) from error
        if self.architecture not in _PERMUTED:
            pass
        elif name.endswith("self_attn.q_proj.weight"):
            values = unpermute_rope(values, num_heads)
        elif name.endswith("self_attn.k_proj.weight"):
            values = unpermute_rope(values, num_kv_heads)
        return values if values.flags.writeable else values.copy()

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._tensors if name != _ROPE_FACTORS)


@lru_cache(maxsize=2)
def _open_kept(path: Path, size: int, mtime_ns: int) -> GgufFile:
    del size, mtime_ns  # part of the cache's key: a file that was replaced is read anew
    return _open(path)


def _open(path: Path) -> GgufFile:
    from gguf import GGUFReader

    try:
        return GgufFile(path, GGUFReader(path))
    except (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise CheckpointError(
            f"not a readable GGUF file, truncated or foreign ({error})",
            field=str(path),
            remedy="Download the file again",
        ) from error

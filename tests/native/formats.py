"""Blocks of every weight format, and a model that is one matrix product, for the tests of both."""

from __future__ import annotations

from collections.abc import Iterable

import gguf
import numpy as np
import numpy.typing as npt

from adaptivespec.native.library import Library, Matrix, Mode, NativeConfig, NativeModel, Norm
from adaptivespec.native.weights import RawTensor

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]

#: Where the f16 numbers of a block lie.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
#: Those that the engine keeps.
KEPT = tuple(kind for kind in HALVES if kind not in ("Q2_K", "Q3_K"))
FLOATS = ("F32", "BF16", "F16")


def block_sizes(kind: str) -> tuple[int, int]:
    """Columns and bytes of a block."""
    columns, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    return int(columns), int(size)


def from_bytes(content: Bytes, kind: str, columns: int) -> RawTensor:
    """Any bytes as whole rows of blocks; numbers that are not finite become zero."""
    width, size = block_sizes(kind)
    rows = content.size // (columns // width * size)
    blocks = content[: rows * (columns // width) * size].reshape(-1, size).copy()
    for at in HALVES[kind]:
        halves = blocks[:, at : at + 2].copy().view(np.float16)
        blocks[:, at : at + 2] = np.where(np.isfinite(halves), halves, 0).view(np.uint8)
    return RawTensor(kind, (rows, columns), blocks.reshape(-1))


def random_tensor(
    kind: str, rows: int, columns: int, seed: int = 0, spread: float = 1.0
) -> RawTensor:
    """Random quants whose weights are about `spread` wide, or random floats."""
    random = np.random.default_rng(seed)
    if kind in FLOATS:
        values = random.standard_normal((rows, columns)).astype(np.float32) * np.float32(spread)
        values *= random.choice(np.array([1e-3, 1, 1, 30], np.float32), (rows, columns))
        stored = {"F32": values, "F16": values.astype(np.float16)}.get(kind)
        if stored is None:
            stored = (values.view(np.uint32) >> 16).astype(np.uint16)
        return RawTensor(kind, (rows, columns), stored.view(np.uint8).reshape(-1))
    width, size = block_sizes(kind)
    blocks = random.integers(0, 256, (rows * columns // width, size), dtype=np.uint8)
    most = {"Q8_0": 127, "Q2_K": 3 * 15, "Q3_K": 4 * 32, "Q4_K": 15 * 63, "Q5_K": 31 * 63}
    unit = spread / {**most, "Q6_K": 32 * 127}.get(kind, 15)
    for index, at in enumerate(HALVES[kind]):
        # A scale, then a minimum of about half the range; the K formats subtract theirs.
        low, high = ((0.3, 1.0), (2.0, 7.0) if kind.endswith("_K") else (-8.0, -4.0))[index]
        halves = (unit * random.uniform(low, high, len(blocks))).astype(np.float16)
        blocks[:, at : at + 2] = halves[:, None].view(np.uint8)
    return RawTensor(kind, (rows, columns), blocks.reshape(-1))


def probe(
    library: Library,
    output: RawTensor,
    embedding: RawTensor,
    *,
    precise: bool = False,
    coarse: bool = False,
) -> NativeModel:
    """A model whose one layer adds nothing: logits are `output` times the normed embedding."""
    hidden = output.columns
    config = NativeConfig(
        layers=1,
        hidden=hidden,
        ffn=32,
        heads=2,
        kv_heads=1,
        head_dim=16,
        vocab=output.rows,
        max_len=64,
        rms_eps=0.0,
        tied=False,
    )
    model = NativeModel(config, library)
    model.rope(np.ones((64, 8), np.float32), np.zeros((64, 8), np.float32))

    def nothing(rows: int, columns: int) -> RawTensor:
        return RawTensor("Q8_0", (rows, columns), np.zeros(rows * columns // 32 * 34, np.uint8))

    model.weight(0, Matrix.EMBEDDING, embedding, precise=precise, coarse=coarse)
    model.weight(0, Matrix.OUTPUT, output, precise=precise, coarse=coarse)
    model.weight(0, Matrix.QUERY, nothing(32, hidden))
    model.weight(0, Matrix.KEY, nothing(16, hidden))
    model.weight(0, Matrix.VALUE, nothing(16, hidden))
    model.weight(0, Matrix.ATTENTION_OUTPUT, nothing(hidden, 32))
    model.weight(0, Matrix.GATE, nothing(32, hidden))
    model.weight(0, Matrix.UP, nothing(32, hidden))
    model.weight(0, Matrix.DOWN, nothing(hidden, 32))
    for norm in (Norm.ATTENTION, Norm.FFN, Norm.OUTPUT):
        model.norm(0, norm, np.ones(hidden, np.float32))
    model.ready()
    return model


def integers(rows: int, columns: int, seed: int = 0) -> tuple[RawTensor, Floats]:
    """A matrix of small integers in Q8_0, which holds them exactly, and the integers."""
    values = np.random.default_rng(seed).integers(-127, 128, (rows, columns))
    one = np.full((rows, columns // 32, 1), 1, np.float16).view(np.uint8)
    quants = values.astype(np.int8).view(np.uint8).reshape(rows, -1, 32)
    blocks = np.concatenate([one, quants], -1)
    return RawTensor("Q8_0", (rows, columns), blocks.reshape(-1)), values.astype(np.float32)


def unpacked(
    library: Library, tensor: RawTensor, *, precise: bool = False, coarse: bool = False
) -> Floats:
    """The rows of a matrix as the engine reads them back."""
    model = probe(library, tensor, tensor, precise=precise, coarse=coarse)
    cache, rows = model.new_cache(64), []
    for row in range(tensor.rows):
        tokens = np.array([row], np.int32)
        rows.append(cache.forward(tokens, mode=Mode.A8, threads=1, tap_layers=[0])[1])
    return np.concatenate(rows)


def products(model: NativeModel, tokens: Iterable[int], mode: Mode) -> Floats:
    """Logits of all `tokens` in one pass."""
    ids = np.array(list(tokens), np.int32)
    return model.new_cache(64).forward(ids, mode=mode, threads=1)[0]


def activations(x: Floats, mode: Mode) -> Array:
    """What the engine makes of rows of integers before a product, in its own steps.

    Their norm has no rounding that could go two ways: the squares add up exactly.
    """
    one, limit = np.float32(1), np.float32(127 if mode is Mode.A8 else 32512)
    factor = one / np.sqrt((x * x).sum(-1, keepdims=True) / np.float32(x.shape[-1]))
    groups = (x * factor).reshape(len(x), -1, 32)
    most = np.abs(groups).max(-1, keepdims=True)
    quants: Array = np.rint(groups * (limit / most)).astype(np.float64)
    return (quants * (most / limit)).reshape(x.shape)

"""Whole models in every weight format, from GGUF files, against torch with the decoded weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.engine.model.native_weights import NativeWeights
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.native.library import FORMATS, Mode
from adaptivespec.native.weights import RawTensor, raw_tensor
from fakes import targets, tiny, tiny_gguf
from fakes.targets import deviation, logits
from native.formats import FLOATS, HALVES, KEPT, random_tensor

IDS = [3, 9, 11, 2, 40, 7, 7, 100]
SIZES = {"HIDDEN": 256, "FF": 512, "HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 64}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a GGUF file may be written whose quantised tensors are random, in any format."""

    def quantise(rows: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
        spread = 0.01 if kind.name in FLOATS else 0.1  # floats have outliers of thirty times that
        tensor = random_tensor(kind.name, *rows.shape, seed=rows.size, spread=spread)
        values = tensor.data.reshape(tensor.rows, -1)
        return values.view(np.float16) if kind.name == "F16" else values

    for name, value in SIZES.items():
        monkeypatch.setattr(tiny_gguf, name, value)
    monkeypatch.setattr(gguf.quants, "quantize", quantise)
    return tmp_path / "tiny.gguf"


def models(path: Path, kind: str, mode: Mode) -> tuple[NativeTarget, TorchTarget]:
    """The native engine and torch with a file whose matrices are all of `kind`."""
    targets.native()  # skips where there is no engine
    number = gguf.GGMLQuantizationType[kind]
    spec = tiny_gguf.GgufSpec(
        kinds={name: number for name in ("embed", "lm_head", "_proj")},
        tied=False,
        extra={"llama.attention.key_length": 64, "llama.attention.value_length": 64},
    )
    tiny_gguf.write_gguf(path, spec)
    config = ModelConfig.from_dir(path)
    dense = Llama(load_weights(path, config), config, torch.float32, 128)
    return (
        NativeTarget(NativeWeights.open(path, config), config, 128, mode),
        TorchTarget(dense, 128),
    )


@pytest.mark.parametrize("kind", [*HALVES, "BF16", "F16"])
def test_exact_is_float32_in_every_format(write: Path, kind: str) -> None:
    native, dense = models(write, kind, Mode.A16)
    assert deviation(logits(native, IDS), logits(dense, IDS)) < 0.005
    weights = load_weights(write, ModelConfig.from_dir(write))
    assert torch.equal(native.embedding, weights["model.embed_tokens.weight"])
    assert torch.equal(native.output, weights["lm_head.weight"])


@pytest.mark.parametrize("kind", HALVES)
def test_bytes_of_a_model_are_those_of_its_file(write: Path, kind: str) -> None:
    """Scales of six bits take eight; what is not kept is made Q8_0, or 16 bits in `exact`."""
    sizes = [models(write, kind, mode)[0].model.num_bytes for mode in (Mode.A8, Mode.A16)]
    tensors = NativeWeights.open(write, ModelConfig.from_dir(write)).tensors.values()
    count = sum(tensor.rows * tensor.columns for tensor in tensors if len(tensor.shape) > 1)
    published = sum(tensor.data.size for tensor in tensors if len(tensor.shape) > 1)
    if kind in KEPT:
        assert sizes[0] == sizes[1]
        assert published <= sizes[0] < 1.05 * published
    else:
        assert count * 34 / 32 <= sizes[0] < 1.05 * count * 34 / 32
        assert sizes[1] == 2 * sizes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_exact_keeps_floats(dtype: torch.dtype) -> None:
    """The weights of a checkpoint in floats are not what sets `exact` apart from float32."""
    targets.native()
    config = targets.CONFIG
    weights = {name: tensor.to(dtype) for name, tensor in tiny.weights(config).items()}
    decoded = {name: tensor.float() for name, tensor in weights.items()}
    want = logits(TorchTarget(Llama(decoded, config, torch.float32, 128), 128), [5, 9, 11, 2, 40])
    packed = targets.native_weights(weights)
    errors = [
        deviation(logits(NativeTarget(packed, config, 128, mode), [5, 9, 11, 2, 40]), want)
        for mode in (Mode.A16, Mode.A8)
    ]
    assert errors[0] < 0.005
    assert errors[0] < errors[1] / 5


def test_floats_are_handed_over_as_they_are() -> None:
    values = torch.tensor([[1.0, -2.5], [0.0, 3.0]])
    for dtype, kind in zip((torch.float32, torch.bfloat16, torch.float16), FLOATS, strict=True):
        raw = raw_tensor(values.to(dtype))
        assert raw.kind == kind
        assert np.array_equal(raw.dequantised(), values.numpy())
    assert raw_tensor(values.double()).kind == "F32"


def test_a_format_that_is_not_kept_is_decoded() -> None:
    tensor = random_tensor("Q3_K", 4, 256)
    packable = NativeWeights({"w": tensor}, False).packable("w")
    assert packable.kind == "F32"
    assert np.array_equal(packable.dequantised(), tensor.dequantised())
    for kind in (*KEPT, *FLOATS):
        kept = random_tensor(kind, 4, 256)
        assert NativeWeights({"w": kept}, False).packable("w") is kept
        assert kind in FORMATS
    unknown = RawTensor("Q8_1", (1, 32), np.zeros(40, np.uint8))
    with pytest.raises(CheckpointError, match="Q8_1"):
        NativeWeights({"w": unknown}, False).packable("w")

"""The files that the native engine reads by itself: GGUF tables and blocks, damaged ones too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from adaptivespec.engine.weights.convert import convert_gguf
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.native.library import Mode
from adaptivespec.native.weights import gguf_row_order, gguf_tensors
from fakes import targets, tiny_gguf
from fakes.targets import deviation, logits

KIND = gguf.GGMLQuantizationType


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of the tiny GGUF file that the native engine serves."""
    for name, value in {"HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 16}.items():
        monkeypatch.setattr(tiny_gguf, name, value)


def write(path: Path, **options: Any) -> Path:
    extra = {
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        **options.pop("extra", {}),
    }
    return tiny_gguf.write_gguf(path / "tiny.gguf", tiny_gguf.GgufSpec(extra=extra, **options))


def open_native(path: Path, mode: Mode = Mode.A16) -> NativeTarget:
    targets.native()  # skips without a compiler
    config = ModelConfig.from_dir(path)
    return NativeTarget(NativeWeights.open(path, config), config, 128, mode)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("kinds", "most"),
    [
        ({**tiny_gguf.MIXED, "lm_head": KIND.Q8_0}, 0.05),
        ({"embed": KIND.Q8_0, "lm_head": KIND.Q8_0, "_proj": KIND.Q8_0}, 0.05),
        ({"embed": KIND.BF16, "_proj": KIND.F16}, 0.05),  # to 16 bits
        ({"_proj": KIND.Q5_0}, 0.05),
    ],
    ids=["Q4_1", "Q8_0", "floats", "Q5_0"],
)
def test_a_gguf_file_is_read(
    tmp_path: Path, kinds: dict[str, Any], most: float, tied: bool
) -> None:
    path = write(tmp_path, kinds=kinds, tied=tied)
    config = ModelConfig.from_dir(path)
    dense = load_weights(path, config)
    ids = [3, 9, 11, 2, 40]
    want = logits(TorchTarget(Llama(dense, config, torch.float32, 128), 128), ids)
    target = open_native(path)
    assert deviation(logits(target, ids), want) < most
    assert torch.equal(target.embedding, dense["model.embed_tokens.weight"])
    output = "model.embed_tokens.weight" if tied else "lm_head.weight"
    assert torch.equal(target.output, dense[output])


@pytest.mark.usefixtures("sizes")
def test_a_converted_directory_is_read_from_its_gguf_file(tmp_path: Path) -> None:
    path = write(tmp_path, kinds=tiny_gguf.MIXED)
    directory = tmp_path / "converted"
    directory.mkdir()
    convert_gguf(path, directory)
    ids = [3, 9, 11, 2, 40]
    dense = logits(open_native(directory), ids)
    path.rename(directory / "tiny.gguf")
    assert torch.equal(logits(open_native(directory), ids), dense)  # somebody's file: passed over
    (directory / "manifest.json").write_text("{}")
    assert torch.equal(
        logits(open_native(directory), ids), logits(open_native(directory / "tiny.gguf"), ids)
    )
    assert not torch.equal(logits(open_native(directory), ids), dense)


def test_row_order_undoes_the_permutation_of_a_gguf_file() -> None:
    rows = np.arange(4 * 16, dtype=np.float32)[:, None]
    assert np.array_equal(tiny_gguf.permute(rows, 4)[gguf_row_order(4, 16)], rows)


def test_alignment_is_minded(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    writer.add_array("words", ["a", "bc", ""])
    writer.add_array("numbers", [1, 2, 3])
    tensors = {name: np.full((2, 3), at, np.float32) for at, name in enumerate("xyz")}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = gguf_tensors(path)
    assert list(found) == list(tensors)
    for name, raw in found.items():
        assert np.array_equal(raw.dequantised(), tensors[name])


def test_no_damaged_file_is_read(tmp_path: Path) -> None:
    whole = tiny_gguf.write_gguf(tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "damaged.gguf"
    cuts = [0, 3, 8, 23, 24, 100, *(len(whole) * i // 40 for i in range(1, 40)), len(whole) - 1]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=r"damaged\.gguf"):
            gguf_tensors(path)
    for content in (b"no GGUF file at all", b"\x00" * 64, whole[:8] + b"\xff" * 16 + whole[24:]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"damaged\.gguf"):
            gguf_tensors(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        gguf_tensors(tmp_path / "absent.gguf")


def test_a_foreign_tensor_is_named(tmp_path: Path) -> None:
    path = tiny_gguf.write_gguf(
        tmp_path / "tiny.gguf", tiny_gguf.GgufSpec(drop_tensors=("model.norm.weight",))
    )
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        NativeWeights.open(path, ModelConfig.from_dir(path))

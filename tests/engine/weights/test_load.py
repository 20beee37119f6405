"""Safetensors: single, sharded, and every way they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.engine.weights.resolve import ModelFiles
from adaptivespec.nn.checkpoint import check_tensors, open_safetensors
from fakes.tiny_gguf import hf_weights, vocabulary

CONFIG = ModelConfig.from_dict(
    {
        "model_type": "llama",
        "vocab_size": len(vocabulary()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
    }
)
UNTIED = ModelConfig(**{**CONFIG.__dict__, "tie_word_embeddings": False})


def tensors(tied: bool = True) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in hf_weights(tied=tied).items()}


@pytest.fixture
def single(tmp_path: Path) -> Path:
    save_file(tensors(), tmp_path / "model.safetensors")
    return tmp_path


def shard(directory: Path, stored: dict[str, torch.Tensor], shards: int = 3) -> dict[str, str]:
    """Spread tensors over files; the weight map, which is written too."""
    names = sorted(stored)
    weight_map = {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = {name: stored[name] for name in names[index::shards]}
        save_file(part, directory / file)
        weight_map |= dict.fromkeys(part, file)
    write_index(directory, weight_map)
    return weight_map


def write_index(directory: Path, weight_map: object) -> None:
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (directory / "model.safetensors.index.json").write_text(text)


def assert_equal(found: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> None:
    expected = tensors()
    assert set(found) == set(expected)
    for name, tensor in found.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, expected[name].to(dtype)), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_single_file(single, dtype):
    assert_equal(load_weights(single, CONFIG, dtype), dtype)


def test_files_may_be_given_as_resolved(single):
    assert_equal(load_weights(ModelFiles(single, "tiny"), CONFIG))


def test_changes_in_memory_never_reach_the_file(single):
    before = (single / "model.safetensors").read_bytes()
    load_weights(single, CONFIG)["model.norm.weight"].zero_()
    assert (single / "model.safetensors").read_bytes() == before
    assert_equal(load_weights(single, CONFIG))


def test_shards(tmp_path):
    shard(tmp_path, tensors())
    assert_equal(load_weights(tmp_path, CONFIG))


def test_untied_and_tied_heads(tmp_path):
    save_file(tensors(tied=False), tmp_path / "model.safetensors")
    assert "lm_head.weight" in load_weights(tmp_path, UNTIED)
    assert "lm_head.weight" not in load_weights(tmp_path, CONFIG)


def test_an_untied_head_must_be_there(single):
    with pytest.raises(CheckpointError, match=r"1 missing: lm_head\.weight"):
        load_weights(single, UNTIED)


def test_recomputed_buffers_are_harmless(tmp_path):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    save_file(tensors() | extra, tmp_path / "model.safetensors")
    assert_equal(load_weights(tmp_path, CONFIG))


@pytest.mark.parametrize("sharded", [False, True])
def test_missing_unexpected_and_misshaped_are_listed_together(tmp_path, sharded):
    stored = tensors()
    for layer in (0, 1):
        del stored[f"model.layers.{layer}.mlp.up_proj.weight"]
    stored["model.norm.weight"] = torch.ones(31)
    stored["visual.weight"] = torch.ones(1)
    if sharded:
        shard(tmp_path, stored)
    else:
        save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        load_weights(tmp_path, CONFIG)
    text = str(caught.value)
    names = "model.layers.0.mlp.up_proj.weight, model.layers.1.mlp.up_proj.weight"
    assert f"2 missing: {names}" in text
    assert "1 unexpected: visual.weight" in text
    assert "1 mis-shaped: model.norm.weight [31] instead of [32]" in text
    assert caught.value.field.startswith(str(tmp_path))


def test_a_tensor_that_no_index_names_is_unexpected(tmp_path):
    weight_map = shard(tmp_path, tensors() | {"stray.weight": torch.ones(1)})
    del weight_map["stray.weight"]
    write_index(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match=r"1 unexpected: stray\.weight"):
        load_weights(tmp_path, CONFIG)


def test_a_tensor_that_is_not_in_the_named_shard_is_missing(tmp_path):
    weight_map = shard(tmp_path, tensors())
    other = next(s for s in weight_map.values() if s != weight_map["model.norm.weight"])
    write_index(tmp_path, weight_map | {"model.norm.weight": other})
    with pytest.raises(CheckpointError, match=r"1 missing: model\.norm\.weight"):
        load_weights(tmp_path, CONFIG)


def test_a_shard_that_is_not_there(tmp_path):
    weight_map = shard(tmp_path, tensors())
    (tmp_path / weight_map["model.norm.weight"]).unlink()
    with pytest.raises(CheckpointError, match="1 of 3 shards are missing: model-0"):
        load_weights(tmp_path, CONFIG)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "a\\b"])
def test_an_index_cannot_lead_out_of_its_directory(tmp_path, name):
    write_index(tmp_path, {"model.norm.weight": name})
    with pytest.raises(CheckpointError, match="not a plain file name"):
        load_weights(tmp_path, CONFIG)


@pytest.mark.parametrize("weight_map", [None, [], {"a": 1}])
def test_an_index_without_a_map(tmp_path, weight_map):
    write_index(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match="weight_map"):
        load_weights(tmp_path, CONFIG)


def test_only_pickles(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*not read") as caught:
        load_weights(tmp_path, CONFIG)
    assert "save_file" in caught.value.remedy


def test_no_weights_at_all(tmp_path):
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        load_weights(tmp_path, CONFIG)


def test_quantised_tensors_are_refused(tmp_path):
    stored = tensors()
    stored["model.layers.0.mlp.up_proj.weight"] = torch.zeros(64, 32, dtype=torch.int8)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"mlp\.up_proj\.weight I8"):
        load_weights(tmp_path, CONFIG)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.01, 0.5, 0.999])
def test_truncated_files(single, keep):
    file = single / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(CheckpointError) as caught:
        load_weights(single, CONFIG)
    assert caught.value.field == str(file)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"\x80\x04\x95 a pickle, perhaps", "not a readable safetensors file"),
        (b"PK\x03\x04" * 100, "not a readable safetensors file"),
        ((10**12).to_bytes(8, "little") + b"{}", "not a readable safetensors file"),
        ((8).to_bytes(8, "little") + b"not json", "not a readable safetensors file"),
    ],
)
def test_foreign_files(tmp_path, content, match):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=match):
        load_weights(tmp_path, CONFIG)


def test_open_safetensors_reads_headers_and_outlives_its_block(single):
    with open_safetensors(single / "model.safetensors") as file:
        assert file.shapes()["model.norm.weight"] == (32,)
        tensor = file.get("model.norm.weight")
        with pytest.raises(CheckpointError, match="tensor nothing cannot be read"):
            file.get("nothing")
    assert torch.equal(tensor, tensors()["model.norm.weight"])


def test_open_safetensors_without_a_file(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"), open_safetensors(tmp_path / "x"):
        pass
    with pytest.raises(CheckpointError), open_safetensors(tmp_path):
        pass


def test_check_tensors_counts_all_and_names_eight():
    expected = {f"t{i:02}": (1,) for i in range(20)}
    with pytest.raises(CheckpointError) as caught:
        check_tensors({}, expected, where="head")
    text = str(caught.value)
    assert text.startswith("head: ")
    assert "20 missing: t00, t01, t02, t03, t04, t05, t06, t07, and 12 more" in text


def test_check_tensors_optional_may_be_absent_but_not_misshaped():
    check_tensors({"a": (2,)}, {"a": (2,), "b": (3,)}, {"b"})
    with pytest.raises(CheckpointError, match=r"b \[4\] instead of \[3\]"):
        check_tensors({"a": (2,), "b": (4,)}, {"a": (2,), "b": (3,)}, {"b"})

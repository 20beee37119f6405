"""config.json: both dialects of rope, end-of-sequence lists, and everything that is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.families import FAMILIES, UnservedModelError

VALID: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config(**changes: Any) -> ModelConfig:
    """VALID with changes; a value of None removes the key."""
    data = {key: value for key, value in (VALID | changes).items() if value is not None}
    return ModelConfig.from_dict(data, where="config.json")


def test_defaults():
    made = config(num_key_value_heads=None, rope_theta=None, rms_norm_eps=None, bos_token_id=None)
    assert made.num_kv_heads == 4
    assert made.head_dim == 8
    assert made.rope_theta == 10000.0
    assert made.rms_norm_eps == 1e-6
    assert made.bos_token_id is None
    assert not made.tie_word_embeddings


def test_head_dim_need_not_be_hidden_over_heads():
    made = config(head_dim=16)
    assert made.tensor_shapes()["model.layers.1.self_attn.q_proj.weight"] == (64, 32)
    assert made.tensor_shapes()["model.layers.1.self_attn.o_proj.weight"] == (32, 64)
    assert made.tensor_shapes()["model.layers.1.self_attn.k_proj.weight"] == (32, 32)


def test_what_a_family_has_beyond_llama():
    llama, qwen2, qwen3 = (config(model_type=name) for name in ("llama", "qwen2", "qwen3"))
    assert set(qwen2.tensor_shapes()) - set(llama.tensor_shapes()) == {
        f"model.layers.{i}.self_attn.{name}_proj.bias" for i in range(2) for name in "qkv"
    }
    assert set(qwen3.tensor_shapes()) - set(llama.tensor_shapes()) == {
        f"model.layers.{i}.self_attn.{name}_norm.weight" for i in range(2) for name in "qk"
    }
    assert (qwen2.head_dim, qwen3.head_dim) == (8, 128)
    assert config(model_type="qwen3", head_dim=16).head_dim == 16
    silent = config(model_type="mistral", num_attention_heads=8, num_key_value_heads=None)
    assert silent.num_kv_heads == 8


QWEN = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16}


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"model_type": "mistral", "sliding_window": 64}, 64),
        ({"model_type": "mistral"}, 4096),
        ({"sliding_window": 64}, None),  # no Llama has one, whatever is written there
        (QWEN | {"max_window_layers": 1}, 16),
        (QWEN | {"max_window_layers": 0}, 16),
        (QWEN | {"max_window_layers": 2}, None),
        (QWEN, None),
        (QWEN | {"use_sliding_window": False, "max_window_layers": 0}, None),
        (QWEN | {"layer_types": ["full_attention", "sliding_attention"]}, 16),
        (QWEN | {"layer_types": ["full_attention"] * 2, "max_window_layers": 0}, None),
    ],
)
def test_sliding_windows(changes, window):
    made = config(**changes)
    assert made.sliding_window == window
    made.require_whole_context(window or 10**9)
    if window is not None:
        with pytest.raises(ConfigError, match=f"at most {window}") as caught:
            made.require_whole_context(window + 1)
        assert caught.value.field == "max_model_len"


def test_a_window_that_is_null_is_none():
    made = ModelConfig.from_dict(VALID | {"model_type": "mistral", "sliding_window": None})
    assert made.sliding_window is None


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({}, 50000.0, None),
        ({"rope_scaling": {"rope_type": "default"}}, 50000.0, None),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}},
            50000.0,
            {"rope_type": "linear", "factor": 2},
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            50000.0,
            {"rope_type": "llama3", **LLAMA3},
        ),
        (
            {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
            7.0,
            None,
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
            5e5,
            {"rope_type": "llama3", **LLAMA3},
        ),
    ],
)
def test_both_dialects_of_rope(changes, theta, scaling):
    made = config(**changes)
    assert (made.rope_theta, made.rope_scaling) == (theta, scaling)


@pytest.mark.parametrize(
    ("eos", "generation", "expected"),
    [
        (2, {}, (2,)),
        ([2, 5], {}, (2, 5)),
        (2, {"eos_token_id": [7, 2]}, (2, 7)),
        (None, {"eos_token_id": 4}, (4,)),
        (None, {}, ()),
    ],
)
def test_end_tokens_of_both_files_are_merged(tmp_path, eos, generation, expected):
    (tmp_path / "config.json").write_text(json.dumps(VALID | {"eos_token_id": eos}))
    if generation:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert ModelConfig.from_dir(tmp_path).eos_token_ids == expected


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"model_type": "qwen3_moe"},
            "'qwen3_moe' is not supported.*What works: llama, mistral, qwen2, qwen3.*transformers",
        ),
        ({"model_type": None}, "model_type None"),
        ({"model_type": ["llama"]}, "model_type .'llama'."),
        ({"num_local_experts": 8}, "num_local_experts = 8 .a mixture of experts. is not supported"),
        ({"attention_bias": True}, "attention_bias = true is not supported"),
        ({"model_type": "qwen3", "attention_bias": True}, "attention_bias = true"),
        ({"mlp_bias": True}, "mlp_bias = true is not supported"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'.*default, linear, llama3"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "differs by layer"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5"),
    ],
)
def test_what_our_forwards_lack_is_told_apart(changes, match):
    with pytest.raises(UnservedModelError, match=match) as caught:
        config(**changes)
    assert caught.value.field == "config.json"


def test_quantised_safetensors_are_refused():
    with pytest.raises(ConfigError, match="quantised safetensors") as caught:
        config(quantization_config={"quant_method": "awq"})
    assert not isinstance(caught.value, UnservedModelError)
    assert caught.value.field == "config.json"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        *(
            ({key: None}, f"{key}: missing")
            for key in ("vocab_size", "hidden_size", "intermediate_size")
        ),
        ({"num_hidden_layers": None}, "num_hidden_layers: missing"),
        ({"max_position_embeddings": None}, "max_position_embeddings: missing"),
        ({"vocab_size": "100"}, "vocab_size: '100' where a positive integer"),
        ({"vocab_size": True}, "vocab_size: True"),
        ({"hidden_size": 32.5}, r"hidden_size: 32\.5"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0"),
        (
            {"num_key_value_heads": 3},
            "num_key_value_heads: 3 does not divide num_attention_heads = 4",
        ),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 6},
            "6 does not divide hidden_size = 32",
        ),
        ({"head_dim": 7}, "head_dim: 7 is odd"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps: 'tiny'"),
        ({"rope_theta": -1.0}, "rope_theta: -1.0"),
        ({"rope_scaling": 4}, "rope_scaling: 4"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor: missing"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor: missing"),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}}, "greater"),
        ({"eos_token_id": "</s>"}, "eos_token_id: '</s>'"),
        ({"eos_token_id": [2, -1]}, "eos_token_id"),
        ({"eos_token_id": 100}, "eos_token_id: 100 lies outside the vocabulary of 100"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes'"),
    ],
)
def test_malformed_values_name_file_and_key(changes, match):
    with pytest.raises(CheckpointError, match=match) as caught:
        config(**changes)
    assert caught.value.field.startswith("config.json")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not valid JSON"),
        ("[1]", "JSON list"),
        ("\udcff", "cannot be read"),
        ("[" * 10**5, "config"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_malformed_files(tmp_path, text, match, name):
    (tmp_path / "config.json").write_text(json.dumps(VALID))
    (tmp_path / name).write_text(text, errors="surrogateescape")
    with pytest.raises(CheckpointError, match=match) as caught:
        ModelConfig.from_dir(tmp_path)
    assert caught.value.field == str(tmp_path / name)


def test_absent_file(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        ModelConfig.from_dir(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


KEYS = [
    *(*VALID, "rope_scaling", "rope_parameters", "head_dim", "partial_rotary_factor"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "num_experts"),
]


@given(kind=st.sampled_from([*FAMILIES]), key=st.sampled_from(KEYS), value=JSON)
def test_any_value_is_accepted_or_refused_with_a_typed_error(kind, key, value):
    made = None
    with contextlib.suppress(ConfigError, CheckpointError):
        made = ModelConfig.from_dict(VALID | {"model_type": kind, key: value})
    if made is not None:
        assert made.num_heads % made.num_kv_heads == 0
        assert made.tensor_shapes()

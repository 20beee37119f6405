"""The Hugging Face config that a GGUF file's metadata amounts to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.engine.weights.families import FAMILIES
from adaptivespec.engine.weights.gguf_file import FloatArray, GgufFile

__all__ = ["hf_config", "llama3_factors"]

#: Hugging Face's model_type by the architecture's name in GGUF.
_MODEL_TYPES = {family.gguf: name for name, family in FAMILIES.items() if family.gguf}
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def hf_config(file: GgufFile) -> dict[str, Any]:
    """The config.json equivalent to ``file``'s metadata.

    Raises:
        ConfigError: an architecture that is not supported, a mixture of experts, a sliding window,
            or a rope scaling that is not supported.
        CheckpointError: a metadata key is missing.
    """
    architecture = file.architecture
    model_type = _MODEL_TYPES.get(architecture)
    if model_type is None:
        raise ConfigError(
            f"GGUF architecture {architecture!r} is not supported",
            field=str(file.path),
            remedy=f"What works: {', '.join(_CLASSES)} (a Mistral is a llama there); for other "
            "models, their Hugging Face directory with `pip install transformers`",
        )
    if file.get(f"{architecture}.expert_count", 0):
        raise ConfigError("mixtures of experts are not supported", field=str(file.path))

    def need(key: str) -> Any:
        value = file.get(f"{architecture}.{key}")
        if value is None:
            raise CheckpointError(f"metadata {architecture}.{key} is missing", field=str(file.path))
        return value

    window = file.get(f"{architecture}.attention.sliding_window")
    if window and window < need("context_length"):
        raise ConfigError(
            f"a sliding window of {window} positions is not supported in GGUF files",
            field=str(file.path),
            remedy="Use the Hugging Face directory of this model",
        )
    shapes = file.shapes()
    embedding = shapes.get("model.embed_tokens.weight")
    if embedding is None:
        raise CheckpointError("tensor token_embd.weight is missing", field=str(file.path))
    heads, hidden = need("attention.head_count"), need("embedding_length")
    if not isinstance(heads, int) or heads < 1:
        raise ConfigError(
            "a head count that differs by layer is not supported", field=str(file.path)
        )
    head_dim = file.get(f"{architecture}.attention.key_length") or hidden // heads
    rotated = file.get(f"{architecture}.rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise ConfigError(
            f"rotary positions on {rotated} of {head_dim} dimensions are not supported",
            field=str(file.path),
        )
    theta = _shortest(file.get(f"{architecture}.rope.freq_base", 10000.0))
    config: dict[str, Any] = {
        "architectures": [_CLASSES[model_type]],
        "model_type": model_type,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "vocab_size": embedding[0],
        "hidden_size": hidden,
        "intermediate_size": need("feed_forward_length"),
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": need("context_length"),
        "rms_norm_eps": _shortest(need("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(file, theta, head_dim),
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        token = file.get(f"tokenizer.ggml.{name}_token_id")
        if token is not None:
            config[f"{key}_token_id"] = token
    return config


def _shortest(value: float) -> float:
    """The shortest decimal that rounds to this float32 (1e-05, not 9.999999747378752e-06)."""
    return float(str(np.float32(value)))


def _rope_scaling(file: GgufFile, theta: float, head_dim: int) -> dict[str, Any] | None:
    factors = file.rope_factors()
    if factors is not None:
        return _recover_llama3(file, factors, theta, head_dim)
    kind = file.get(f"{file.architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise ConfigError(
            f"rope scaling {kind!r} is not supported",
            field=str(file.path),
            remedy="Supported: none, linear, llama3",
        )
    return {
        "rope_type": "linear",
        "factor": float(file.get(f"{file.architecture}.rope.scaling.factor", 1.0)),
    }


def llama3_factors(scaling: dict[str, Any], theta: float, head_dim: int) -> FloatArray:
    """What a "llama3" rope scaling divides each of the head_dim / 2 rotation frequencies by.

    Long wavelengths are divided by ``factor``, short ones by 1, those between smoothly.
    """
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = context * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - smooth) / factor + smooth), dtype=np.float32)


def _recover_llama3(
    file: GgufFile, factors: FloatArray, theta: float, head_dim: int
) -> dict[str, Any]:
    """GGUF stores the divisors, not the rule: accept those of the published Llama 3 models."""
    scaling = {
        "rope_type": "llama3",
        "factor": float(factors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    expected = llama3_factors(scaling, theta, head_dim)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-3):
        raise ConfigError(
            "rope_freqs.weight is not the scaling of a Llama 3 model", field=str(file.path)
        )
    return scaling

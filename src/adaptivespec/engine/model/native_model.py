"""A model of the native engine from a checkpoint: its sizes, checked, and all its weights."""

from __future__ import annotations

import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.model.native_weights import EMBEDDING, OUTPUT, NativeWeights
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.native.library import (
    Library,
    Matrix,
    Mode,
    NativeConfig,
    NativeModel,
    Norm,
)
from adaptivespec.native.weights import gguf_row_order
from adaptivespec.nn.rope import Rope

_MATRICES = {
    "self_attn.q_proj": Matrix.QUERY,
    "self_attn.k_proj": Matrix.KEY,
    "self_attn.v_proj": Matrix.VALUE,
    "self_attn.o_proj": Matrix.ATTENTION_OUTPUT,
    "mlp.gate_proj": Matrix.GATE,
    "mlp.up_proj": Matrix.UP,
    "mlp.down_proj": Matrix.DOWN,
}
_NORMS = {"input_layernorm": Norm.ATTENTION, "post_attention_layernorm": Norm.FFN}
#: What only some families have: Qwen3 norms of heads, Qwen2 biases.
_HEAD_NORMS = {"self_attn.q_norm": Norm.QUERY, "self_attn.k_norm": Norm.KEY}
_BIASES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def native_config(config: ModelConfig, max_model_len: int) -> NativeConfig:
    """The sizes as the native engine takes them.

    Raises:
        ConfigError: it does not serve such a model; lists all that is in the way.
    """
    width = config.num_heads * config.head_dim
    problems = [
        *(
            f"{name} = {value} is no multiple of 32"
            for name, value in (
                ("hidden_size", config.hidden_size),
                ("intermediate_size", config.intermediate_size),
                ("num_attention_heads * head_dim", width),
            )
            if value % 32
        ),
        *([f"head_dim = {config.head_dim} is no multiple of 16"] if config.head_dim % 16 else []),
        *([f"head_dim = {config.head_dim} is above 256"] if config.head_dim > 256 else []),
    ]
    if problems:
        raise ConfigError(
            f"native does not serve this model: {'; '.join(problems)}",
            field="backend",
            remedy="Use backend torch",
        )
    return NativeConfig(
        layers=config.num_layers,
        hidden=config.hidden_size,
        ffn=config.intermediate_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab_size,
        max_len=max_model_len,
        rms_eps=config.rms_norm_eps,
        tied=config.tie_word_embeddings,
    )


def native_model(
    weights: NativeWeights,
    config: ModelConfig,
    max_model_len: int,
    mode: Mode,
    library: Library | None = None,
) -> NativeModel:
    """A model packed and ready.

    Raises:
        ConfigError: as `native_config`.
        NativeError: the engine refused the weights, or there is no engine.
    """
    c, model = config, NativeModel(native_config(config, max_model_len), library)
    half, length = c.head_dim // 2, max_model_len
    table = Rope(c.head_dim, c.rope_theta, length, torch.float32, c.rope_scaling)
    # The table's sine has the sign of the rotated half; the engine subtracts by itself.
    model.rope(table.cos[:, :half].numpy(), table.sin[:, half:].numpy())
    orders = {}
    if weights.permuted:
        orders = {
            Matrix.QUERY: gguf_row_order(c.num_heads, c.head_dim),
            Matrix.KEY: gguf_row_order(c.num_kv_heads, c.head_dim),
        }

    def matrix(layer: int, which: Matrix, name: str) -> None:
        tensor, precise = weights.packable(name), mode is Mode.A16
        model.weight(layer, which, tensor, orders.get(which), precise=precise)

    def norm(layer: int, which: Norm, name: str) -> None:
        model.norm(layer, which, weights.tensors[name].dequantised())

    def bias(layer: int, which: Matrix, name: str) -> None:
        values = weights.tensors[name].dequantised()
        model.bias(layer, which, values[orders[which]] if which in orders else values)

    matrix(0, Matrix.EMBEDDING, EMBEDDING)
    if not c.tie_word_embeddings:
        matrix(0, Matrix.OUTPUT, OUTPUT)
    for layer in range(c.num_layers):
        for name, which in _MATRICES.items():
            matrix(layer, which, f"model.layers.{layer}.{name}.weight")
        for name, gain in (_NORMS | _HEAD_NORMS).items():
            full = f"model.layers.{layer}.{name}.weight"
            if name in _NORMS or full in weights.tensors:
                norm(layer, gain, full)
        for name in _BIASES:
            if (full := f"model.layers.{layer}.{name}.bias") in weights.tensors:
                bias(layer, _MATRICES[name], full)
    norm(0, Norm.OUTPUT, "model.norm.weight")
    model.ready()
    return model

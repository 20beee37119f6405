"""The families of models that our own forwards run, and what a config must not ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.weights.jsonfile import Fields

__all__ = [
    "FAMILIES",
    "Family",
    "UnservedModelError",
    "refuse_unserved",
    "sliding_window",
    "unserved",
]


class UnservedModelError(ConfigError):
    """A well-formed model that our own forwards do not run; transformers may (docs/models.md)."""


@dataclass(frozen=True)
class Family:
    """What a family has beyond Llama, the common ancestor.

    ``qkv_bias`` are biases of the query, key and value projections; ``head_norms`` are norms of
    each query and key head before the rotation. ``window`` says how its configs speak of a sliding
    window: not at all (""), by its size ("always"), or only with use_sliding_window ("asked").
    ``num_kv_heads``, ``head_dim`` and ``window_size`` hold where a config is silent, as in
    transformers. ``gguf`` is the architecture's name there, and ``gguf_permuted`` says that GGUF
    stores its query and key rows in another order.
    """

    qkv_bias: bool = False
    head_norms: bool = False
    window: str = ""
    window_size: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    gguf: str | None = None
    gguf_permuted: bool = False


#: By model_type. A Mistral in GGUF calls itself a llama, and is one.
FAMILIES: dict[str, Family] = {
    "llama": Family(gguf="llama", gguf_permuted=True),
    "mistral": Family(window="always", window_size=4096, num_kv_heads=8),
    "qwen2": Family(qkv_bias=True, window="asked", window_size=4096, num_kv_heads=32, gguf="qwen2"),
    "qwen3": Family(
        head_norms=True,
        window="asked",
        window_size=4096,
        num_kv_heads=32,
        head_dim=128,
        gguf="qwen3",
    ),
}

_WORKS = (
    f"What works: {', '.join(FAMILIES)} (Llama 2 and 3, SmolLM2, DeepSeek-R1-Distill-Llama, "
    "TinyLlama, Mistral, Qwen 2, 2.5 and 3, and their finetunes); any other with "
    "`pip install transformers`, from a directory of safetensors and with backend torch or auto"
)
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


def unserved(what: str, where: str) -> UnservedModelError:
    """The error for a config in the file `where` that asks for `what`."""
    return UnservedModelError(f"{what} is not supported", field=where, remedy=_WORKS)


def refuse_unserved(data: Mapping[str, Any], where: str) -> None:
    """Check that a config asks for nothing that our own forwards lack.

    Raises:
        UnservedModelError: it does; names the key.
        ConfigError: weights in a form that is not read.
    """
    if data.get("quantization_config") is not None:
        raise ConfigError(
            "quantization_config: quantised safetensors are not supported",
            field=where,
            remedy="Use the unquantised weights of this model, or a GGUF file",
        )

    model_type = data.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise unserved(f"model_type {model_type!r}", where)
    for key in _EXPERTS:
        if data.get(key):
            raise unserved(f"{key} = {data[key]!r} (a mixture of experts)", where)
    for key in ("attention_bias", "mlp_bias"):
        # Qwen2 has the one kind of bias that is served, whatever its config says.
        if data.get(key) and not FAMILIES[model_type].qkv_bias:
            raise unserved(f"{key} = true", where)
    activation = data.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise unserved(f"hidden_act {activation!r}", where)


def sliding_window(family: Family, fields: Fields, num_layers: int) -> int | None:
    """How many positions some layer of the model sees, itself included; None for all of them."""
    data = fields.data
    if family.window == "asked":
        if not fields.flag("use_sliding_window", False):
            return None
        kinds = data.get("layer_types")
        if isinstance(kinds, list):
            slides = "sliding_attention" in kinds
        else:
            # The first max_window_layers see everything; 28 where the config is silent.
            first = data.get("max_window_layers")
            slides = (0 if first == 0 else fields.integer("max_window_layers", 28)) < num_layers
        if not slides:
            return None
    if not family.window or ("sliding_window" in data and data["sliding_window"] is None):
        return None
    return fields.integer("sliding_window", family.window_size)

"""What shape a model has: config.json, or the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.weights.families import (
    FAMILIES,
    UnservedModelError,
    refuse_unserved,
    sliding_window,
    unserved,
)
from adaptivespec.engine.weights.jsonfile import Fields, read_json

__all__ = ["SUPPORTED_ROPE_TYPES", "ModelConfig"]

SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")

_ROPE_KEYS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model of one of the families (:data:`families.FAMILIES`).

    ``qkv_bias`` and ``head_norms`` say what its layers have beyond Llama's. ``sliding_window`` is
    the number of positions that some layer sees, or None where all see everything.
    ``rope_scaling`` is None, or a dict with "rope_type" ("linear" or "llama3") and that type's
    numbers. ``eos_token_ids`` holds those of config.json first, then the further ones of
    generation_config.json. ``torch_dtype`` is the precision the checkpoint names for itself, if it
    does.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    model_type: str = "llama"
    torch_dtype: str | None = None
    qkv_bias: bool = False
    head_norms: bool = False
    sliding_window: int | None = None

    @classmethod
    def from_dir(cls, path: str | Path) -> ModelConfig:
        """Read a model directory, or a GGUF file.

        Raises:
            CheckpointError: a file is absent or malformed, or a key is missing or of the wrong
                type.
            UnservedModelError: well-formed, but a model that our own forwards do not run.
            ConfigError: weights in a form that is not read.
        """
        path = Path(path)
        if path.suffix == ".gguf":
            return cls.from_gguf(path)
        data = read_json(path / "config.json")
        generation = read_json(path / "generation_config.json", missing_ok=True)
        return cls.from_dict(data, generation, where=str(path / "config.json"))

    @classmethod
    def from_gguf(cls, path: str | Path) -> ModelConfig:
        """Read the metadata of a GGUF file. Raises as :meth:`from_dir`."""
        from adaptivespec.engine.weights.gguf_config import hf_config
        from adaptivespec.engine.weights.gguf_file import GgufFile

        return cls.from_dict(hf_config(GgufFile.open(path)), where=str(path))

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        generation: Mapping[str, Any] | None = None,
        *,
        where: str = "config.json",
    ) -> ModelConfig:
        """Check a Hugging Face config and generation config; ``where`` names the file in errors."""
        fields = Fields(data, where)
        refuse_unserved(data, where)
        family = FAMILIES[data["model_type"]]
        num_heads = fields.integer("num_attention_heads")
        num_kv_heads = fields.integer("num_key_value_heads", family.num_kv_heads or num_heads)
        hidden_size = fields.integer("hidden_size")
        if num_heads % num_kv_heads:
            raise fields.error(
                "num_key_value_heads",
                f"{num_kv_heads} does not divide num_attention_heads = {num_heads}",
            )
        if data.get("head_dim") is None and not family.head_dim and hidden_size % num_heads:
            raise fields.error(
                "num_attention_heads",
                f"{num_heads} does not divide hidden_size = {hidden_size}, and head_dim is not "
                "given",
            )
        head_dim = fields.integer("head_dim", family.head_dim or hidden_size // num_heads)
        if head_dim % 2:
            raise fields.error("head_dim", f"{head_dim} is odd; rotary positions need pairs")
        theta, scaling = _rope(fields)
        vocab_size = fields.integer("vocab_size")
        generated = Fields(generation or {}, str(Path(where).with_name("generation_config.json")))
        eos = (
            *fields.token_ids("eos_token_id", vocab_size),
            *generated.token_ids("eos_token_id", vocab_size),
        )
        bos = fields.token_ids("bos_token_id", vocab_size)
        dtype = data.get("dtype", data.get("torch_dtype"))
        num_layers = fields.integer("num_hidden_layers")
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.integer("intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rope_theta=theta,
            rope_scaling=scaling,
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            max_position_embeddings=fields.integer("max_position_embeddings"),
            tie_word_embeddings=fields.flag("tie_word_embeddings", False),
            eos_token_ids=tuple(dict.fromkeys(eos)),
            bos_token_id=bos[0] if bos else None,
            model_type=data["model_type"],
            torch_dtype=dtype if isinstance(dtype, str) else None,
            qkv_bias=family.qkv_bias,
            head_norms=family.head_norms,
            sliding_window=sliding_window(family, fields, num_layers),
        )

    def require_whole_context(self, limit: int) -> None:
        """Raise ConfigError where a text of ``limit`` tokens outgrows a sliding window: our
        forwards let every row see all that came before."""
        if self.sliding_window is not None and limit > self.sliding_window:
            raise ConfigError(
                f"this {self.model_type} sees {self.sliding_window} positions at a time (its "
                f"sliding window), and texts of {limit} tokens are allowed",
                field="max_model_len",
                remedy=f"Give max_model_len (--max-model-len) of at most {self.sliding_window}",
            )

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name -> shape of every tensor of the model, lm_head.weight included.

        Linear weights are [out, in]. With tied embeddings a checkpoint need not hold
        lm_head.weight.
        """
        hidden, queries, keys = (
            self.hidden_size,
            self.num_heads * self.head_dim,
            self.num_kv_heads * self.head_dim,
        )
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden)
        }
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            shapes |= {
                f"{prefix}input_layernorm.weight": (hidden,),
                f"{prefix}self_attn.q_proj.weight": (queries, hidden),
                f"{prefix}self_attn.k_proj.weight": (keys, hidden),
                f"{prefix}self_attn.v_proj.weight": (keys, hidden),
                f"{prefix}self_attn.o_proj.weight": (hidden, queries),
                f"{prefix}post_attention_layernorm.weight": (hidden,),
                f"{prefix}mlp.gate_proj.weight": (self.intermediate_size, hidden),
                f"{prefix}mlp.up_proj.weight": (self.intermediate_size, hidden),
                f"{prefix}mlp.down_proj.weight": (hidden, self.intermediate_size),
            }
            if self.qkv_bias:
                shapes |= {
                    f"{prefix}self_attn.q_proj.bias": (queries,),
                    f"{prefix}self_attn.k_proj.bias": (keys,),
                    f"{prefix}self_attn.v_proj.bias": (keys,),
                }
            if self.head_norms:
                shapes |= {
                    f"{prefix}self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"
                }
        return shapes | {
            "model.norm.weight": (hidden,),
            "lm_head.weight": (self.vocab_size, hidden),
        }


def _rope(fields: Fields) -> tuple[float, dict[str, Any] | None]:
    """Theta and scaling: of rope_parameters (newer configs) or rope_theta and rope_scaling."""
    data = fields.data
    key = "rope_parameters" if data.get("rope_parameters") is not None else "rope_scaling"
    scaling = data.get(key)
    if scaling is not None and not isinstance(scaling, dict):
        raise fields.error(key, f"{scaling!r} where an object or null belongs")
    scaling = dict(scaling or {})
    theta = Fields({"rope_theta": scaling.pop("rope_theta", data.get("rope_theta"))}, fields.where)
    if any(isinstance(value, dict) for value in scaling.values()):
        raise unserved(f"{key} that differs by layer", fields.where)
    kind = scaling.pop("rope_type", None) or scaling.get("type") or "default"
    scaling.pop("type", None)
    if kind not in SUPPORTED_ROPE_TYPES:
        raise UnservedModelError(
            f"{key}: rope_type {kind!r} is not supported",
            field=fields.where,
            remedy=f"Supported: {', '.join(SUPPORTED_ROPE_TYPES)}",
        )
    turned = scaling.pop("partial_rotary_factor", data.get("partial_rotary_factor"))
    if turned not in (None, 1, 1.0):
        raise unserved(f"partial_rotary_factor = {turned!r}", fields.where)
    if kind == "default":
        return theta.number("rope_theta", 10000.0), None
    numbers = Fields(scaling, f"{fields.where}: {key}")
    for name in _ROPE_KEYS[kind]:
        if scaling.get(name) is None:
            raise numbers.error(name, "missing")
        numbers.number(name, 1.0)
    if kind == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise numbers.error("high_freq_factor", "must be greater than low_freq_factor")
    return theta.number("rope_theta", 10000.0), {"rope_type": kind, **scaling}

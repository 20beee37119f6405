"""What a dialect is, and what all dialects share: a Llama layer's keys and the norm flags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.draft.eagle3_config import Eagle3Config, spelled
from adaptivespec.draft.proposal import Proposal

#: Keys of a rope scaling that this package computes, by type.
ROPE_KEYS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True)
class Written:
    """What a config says beside the head's description.

    Attributes:
        dtype: of the weights, by its torch name.
        borrows_lm_head: there is no `lm_head.weight`; the target lends it.
        proposal: how drafts are proposed and accepted, for the dialect that says so.
    """

    dtype: str = "bfloat16"
    borrows_lm_head: bool = False
    proposal: Proposal | None = None


class Dialect(ABC):
    """One way to spell an EAGLE-3 head in `config.json` and in the names of tensors.

    Attributes:
        name: as `convert-head --to` takes it.
        title: who writes it.
        marks: what it is recognised by.
        layer: the name its tensors have for the one decoder layer; both names are read everywhere.
        flags: norm flags that it can say.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    marks: ClassVar[str]
    layer: ClassVar[str] = "midlayer"
    flags: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def recognises(self, data: Mapping[str, Any]) -> bool:
        """Whether a `config.json` is in this dialect."""

    @abstractmethod
    def read(self, data: Mapping[str, Any], where: str) -> Eagle3Config:
        """The head that a `config.json` describes.

        Raises:
            CheckpointError: a key is missing, malformed, or asks for what no head here does; the
                message names it.
        """

    @abstractmethod
    def spell(self, config: Eagle3Config, written: Written) -> dict[str, Any]:
        """The `config.json` of a head whose flags this dialect can say."""

    def write(self, config: Eagle3Config, written: Written) -> dict[str, Any]:
        """The `config.json` of a head.

        Raises:
            ConfigError: the dialect has no words for something the head needs; names all of it.
        """
        beyond = {name: value for name, value in config.flags().items() if name not in self.flags}
        unsaid = ([spelled(beyond)] if beyond else []) + self.unsaid(config, written)
        if unsaid:
            others = "speculators and nvidia say more; see docs/heads.md"
            raise ConfigError(
                f"the {self.name} dialect cannot say: {'; '.join(unsaid)}",
                field="to",
                remedy=f"Keep the head as it is, or choose another dialect: {others}",
            )
        return self.spell(config, written)

    def unsaid(self, config: Eagle3Config, written: Written) -> list[str]:
        """What else, flags apart, this dialect has no words for."""
        del config
        return ["the proposal's acceptance"] if written.proposal is not None else []


def architectures(data: Mapping[str, Any]) -> list[str]:
    """The names under `architectures`; none where there is no list of names."""
    names = data.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


class Keys:
    """Typed reads of one JSON object; every error names the file and the key."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise _error(f"{where}: {type(data).__name__} where an object belongs")
        self.data: Mapping[str, Any] = data
        self.where = where

    def nested(self, key: str) -> Keys:
        """The object under `key`; an empty one where it is absent."""
        return Keys(self.data.get(key) or {}, f"{self.where}: {key}")

    def error(self, key: str, problem: str) -> CheckpointError:
        """To be raised by the caller."""
        return _error(f"{self.where}: key {key!r} {problem}")

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.data.get(key)
        value = default if value is None else value
        if value is None:
            raise self.error(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, f"is {value!r}, not a positive integer")
        return value

    def number(self, key: str, default: float) -> float:
        """A positive number."""
        value = self.data.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
            raise self.error(key, f"is {value!r}, not a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(key, f"is {value!r}, not true or false")
        return value

    def layer_ids(self, key: str, offset: int = 0) -> tuple[int, ...] | None:
        """A list of layers, `offset` added to each; None where it is absent or empty."""
        value = self.data.get(key)
        if value is None or value == []:
            return None
        numbers = isinstance(value, list) and all(type(i) is int and i + offset >= 0 for i in value)
        if not numbers:
            raise self.error(key, f"is {value!r}, not a list of layer numbers")
        return tuple(i + offset for i in value)

    def refuse(self, key: str, value: Any, reason: str) -> None:
        """CheckpointError if `key` has that value."""
        if self.data.get(key) == value and type(self.data.get(key)) is type(value):
            raise self.error(key, f"is {value!r}: {reason}")


def read_layer(keys: Keys, **more: Any) -> Eagle3Config:
    """A head from the keys of its Llama layer; `more` are fields that the dialect found elsewhere.

    Raises:
        CheckpointError: as `Dialect.read`.
    """
    data = keys.data
    layers = keys.integer("num_hidden_layers", 1)
    if layers != 1:
        raise _error(
            f"{keys.where}: num_hidden_layers is {layers}; an EAGLE-3 head has 1",
            remedy="Give the drafter's directory, not the target's",
        )
    activation = data.get("hidden_act") or "silu"
    if activation not in ("silu", "swish"):
        raise keys.error("hidden_act", f"is {activation!r}; only silu is computed")
    keys.refuse("use_sliding_window", True, "a sliding window is not supported")
    if "sliding_attention" in str(data.get("layer_types")):
        raise keys.error("layer_types", "asks for sliding attention, which is not supported")
    if data.get("quantization_config"):
        raise keys.error("quantization_config", "is set; give the unquantised head")
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    theta, scaling = _rope(keys)
    vocab = keys.integer("vocab_size")
    found: dict[str, Any] = {
        "draft_vocab_size": keys.integer("draft_vocab_size", vocab),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", False),
    }
    config = Eagle3Config(
        hidden_size=hidden,
        intermediate_size=keys.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=keys.integer("num_key_value_heads", heads),
        head_dim=keys.integer("head_dim", max(hidden // heads, 1)),
        vocab_size=vocab,
        rope_theta=theta,
        rms_norm_eps=keys.number("rms_norm_eps", 1e-6),  # as in transformers
        rope_scaling=scaling,
        max_position_embeddings=keys.integer("max_position_embeddings")
        if data.get("max_position_embeddings")
        else None,
        **(found | more),
    )
    if config.num_heads % config.num_kv_heads:
        raise keys.error("num_key_value_heads", "does not divide num_attention_heads")
    if config.draft_vocab_size > vocab:
        raise keys.error("draft_vocab_size", f"is above the vocabulary of {vocab}")
    return config


def read_flags(*places: Keys) -> dict[str, bool]:
    """The norm flags, wherever among `places` they stand; a later place beats an earlier one.

    Raises:
        CheckpointError: a flag that no drafter here runs, or two that exclude each other.
    """
    flags: dict[str, bool] = {}
    for keys in places:
        for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
            if keys.data.get(name) is not None:
                flags[name] = keys.flag(name, False)
        for name in ("use_input_layernorm_in_first_layer", "use_last_layernorm"):
            if keys.data.get(name) is not None:
                flags[name] = keys.flag(name, True)
        if keys.flag("return_hidden_post_norm", False):
            flags["norm_output"] = True
        keys.refuse(
            "use_aux_hidden_state", False, "the head reads the last layer alone, not EAGLE-3 taps"
        )
        keys.refuse("use_mtp_layernorm", True, "norms of a multi-token-prediction head")
        keys.refuse("eh_proj_before_attn", True, "a projection that no drafter here runs")
        if keys.integer("parallel_draft_step", 1) != 1:
            raise keys.error("parallel_draft_step", "is above 1: parallel drafting heads")
        target = keys.data.get("target_hidden_size")
        if target is not None and target != places[0].data.get("hidden_size", target):
            raise keys.error("target_hidden_size", f"is {target!r}, other than hidden_size")
    last = places[-1]
    if flags.get("norm_before_fc") and flags.get("fc_norm"):
        raise last.error("fc_norm", "and norm_before_fc exclude each other")
    if flags.get("norm_output") and not flags.get("use_last_layernorm", True):
        raise last.error("norm_output", "needs use_last_layernorm")
    return flags


def spell_layer(config: Eagle3Config) -> dict[str, Any]:
    """The keys of the head's Llama layer, draft vocabulary and precision apart."""
    data: dict[str, Any] = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": dict(config.rope_scaling) if config.rope_scaling else None,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
    }
    if config.max_position_embeddings is not None:
        data["max_position_embeddings"] = config.max_position_embeddings
    return data


def _rope(keys: Keys) -> tuple[float, dict[str, Any] | None]:
    """Theta and scaling: of rope_parameters (newer configs), or rope_theta and rope_scaling."""
    newer, older = keys.nested("rope_parameters"), keys.nested("rope_scaling")
    rope = older if older.data else newer
    theta = keys.data.get("rope_theta")
    theta = newer.data.get("rope_theta", older.data.get("rope_theta")) if theta is None else theta
    base = Keys({"rope_theta": theta}, keys.where).number("rope_theta", 10000.0)
    scaling = {name: value for name, value in rope.data.items() if name != "rope_theta"}
    kind = scaling.get("rope_type", scaling.get("type")) or "default"
    if kind == "default":
        return base, None
    if not isinstance(kind, str) or kind not in ROPE_KEYS:
        raise rope.error("rope_type", f"is {kind!r}; computed are default, {', '.join(ROPE_KEYS)}")
    for name in ROPE_KEYS[kind]:
        if scaling.get(name) is None:
            raise rope.error(name, "is missing")
        rope.number(name, 1.0)
    return base, scaling


def _error(message: str, remedy: str | None = None) -> CheckpointError:
    return CheckpointError(message, field="draft_model", remedy=remedy)

"""EAGLE-3 checkpoints on disk (Li et al., 2503.01840): configuration, names, checks.

Two dialects are read: the official one (`architectures: ["LlamaForCausalLM"]`) and the repack that
SGLang and SpecForge use (`LlamaForCausalLMEagle3`).  Both name their tensors alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ModelNotFoundError
from adaptivespec.nn.checkpoint import check_tensors, open_safetensors

LAYER = "midlayer"
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
ARCHITECTURES = ("LlamaForCausalLMEagle3", "LlamaForCausalLM")


@dataclass(frozen=True)
class Eagle3Config:
    """Sizes and constants of a head.

    `tap_layers` are the target layers whose *incoming* residual stream feeds `fc`; None means the
    usual (2, L // 2, L - 3) of a target with L layers. `max_position_embeddings` is the target's:
    SGLang refuses a head that serves fewer positions than its target, and takes a head that says
    nothing to serve 2048.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    rope_scaling: Mapping[str, Any] | None = None
    tap_layers: tuple[int, ...] | None = None
    max_position_embeddings: int | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> Eagle3Config:
        """Read a checkpoint's `config.json`; CheckpointError names the key that is wrong."""
        architecture = (data.get("architectures") or ["?"])[0]
        if architecture not in ARCHITECTURES:
            raise CheckpointError(
                f"{where}: architecture {architecture!r} is not an EAGLE-3 head this version reads",
                field="draft_model",
                remedy=f"Readable: {', '.join(ARCHITECTURES)}",
            )
        if data.get("num_hidden_layers", 1) != 1:
            raise CheckpointError(
                f"{where}: num_hidden_layers is {data['num_hidden_layers']}; an EAGLE-3 head has 1",
                field="draft_model",
                remedy="Give the drafter's directory, not the target's",
            )
        try:
            hidden, heads = int(data["hidden_size"]), int(data["num_attention_heads"])
            rope = data.get("rope_parameters") or {}
            scaling = data.get("rope_scaling") or (rope if "factor" in rope else None)
            return cls(
                hidden_size=hidden,
                intermediate_size=int(data["intermediate_size"]),
                num_heads=heads,
                num_kv_heads=int(data.get("num_key_value_heads", heads)),
                head_dim=int(data.get("head_dim") or hidden // heads),
                vocab_size=int(data["vocab_size"]),
                draft_vocab_size=int(data.get("draft_vocab_size") or data["vocab_size"]),
                rope_theta=float(data.get("rope_theta") or rope.get("rope_theta") or 10000.0),
                rms_norm_eps=float(data.get("rms_norm_eps", 1e-5)),
                rope_scaling=scaling,
                tap_layers=_tap_layers(data),
                max_position_embeddings=int(data["max_position_embeddings"])
                if data.get("max_position_embeddings")
                else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{where}: key {error} is missing or not a number", field="draft_model"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The SGLang dialect, with the tapped layers in both spellings that engines read."""
        data: dict[str, Any] = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": self.draft_vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": dict(self.rope_scaling) if self.rope_scaling else None,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            "torch_dtype": "bfloat16",
        }
        if self.max_position_embeddings is not None:
            data["max_position_embeddings"] = self.max_position_embeddings
        if self.tap_layers is not None:
            # vLLM reads the first list as it stands; SGLang reads the second and adds one.
            data["eagle_aux_hidden_state_layer_ids"] = list(self.tap_layers)
            data["eagle_config"] = {
                "use_aux_hidden_state": True,
                "eagle_aux_hidden_state_layer_ids": [i - 1 for i in self.tap_layers],
            }
        return data

    def taps_for(self, num_layers: int) -> tuple[int, ...]:
        """The tapped layers of a target with `num_layers`; CheckpointError if out of range."""
        taps = self.tap_layers or (2, num_layers // 2, num_layers - 3)
        if any(not 0 <= i < num_layers for i in taps) or sorted(set(taps)) != list(taps):
            raise CheckpointError(
                f"the head taps target layers {list(taps)}, the target has layers 0 to "
                f"{num_layers - 1}",
                field="draft_model",
                remedy="Use a head trained for this target, or set "
                "eagle_aux_hidden_state_layer_ids in its config.json",
            )
        return tuple(taps)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor a checkpoint may hold and its shape."""
        h, f, d = self.hidden_size, self.intermediate_size, self.head_dim
        taps = len(self.tap_layers) if self.tap_layers else 3
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (h, taps * h),
            f"{LAYER}.input_layernorm.weight": (h,),
            f"{LAYER}.hidden_norm.weight": (h,),
            f"{LAYER}.post_attention_layernorm.weight": (h,),
            f"{LAYER}.self_attn.q_proj.weight": (self.num_heads * d, 2 * h),
            f"{LAYER}.self_attn.k_proj.weight": (self.num_kv_heads * d, 2 * h),
            f"{LAYER}.self_attn.v_proj.weight": (self.num_kv_heads * d, 2 * h),
            f"{LAYER}.self_attn.o_proj.weight": (h, self.num_heads * d),
            f"{LAYER}.mlp.gate_proj.weight": (f, h),
            f"{LAYER}.mlp.up_proj.weight": (f, h),
            f"{LAYER}.mlp.down_proj.weight": (h, f),
            "norm.weight": (h,),
            "lm_head.weight": (self.draft_vocab_size, h),
            "d2t": (self.draft_vocab_size,),
            "t2d": (self.vocab_size,),
            "embed_tokens.weight": (self.vocab_size, h),
        }
        return shapes

    def optional(self) -> set[str]:
        """Tensors a checkpoint may leave out: the target lends them or they are implied."""
        same_vocabulary = self.draft_vocab_size == self.vocab_size
        implied = {"d2t", "lm_head.weight"} if same_vocabulary else set()
        return {"t2d", "embed_tokens.weight"} | implied


@dataclass(frozen=True)
class Eagle3Checkpoint:
    """A head in memory.  `target_ids i64[draft_vocab]` maps a draft id to the target's id."""

    config: Eagle3Config
    tensors: dict[str, Tensor]
    target_ids: Tensor

    @classmethod
    def load(cls, path: str | Path) -> Eagle3Checkpoint:
        """Read a directory with `config.json` and one safetensors file, every tensor checked.

        Raises:
            ModelNotFoundError: no such directory, or it lacks a file.
            CheckpointError: missing, unexpected or mis-shaped tensors (all listed), a bad `d2t`.
        """
        path = Path(path)
        config_path, weights_path = path / CONFIG_FILE, _weights_file(path)
        try:
            data = json.loads(config_path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CheckpointError(
                f"{config_path} cannot be read: {error}", field="draft_model"
            ) from error
        config = Eagle3Config.from_dict(data, str(config_path))
        with open_safetensors(weights_path) as file:
            check_tensors(file.shapes(), config.shapes(), config.optional(), str(weights_path))
            file.require_floating(name for name in file.names if name not in ("d2t", "t2d"))
            tensors = {name: file.get(name) for name in file.names}
        return cls(config, tensors, _target_ids(config, tensors, str(weights_path)))

    def check_target(self, vocab_size: int, hidden_size: int) -> None:
        """CheckpointError unless the head was made for a target of these sizes."""
        c = self.config
        if (c.vocab_size, c.hidden_size) != (vocab_size, hidden_size):
            raise CheckpointError(
                f"the head wants a target with vocabulary {c.vocab_size} and hidden size "
                f"{c.hidden_size}, this one has {vocab_size} and {hidden_size}",
                field="draft_model",
                remedy="Use a head trained for this target, or --policy none",
            )

    def save(self, path: str | Path) -> None:
        """Write `config.json` and bfloat16 weights; the directory is made when missing."""
        from safetensors.torch import save_file

        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        arange = torch.arange(self.config.draft_vocab_size)
        mask = torch.zeros(self.config.vocab_size, dtype=torch.bool)
        mask[self.target_ids] = True
        tensors = {
            name: tensor.to(torch.bfloat16).contiguous()
            for name, tensor in self.tensors.items()
            if name not in ("d2t", "t2d")
        }
        tensors |= {"d2t": self.target_ids - arange, "t2d": mask}
        partial = path / (WEIGHTS_FILE + ".partial")
        save_file(tensors, partial, metadata={"format": "pt"})
        partial.replace(path / WEIGHTS_FILE)
        text = json.dumps(self.config.to_dict(), indent=1) + "\n"
        (path / CONFIG_FILE).write_text(text, encoding="utf-8")


def _weights_file(path: Path) -> Path:
    if not path.is_dir():
        raise ModelNotFoundError(
            f"{path} is not a directory",
            field="draft_model",
            remedy="Give the directory of an EAGLE-3 head: config.json and model.safetensors",
        )
    files = sorted(path.glob("*.safetensors"))
    if not (path / CONFIG_FILE).is_file() or len(files) != 1:
        pickles = sorted(p.name for p in path.glob("*.bin"))
        note = f"; {pickles[0]} is a pickle, which is never read" if pickles else ""
        raise ModelNotFoundError(
            f"{path} must hold config.json and one .safetensors file, found "
            f"{len(files)} of the latter{note}",
            field="draft_model",
            remedy="Convert the head to safetensors, or give another directory",
        )
    return files[0]


def _tap_layers(data: Mapping[str, Any]) -> tuple[int, ...] | None:
    if data.get("eagle_aux_hidden_state_layer_ids"):
        return tuple(int(i) for i in data["eagle_aux_hidden_state_layer_ids"])
    nested = (data.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return tuple(int(i) + 1 for i in nested) if nested else None


def _target_ids(config: Eagle3Config, tensors: Mapping[str, Tensor], where: str) -> Tensor:
    """`i + d2t[i]`, checked against the vocabulary and against `t2d`."""
    ids = torch.arange(config.draft_vocab_size)
    if "d2t" not in tensors:
        return ids
    ids = ids + tensors["d2t"].long()
    problem = ""
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        problem = f"d2t maps to ids outside [0, {config.vocab_size})"
    elif ids.unique().numel() != ids.numel():
        problem = "d2t maps two draft ids to one target id"
    elif "t2d" in tensors:
        mask = torch.zeros(config.vocab_size, dtype=torch.bool)
        mask[ids] = True
        if not torch.equal(mask, tensors["t2d"].bool()):
            problem = "t2d does not mark the ids that d2t maps to"
    if problem:
        raise CheckpointError(
            f"{where}: {problem}",
            field="draft_model",
            remedy="d2t[i] is an offset: target id = i + d2t[i]. Fetch or convert the head again",
        )
    return ids

"""Six synthetic EAGLE-3 checkpoints with the keys and tensor names that others write.

They fit the tiny target of `fakes.tiny` with eight layers.  Configs are written out here as the
engines spell them, so that nothing of the package's own writing takes part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, DRAFT = 32, 40, 4, 2, 16, 61, 23
LLAMA3 = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
    "rope_type": "llama3",
}
LAYER_CONFIG: dict[str, Any] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": FFN,
    "max_position_embeddings": 128,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": KV_HEADS,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "use_cache": True,
    "vocab_size": VOCAB,
}


def tensors(layer: str, dtype: torch.dtype, seed: int = 0, **more: tuple[int, ...]) -> Any:
    """Random tensors of a head; `more` are further ones by name, with `__` for a dot."""
    shapes: dict[str, tuple[int, ...]] = {
        f"{layer}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, 2 * HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        f"{layer}.mlp.gate_proj.weight": (FFN, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (FFN, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, FFN),
        f"{layer}.hidden_norm.weight": (HIDDEN,),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "lm_head.weight": (DRAFT, HIDDEN),
        **{name.replace("__", "."): shape for name, shape in more.items()},
    }
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator)
        found[name] = (values * 0.3 if len(shape) > 1 else values.abs() + 0.5).to(dtype)
    ids = torch.arange(DRAFT) * 2 + 3
    marks = torch.zeros(VOCAB, dtype=torch.bool)
    marks[ids] = True
    return found | {"d2t": ids - torch.arange(DRAFT), "t2d": marks}


def official(path: Path, pickled: bool = True) -> Path:
    """EAGLE's authors': float16, usually a pickle; no tapped layers named."""
    config = {
        **{k: v for k, v in LAYER_CONFIG.items() if k not in ("head_dim", "mlp_bias")},
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "draft_vocab_size": DRAFT,
        "eos_token_id": [0, 2],
        "head_dim": HEAD_DIM,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "transformers_version": "4.46.2",
    }
    found = tensors("midlayer", torch.float16)
    if pickled:
        found["midlayer.self_attn.rotary_emb.inv_freq"] = torch.ones(HEAD_DIM // 2)
    return _write(path, config, found, pickled)


def sglang(path: Path) -> Path:
    """SpecForge's: rope in `rope_parameters`, layers counted by their output."""
    config = {
        **LAYER_CONFIG,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": DRAFT,
        "dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [0, 2, 5],
            "use_aux_hidden_state": True,
        },
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
    }
    return _write(path, config, tensors("midlayer", torch.bfloat16))


def speculators(path: Path) -> Path:
    """vLLM's: a nested layer, an embedding of its own, a verifier."""
    found = tensors("layers.0", torch.bfloat16, embed_tokens__weight=(VOCAB, HIDDEN))
    return _write(path, _speculators_config(rope_theta=500000.0, rope_scaling=LLAMA3), found)


def speculators_flags(path: Path) -> Path:
    """The same with norm flags and a lossy proposal."""
    config = _speculators_config(rope_parameters={**LLAMA3, "rope_theta": 500000.0})
    config |= {"norm_before_residual": True, "norm_before_fc": True}
    method = config["speculators_config"]["proposal_methods"][0]
    method |= {"verifier_accept_k": 5, "accept_tolerance": 1.5}
    found = tensors("layers.0", torch.float32, input_norm__weight=(3 * HIDDEN,))
    return _write(path, config, found)


def nvidia(path: Path) -> Path:
    """ModelOpt's export: flags in `eagle_config`, no `t2d`."""
    config = {
        **LAYER_CONFIG,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": DRAFT,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [1, 3, 4],
            "next_layer_regular": True,
            "parallel_draft_step": 1,
            "use_aux_hidden_state": True,
            "use_input_layernorm_in_first_layer": True,
            "use_last_layernorm": True,
            "use_mtp_layernorm": False,
        },
        "rope_scaling": LLAMA3,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    found = tensors("layers.0", torch.bfloat16)
    del found["t2d"]
    return _write(path, config, found)


def incomplete(path: Path) -> Path:
    """SGLang's, without two tensors and with one that no head has."""
    sglang(path)
    found = tensors("midlayer", torch.bfloat16, midlayer__self_attn__q_norm__weight=(HEAD_DIM,))
    del found["midlayer.self_attn.k_proj.weight"], found["norm.weight"]
    save_file(found, path / "model.safetensors")
    return path


WHOLE: dict[str, Callable[[Path], Path]] = {
    "official": official,
    "sglang": sglang,
    "speculators": speculators,
    "speculators_flags": speculators_flags,
    "nvidia": nvidia,
}


def edit_config(path: Path, **values: Any) -> None:
    """Set keys of a config; a dictionary is merged into the one that is there, None removes."""
    file = path / "config.json"
    data = json.loads(file.read_text())
    for key, value in values.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    file.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


def _speculators_config(**rope: Any) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "draft_vocab_size": DRAFT,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 6],
        "embed_requires_grad": False,
        "has_no_defaults_at_init": False,
        "norm_before_fc": False,
        "norm_before_residual": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "accept_tolerance": 0.0,
                    "proposal_type": "greedy",
                    "speculative_tokens": 3,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "org/tiny-llama"},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformer_layer_config": {**LAYER_CONFIG, **rope},
    }


def _write(path: Path, config: Any, found: dict[str, Tensor], pickled: bool = False) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if pickled:
        torch.save(found, path / "pytorch_model.bin")
    else:
        save_file(found, path / "model.safetensors")
    return path

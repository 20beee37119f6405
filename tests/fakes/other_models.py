"""Tiny random models of kinds that our own forwards do not run, as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fakes import families

#: Kinds of models that ours do not run. The windows of 8 are shorter than the prompt.
OTHERS: dict[str, dict[str, Any]] = {
    "gpt_neox": {"rotary_pct": 0.25},
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128},
    "gemma2": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "starcoder2": {"sliding_window": 8},
    "phi3": {"pad_token_id": 0},
    "olmo2": {},
    "mixtral": {"num_local_experts": 4, "sliding_window": None},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "smollm3": {"no_rope_layers": [1, 0, 1], "pad_token_id": 0},
}


def save_other(kind: str, directory: Path, **changes: Any) -> Path:
    """A tiny random model of a kind that ours do not run, as transformers saves it."""
    sizes = {k: v for k, v in families.CONFIGS["llama-2"].items() if k in families._SIZES} | {
        "tie_word_embeddings": False
    }
    for key in ("rms_norm_eps", "hidden_act"):
        sizes.pop(key)
    import transformers

    config = transformers.AutoConfig.for_model(kind, **(sizes | OTHERS[kind] | changes))
    config.num_key_value_heads = getattr(config, "num_key_value_heads", 4)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(directory)
    families.write_tokenizer(directory)
    return directory

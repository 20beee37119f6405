"""The checkpoints of EAGLE's authors (SafeAILab): a Llama config, sometimes a pickled `.bin`.

They name no tapped layers: their code takes those entering layers 2, L // 2 and L - 3.  Configs
with this architecture that others wrote may name some, and are taken at their word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptivespec.draft.dialects.base import Dialect, Written, architectures, spell_layer
from adaptivespec.draft.dialects.sglang import read_with_eagle_config
from adaptivespec.draft.eagle3_config import Eagle3Config


class Official(Dialect):
    """`architectures: ["LlamaForCausalLM"]`, `model_type: llama`, one layer."""

    name = "official"
    title = "EAGLE's authors, SafeAILab"
    marks = 'architectures ["LlamaForCausalLM"]'

    def recognises(self, data: Mapping[str, Any]) -> bool:
        return "LlamaForCausalLM" in architectures(data)

    def read(self, data: Mapping[str, Any], where: str) -> Eagle3Config:
        return read_with_eagle_config(data, where)

    def unsaid(self, config: Eagle3Config, written: Written) -> list[str]:
        problems = super().unsaid(config, written)
        if config.tap_layers is not None:
            problems.append(
                f"the tapped layers {list(config.tap_layers)} (say how many layers the target has "
                "if these are its 2, L // 2 and L - 3)"
            )
        return problems

    def spell(self, config: Eagle3Config, written: Written) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            **spell_layer(config),
            "draft_vocab_size": config.draft_vocab_size,
            "torch_dtype": written.dtype,
        }

"""The `speculators` format of the vLLM project: a nested layer config, flags and a verifier.

Its layer numbers are vLLM's: the residual stream that *enters* a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptivespec.draft.dialects.base import (
    Dialect,
    Keys,
    Written,
    read_flags,
    read_layer,
    spell_layer,
)
from adaptivespec.draft.dialects.sglang import IDS
from adaptivespec.draft.eagle3_config import Eagle3Config
from adaptivespec.draft.proposal import Proposal


class Speculators(Dialect):
    """`speculators_model_type: "eagle3"`, `transformer_layer_config`, `speculators_config`."""

    name = "speculators"
    title = "vLLM speculators"
    marks = 'speculators_model_type "eagle3"'
    layer = "layers.0"
    flags = frozenset({"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"})

    def recognises(self, data: Mapping[str, Any]) -> bool:
        return data.get("speculators_model_type") == "eagle3"

    def read(self, data: Mapping[str, Any], where: str) -> Eagle3Config:
        top = Keys(data, where)
        if not data.get("transformer_layer_config"):
            raise top.error("transformer_layer_config", "is missing")
        layer = top.nested("transformer_layer_config")
        name = top.nested("speculators_config").nested("verifier").data.get("name_or_path")
        found: dict[str, Any] = {
            "draft_vocab_size": top.integer(
                "draft_vocab_size", layer.integer("draft_vocab_size", layer.integer("vocab_size"))
            ),
            "tap_layers": top.layer_ids(IDS),
            "target_name": name if isinstance(name, str) and name else None,
        }
        return read_layer(layer, **found, **read_flags(layer, top))

    def unsaid(self, config: Eagle3Config, written: Written) -> list[str]:
        return []

    def spell(self, config: Eagle3Config, written: Written) -> dict[str, Any]:
        proposal = written.proposal or Proposal()
        return {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "draft_vocab_size": config.draft_vocab_size,
            IDS: None if config.tap_layers is None else list(config.tap_layers),
            **{name: getattr(config, name) for name in sorted(self.flags)},
            "tie_word_embeddings": config.tie_word_embeddings,
            "torch_dtype": written.dtype,
            "transformer_layer_config": spell_layer(config),
            "speculators_config": {
                "algorithm": "eagle3",
                "default_proposal_method": "greedy",
                "proposal_methods": [proposal.to_dict()],
                "verifier": {"name_or_path": config.target_name, "architectures": []},
            },
        }

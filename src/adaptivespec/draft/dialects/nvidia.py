"""The export of NVIDIA's ModelOpt: `eagle_config` says how the head normalises.

Its layer numbers count layers by their output, from 0: the tap enters the layer after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptivespec.draft.dialects.base import Dialect, Written, spell_layer
from adaptivespec.draft.dialects.sglang import IDS, Sglang, read_with_eagle_config
from adaptivespec.draft.eagle3_config import Eagle3Config

#: Keys of `eagle_config` that no other writer has.
MARKS = (
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
    "next_layer_regular",
    "parallel_draft_step",
)


class Nvidia(Dialect):
    """`architectures: ["LlamaForCausalLMEagle3"]` and NVIDIA's keys in `eagle_config`."""

    name = "nvidia"
    title = "NVIDIA ModelOpt"
    marks = f"eagle_config with {MARKS[0]}"
    layer = "layers.0"
    flags = frozenset(
        {
            "norm_before_fc",
            "norm_output",
            "use_input_layernorm_in_first_layer",
            "use_last_layernorm",
        }
    )

    def recognises(self, data: Mapping[str, Any]) -> bool:
        nested = data.get("eagle_config")
        marked = isinstance(nested, Mapping) and any(key in nested for key in MARKS)
        return marked and Sglang().recognises(data)

    def read(self, data: Mapping[str, Any], where: str) -> Eagle3Config:
        return read_with_eagle_config(data, where)

    def spell(self, config: Eagle3Config, written: Written) -> dict[str, Any]:
        flags = config.flags()
        taps = config.tap_layers
        nested: dict[str, Any] = {
            IDS: None if taps is None else [i - 1 for i in taps],
            "use_aux_hidden_state": True,
            "use_input_layernorm_in_first_layer": config.use_input_layernorm_in_first_layer,
            "use_last_layernorm": config.use_last_layernorm,
            "use_mtp_layernorm": False,
            "next_layer_regular": True,
        }
        if "norm_before_fc" in flags:
            nested["norm_before_fc"] = True
        if "norm_output" in flags:
            nested["return_hidden_post_norm"] = True
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            **spell_layer(config),
            "draft_vocab_size": config.draft_vocab_size,
            "torch_dtype": written.dtype,
            "eagle_config": nested,
        }

"""The repack that SGLang serves and SpecForge trains.

`eagle_config.eagle_aux_hidden_state_layer_ids` counts layers by their output: SGLang adds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptivespec.draft.dialects.base import (
    Dialect,
    Keys,
    Written,
    architectures,
    read_flags,
    read_layer,
    spell_layer,
)
from adaptivespec.draft.eagle3_config import Eagle3Config

ARCHITECTURES = frozenset({"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"})
IDS = "eagle_aux_hidden_state_layer_ids"


class Sglang(Dialect):
    """`architectures: ["LlamaForCausalLMEagle3"]`; EAGLE 3.1's flags stand at the top."""

    name = "sglang"
    title = "SGLang and SpecForge"
    marks = 'architectures ["LlamaForCausalLMEagle3"]'
    flags = frozenset({"fc_norm", "norm_output"})

    def recognises(self, data: Mapping[str, Any]) -> bool:
        return not ARCHITECTURES.isdisjoint(architectures(data))

    def read(self, data: Mapping[str, Any], where: str) -> Eagle3Config:
        return read_with_eagle_config(data, where)

    def spell(self, config: Eagle3Config, written: Written) -> dict[str, Any]:
        data = {
            "architectures": ["LlamaForCausalLMEagle3"],
            **spell_layer(config),
            # SGLang takes the target's output rows where this is null.
            "draft_vocab_size": None if written.borrows_lm_head else config.draft_vocab_size,
            "torch_dtype": written.dtype,
            **config.flags(),
        }
        if config.tap_layers is not None:
            # vLLM reads the first list as it stands; SGLang reads the second and adds one.
            data[IDS] = list(config.tap_layers)
            data["eagle_config"] = {
                "use_aux_hidden_state": True,
                IDS: [i - 1 for i in config.tap_layers],
            }
        return data


def read_with_eagle_config(data: Mapping[str, Any], where: str) -> Eagle3Config:
    """A head whose tapped layers stand at the top, under `eagle_config`, or in both places.

    Raises:
        CheckpointError: as `Dialect.read`; the two lists mean different layers.
    """
    keys = Keys(data, where)
    nested = keys.nested("eagle_config")
    entering, leaving = keys.layer_ids(IDS), nested.layer_ids(IDS, offset=1)
    if entering is not None and leaving is not None and entering != leaving:
        raise keys.error(
            IDS,
            f"names the layers entered, {list(entering)}; eagle_config names the layers left, "
            f"{[i - 1 for i in leaving]}, which are not those before them",
        )
    taps = leaving if entering is None else entering
    return read_layer(keys, tap_layers=taps, **read_flags(keys, nested))

"""What ``generate`` gives back with return_dict_in_generate; imported where transformers is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers.generation.utils import GenerateDecoderOnlyOutput


@dataclass
class SpeculativeOutput(GenerateDecoderOnlyOutput):  # type: ignore[misc, unused-ignore]
    """transformers' own output with our figures over all rows.

    Attributes:
        accept_length: committed tokens per verify step; None when there was no such step.
        lossless: whether the rule in force guarantees the target's own output.
        rule, policy: as given.
        statistics: as in ``GenerationResult.statistics``.
    """

    accept_length: float | None = None
    lossless: bool | None = None
    rule: str | None = None
    policy: str | None = None
    statistics: dict[str, Any] | None = None

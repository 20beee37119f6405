"""The card of a head, from what its training measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.train.data.corpus import Item
from adaptivespec.train.head.options import TrainOptions
from adaptivespec.train.head.trainer import LOG_FILE

CARD_FILE = "README.md"
#: What the accept length of the checks is measured with.
CHECK_POLICY = "chain:5"


def write_card(
    output: Path,
    target: str,
    head: Eagle3Checkpoint,
    options: TrainOptions,
    train: Sequence[Item],
    held_out: Sequence[Item],
) -> None:
    """Write `output/README.md` from the last row of the training log in `output`."""
    rows = [
        json.loads(line) for line in (output / LOG_FILE).read_text(encoding="utf-8").splitlines()
    ]
    last: dict[str, Any] = rows[-1]
    kinds = Counter(item.kind or "other" for item in train)
    tokens = sum(len(item.response) for item in train)
    accuracy = "\n".join(
        f"| {kind} | " + " | ".join(f"{value:.3f}" for value in values) + " |"
        for kind, values in last["accuracy"].items()
    )
    steps = range(1, len(last["accuracy"]["all"]) + 1)
    header = "| kind | " + " | ".join(f"step {k}" for k in steps) + " |"
    rule = "|---|" + "---|" * len(steps)
    accept = last.get("accept_length")
    text = f"""# EAGLE-3 head for {target}

One decoder layer that drafts for {target}; hidden size {head.config.hidden_size},
draft vocabulary {head.config.draft_vocab_size} of {head.config.vocab_size}, bfloat16.

* Data: {len(train)} answers of the target, {tokens} response tokens ({dict(kinds)});
  {len(held_out)} texts held out.
* Steps: {last["step"]} in {last["minutes"]} minutes. Options: `{json.dumps(asdict(options))}`
* Accept length on held-out prompts (greedy, strict, {CHECK_POLICY}): {accept}

Share of held-out positions whose next token is the head's first choice, by unroll step:

{header}
{rule}
{accuracy}
"""
    (output / CARD_FILE).write_text(text, encoding="utf-8")

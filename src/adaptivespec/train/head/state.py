"""The state of a training run on disk, from which a stopped run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import CheckpointError
from adaptivespec.train.head.options import TrainOptions

STATE_FILE = "training-state.pt"
REMEDY = "Give another --output, or remove the file to start again"


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write `state`; a run that is killed meanwhile leaves the old file whole."""
    partial = path.with_name(path.name + ".partial")
    torch.save(dict(state), partial)
    partial.replace(path)


def load_state(path: Path, options: TrainOptions) -> dict[str, Any] | None:
    """The state that a run with these options left, or None where there is none.

    Raises:
        CheckpointError: the file is damaged, or its run had other values of `TrainOptions.fixed`.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        made_with = dict(state["options"])
    except Exception as error:  # a damaged pickle raises whatever its bytes lead to
        raise CheckpointError(
            f"{path} cannot be resumed: {error!r}", field="output", remedy=REMEDY
        ) from error
    now = asdict(options)
    differ = [name for name in TrainOptions.fixed() if made_with.get(name) != now[name]]
    if differ:
        raise CheckpointError(
            f"{path} was made with other values of {', '.join(differ)}",
            field="output",
            remedy=f"Give the same options to go on. {REMEDY}",
        )
    return state

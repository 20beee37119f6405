"""What a training run reports while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainEvent:
    """What a progress display shows: `stage` is features, train or check."""

    stage: str
    done: int
    total: int
    values: dict[str, Any] = field(default_factory=dict)


Progress = Callable[[TrainEvent], None]

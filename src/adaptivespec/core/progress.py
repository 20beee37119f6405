"""What a long run reports while it goes on. Nothing below the command line draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Progress", "StageEvent", "silent"]


@dataclass
class StageEvent:
    """`done` of `total` of a stage; `values` are what else there is to show of it."""

    stage: str
    done: int
    total: int
    values: dict[str, Any] = field(default_factory=dict)


Progress = Callable[[StageEvent], None]


def silent(event: StageEvent) -> None:
    """The callback of a caller that wants no reports."""

"""What a run reports while it goes on; nothing here draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Progress", "RunEvent", "silent"]


@dataclass
class RunEvent:
    """`done` of `total` of a stage: tuning, answers, noise floor, timing."""

    stage: str
    done: int
    total: int
    values: dict[str, Any] = field(default_factory=dict)


Progress = Callable[[RunEvent], None]


def silent(event: RunEvent) -> None:
    """The callback of a caller that wants no reports."""

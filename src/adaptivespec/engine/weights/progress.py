"""Progress of slow steps, reported to whoever draws it. Nothing in the engine draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["READING", "ProgressCallback", "ProgressEvent", "silent"]

READING = "reading the prompt"


@dataclass(frozen=True)
class ProgressEvent:
    """One report of a running stage.

    ``stage`` is "waiting" (another process is at it), "downloading", "extracting", "converting",
    "measuring costs", READING or begins with "compiling". ``done`` and ``total`` count bytes
    (seconds while waiting, rounds of passes while measuring, files while compiling, tokens while
    reading); ``total`` is None while unknown. The last event of a stage has ``done == total`` where
    that was known.
    """

    stage: str
    done: int
    total: int | None = None

    @property
    def fraction(self) -> float | None:
        """Part done in [0, 1], or None while the total is unknown."""
        return None if not self.total else min(1.0, self.done / self.total)


ProgressCallback = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """The callback of a caller that wants no reports."""

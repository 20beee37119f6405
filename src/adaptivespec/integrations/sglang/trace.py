"""A line of JSON for every decode round: which tree, why, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from adaptivespec.core.errors import ConfigError


class Trace:
    """Appends to a file; does nothing without one.

    A line holds ``round``, ``requests`` (ids), ``triple``, ``confidence`` (null where the policy
    read none) and ``accepted`` (drafts followed), the lists having one entry for each request.

    Args:
        path: file, or None. ConfigError when it cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self._file = None
        if path is not None:
            try:
                self._file = Path(path).expanduser().open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise ConfigError(
                    f"cannot write {path}: {error.strerror}",
                    field="trace",
                    remedy="Give a file in a folder that exists, or leave it out",
                ) from None

    def write(
        self,
        number: int,
        requests: Sequence[str],
        triple: tuple[int, int, int],
        confidence: Sequence[float] | None,
        accepted: Sequence[int],
    ) -> None:
        """Add a round."""
        if self._file is not None:
            line = {
                "round": number,
                "requests": list(requests),
                "triple": list(triple),
                "confidence": None if confidence is None else [round(p, 6) for p in confidence],
                "accepted": list(accepted),
            }
            self._file.write(json.dumps(line) + "\n")

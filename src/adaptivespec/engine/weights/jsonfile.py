"""Reading the JSON files of a model directory, with errors that name the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import CheckpointError

__all__ = ["Fields", "read_json"]


def read_json(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    """The JSON object in ``path``; an empty dict if the file is absent and ``missing_ok``.

    Raises:
        CheckpointError: absent, unreadable, not UTF-8, not JSON, or not an object.
    """
    remedy = "Restore or download the file again"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if missing_ok:
            return {}
        raise CheckpointError("no such file", field=str(path), remedy=remedy) from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"cannot be read ({error})", field=str(path), remedy=remedy
        ) from error
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"not valid JSON ({error})", field=str(path), remedy=remedy
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"holds a JSON {type(value).__name__} where an object belongs",
            field=str(path),
            remedy=remedy,
        )
    return value


class Fields:
    """Typed reads of one JSON object; every error names the file and the key."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where

    def error(self, key: str, problem: str) -> CheckpointError:
        return CheckpointError(
            f"{key}: {problem}",
            field=self.where,
            remedy="Restore the config that came with the model",
        )

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.data.get(key)
        if value is None:
            if default is None:
                raise self.error(key, "missing")
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, f"{value!r} where a positive integer belongs")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.data.get(key)
        value = default if value is None else value
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < math.inf
        ):
            raise self.error(key, f"{value!r} where a positive number belongs")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(key, f"{value!r} where true or false belongs")
        return value

    def token_ids(self, key: str, vocab_size: int | None = None) -> tuple[int, ...]:
        value = self.data.get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise self.error(key, f"{value!r} where a token id or a list of token ids belongs")
            if vocab_size is not None and token >= vocab_size:
                raise self.error(key, f"{token} lies outside the vocabulary of {vocab_size}")
        return tuple(ids)

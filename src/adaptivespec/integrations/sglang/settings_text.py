"""Settings as they are written: strict JSON, in place or in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from adaptivespec.core.errors import ConfigError

__all__ = ["parse_object", "read_object"]


def read_object(path: str, field: str) -> object:
    """The JSON of a file; ConfigError where it cannot be read."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read {path}: {reason}",
            field=field,
            remedy="Name a JSON file, or give the JSON itself, which starts with {",
        ) from None
    return parse_object(text, field, f"{path} ")


def parse_object(text: str, field: str, path: str = "") -> object:
    """Strict JSON: no key twice, no NaN; ConfigError, with line and column, for anything else."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError("given twice", field=f"{field}.{key}")
        return dict(pairs)

    def number(constant: str) -> float:
        raise ConfigError(f"{path}holds {constant}, which is no JSON", field=field)

    try:
        return cast(object, json.loads(text, object_pairs_hook=once, parse_constant=number))
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            field=field,
        ) from None

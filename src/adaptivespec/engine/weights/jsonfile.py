"""Reading the JSON files of a model directory, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import CheckpointError

__all__ = ["read_json"]


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

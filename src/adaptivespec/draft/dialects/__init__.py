"""The dialects that EAGLE-3 checkpoints come in: a file for each, and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.draft.dialects.base import Dialect, architectures
from adaptivespec.draft.dialects.nvidia import Nvidia
from adaptivespec.draft.dialects.official import Official
from adaptivespec.draft.dialects.sglang import Sglang
from adaptivespec.draft.dialects.speculators import Speculators

__all__ = ["DIALECTS", "Dialect", "dialect_named", "dialect_of"]

#: By name; the first that recognises a config reads it, so the more particular ones come first.
DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect for dialect in (Speculators(), Nvidia(), Sglang(), Official())
}


def dialect_of(data: Mapping[str, Any], where: str) -> Dialect:
    """The dialect of a `config.json`; CheckpointError, naming what is read, if it is none."""
    for dialect in DIALECTS.values():
        if dialect.recognises(data):
            return dialect
    kind = data.get("speculators_model_type")
    names = ", ".join(architectures(data)) or "?"
    found = f"speculators_model_type {kind!r}" if kind else f"architecture {names!r}"
    readable = "; ".join(f"{dialect.name}: {dialect.marks}" for dialect in DIALECTS.values())
    raise CheckpointError(
        f"{where}: {found} is not an EAGLE-3 head this version reads",
        field="draft_model",
        remedy=f"Readable: {readable}",
    )


def dialect_named(name: str) -> Dialect:
    """The dialect of that name; ConfigError lists the names."""
    if name not in DIALECTS:
        raise ConfigError(
            f"unknown dialect {name!r}", field="to", remedy=f"Use {', '.join(DIALECTS)}"
        )
    return DIALECTS[name]

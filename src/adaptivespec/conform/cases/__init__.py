"""The cases, some files for each group; to import this is to register them."""

from __future__ import annotations

from adaptivespec.conform.case import REGISTRY, Case
from adaptivespec.conform.cases import (  # noqa: F401 (imported to be registered)
    accounting,
    ending,
    errors,
    lifecycle,
    limits,
    penalties,
    sampling,
    speculation,
    stops,
    text,
)

__all__ = ["CASES", "GROUPS"]

#: In the order of the report.
GROUPS = (
    "ending",
    "text",
    "accounting",
    "sampling",
    "speculation",
    "errors",
    "lifecycle",
    "limits",
)
CASES: tuple[Case, ...] = tuple(sorted(REGISTRY, key=lambda case: GROUPS.index(case.group)))

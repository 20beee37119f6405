"""The page where people see speculation happen: a playground, and a viewer of traces.

One document serves both `adaptivespec serve` (at `/`) and `adaptivespec generate --trace-html`. It
fetches nothing but the API beside it, and puts data into the page as text only.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from string import Template
from typing import Any

__all__ = ["render"]

#: In the order in which they build on one another; together they are one ES module.
_SCRIPTS = (
    "dom.js",
    "tip.js",
    "run.js",
    "characters.js",
    "trace.js",
    "stream.js",
    "tree_layout.js",
    "tree.js",
    "answer.js",
    "figures.js",
    "player.js",
    "lane.js",
    "compare.js",
    "settings.js",
    "playground.js",
    "main.js",
)


def render(
    boot: Mapping[str, Any] | None = None,
    trace: Mapping[str, Any] | None = None,
    nonce: str = "",
) -> str:
    """The page as one HTML document without references to anything outside of it.

    Args:
        boot: what the playground has to know of its server: "model", "max_model_len", "rule",
            "policy", "kappa", "temperature", "lossless", "needs_key", "rules" (a list of "name",
            "summary", "lossless", "has_kappa") and "policies" ("name", "summary"). None leaves the
            playground out.
        trace: a generation to show: "header" and "steps", as the lines of a trace file, and
            optionally "prompt", what was asked, and "text", the answer as it was written.
        nonce: of the response's Content-Security-Policy, for the page's one style and one script.
            Neither inline handlers nor style attributes are used.

    Values that JSON does not have (NaN, infinities) are embedded as null.
    """
    return Template(_source("page.html")).substitute(
        nonce=f' nonce="{html.escape(nonce)}"' if nonce else "",
        style=_source("page.css"),
        script="\n".join(_source(name) for name in _SCRIPTS),
        boot=_embedded(boot),
        trace=_embedded(trace),
    )


@cache
def _source(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _embedded(value: Mapping[str, Any] | None) -> str:
    """JSON that a script element can hold: no character of it ends one or begins a comment."""
    try:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

"""What all charts share: a figure without a screen, colours for light and dark, text as bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["COLOURS", "INK", "axes", "grid", "png", "style", "svg"]

INK = "#010203"
"""Stands for the colour of text: a page puts its own in, an image on white keeps it."""

COLOURS = ("#3a86c8", "#d9782d", "#3d9970", "#9b6fc3", "#cf5361", "#8a8f98", "#b59a2b", "#4aa9b0")
"""Apart from each other for most colour-blind readers, and legible on white and on black."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.usetex": False,
    "text.parse_math": False,
}


@contextmanager
def style(name: str = "") -> Iterator[None]:
    """The settings under which figures are made and written; `name` makes ids in files stable."""
    import matplotlib as mpl

    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        yield


def axes(width: float, height: float) -> tuple[Any, Any]:
    """A figure of so many inches, and its axes. Call it, and draw, inside of ``style``."""
    figure, all_axes = grid(width, height, 1, 1)
    return figure, all_axes[0]


def grid(width: float, height: float, rows: int, columns: int) -> tuple[Any, Sequence[Any]]:
    """A figure with rows x columns axes, in reading order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def svg(figure: Any, name: str) -> str:
    """The figure as an element for a page: no prologue, no date, ids of its own by ``name``."""
    buffer = io.StringIO()
    with style(name):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(id|xlink:href|href|clip-path)="(#|url\(#)?', rf' \1="\2{name}-', text)
    return re.sub(r"\n\s*", "\n", text).strip()


def png(figure: Any) -> bytes:
    """The figure as an image on white."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(
            buffer, format="png", dpi=160, facecolor="white", metadata={"Software": None}
        )
    return buffer.getvalue()

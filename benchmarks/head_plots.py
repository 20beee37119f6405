"""The pictures of `head.py`: reliability of its probabilities, accept length against data."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from grid_rows import read_rows
from head_confidence import DEPTHS, TENTHS, Nodes, calibrated, tenths, within
from head_report import kind_of, names, shape_of, tau_cells

from adaptivespec.core.errors import ConfigError

Row = dict[str, Any]

STYLES = ("-", "--", ":", "-.")
#: Distinct to colour-blind eyes (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKS = ("tokens", "head")
#: A point of fewer nodes is left out of a reliability curve.
FEWEST = 20


def pyplot() -> Any:
    """matplotlib.pyplot, set to write files that repeat; ConfigError where it is not installed."""
    try:
        import matplotlib
        import matplotlib.pyplot as plt
        import matplotlib.ticker
    except ImportError:
        raise ConfigError(
            "a plot needs matplotlib, which is not installed",
            field="--plot",
            remedy="Run python -m pip install matplotlib, or leave --plot out",
        ) from None
    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "adaptivespec"
    return plt


def save(figure: Any, out: Path) -> None:
    """Write a figure in the format that the suffix of `out` names."""
    figure.tight_layout()
    undated = {"metadata": {"Date": None}} if out.suffix == ".svg" else {}
    figure.savefig(out, dpi=150, **undated)
    pyplot().close(figure)


def plot_reliability(rows: Sequence[Row], out: Path) -> None:
    """Share followed against the prediction, raw and calibrated, a curve a depth.

    Below each panel is the number of nodes in each tenth. Every head has a row of its own.
    """
    plt = pyplot()
    heads = names(rows, "head")
    figure, panels = plt.subplots(
        2 * len(heads),
        2,
        figsize=(8, 4.6 * len(heads)),
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [3.2, 1] * len(heads)},
    )
    for number, head in enumerate(heads):
        nodes = Nodes.of([row for row in rows if row["head"] == head])
        prefix = f"{head}: " if heads[1:] else ""
        sides = (("the head's q", np.exp(nodes.logq)), ("calibrated c", calibrated(nodes)))
        for side, (title, predicted) in enumerate(sides):
            curves, counts = panels[2 * number][side], panels[2 * number + 1][side]
            curves.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
            for place, (name, low, high) in enumerate(DEPTHS):
                deep = within(nodes.depth, low, high)
                found = tenths(predicted[deep], nodes.followed[deep])
                looks = {"color": COLOURS[place], "linewidth": 1.4}
                shown = [tenth for tenth in found if tenth.count >= FEWEST]
                x, y = [tenth.predicted for tenth in shown], [tenth.followed for tenth in shown]
                label = f"depth {name} ({int(deep.sum()):,})"
                curves.plot(x, y, marker="o", markersize=3.5, label=label, **looks)
                size = np.histogram(predicted[deep], np.linspace(0, 1, TENTHS + 1))[0]
                edges = np.linspace(0, 1, TENTHS + 1)
                counts.stairs(np.maximum(size, 0.5), edges, baseline=None, **looks)
            curves.set_title(prefix + title)
            curves.set(xlim=(0, 1), ylim=(0, 1))
            counts.set_yscale("log")
            counts.set_ylim(bottom=0.8)
            counts.set_xlabel("predicted")
            for panel in (curves, counts):
                panel.grid(alpha=0.3, linewidth=0.5)
        panels[2 * number][0].set_ylabel("share followed")
        panels[2 * number + 1][0].set_ylabel("nodes")
        panels[2 * number][0].legend(fontsize=8, loc="upper left")
    save(figure, out)


def read_points(path: Path) -> list[Row]:
    """Points of the curve, of a JSON list of objects with `tokens` and `head` and, besides,

    * `rows`: a file that `head.py tau --json` wrote, named from the folder of `path`; its rows of
      that head are taken, or all where it holds one head only; or
    * `task`, `shape` ("5,1,6"), `tau` and, where known, `low` and `high`.

    Points with the same `series`, a name that may be left out, are joined by a line.

    Raises ConfigError on anything else.
    """
    entries = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(entries, list) or not entries:
        raise ConfigError("is no list of points", field=str(path))
    points: list[Row] = []
    for number, entry in enumerate(entries):
        wanted = set(MARKS) | ({"rows"} if "rows" in entry else {"task", "shape", "tau"})
        if missing := sorted(wanted - set(entry)):
            raise ConfigError(f"entry {number} has no {missing[0]!r}", field=str(path))
        if not entry["tokens"] > 0:
            raise ConfigError(f"entry {number}: tokens must be positive", field=str(path))
        common = {"series": entry.get("series", ""), **{key: entry[key] for key in MARKS}}
        if "rows" not in entry:
            points.append({"low": -math.inf, "high": math.inf, **entry, **common})
            continue
        rows = read_rows([path.parent / entry["rows"]])
        several = len(names(rows, "head")) > 1
        mine = [row for row in rows if row["head"] == entry["head"] or not several]
        if not mine:
            raise ConfigError(f"{entry['rows']} has no head {entry['head']!r}", field=str(path))
        rules = len(names(mine, "rule")) > 1
        for cell in tau_cells(mine):
            if cell["task"] != "all":
                shape = shape_of(cell["policy"]) + (f" {cell['rule']}" if rules else "")
                points.append({**cell, "shape": shape, **common})
    return points


def plot_curve(points: Sequence[Row], out: Path) -> None:
    """Accept length against tokens of data on a logarithmic axis: a panel a task, a line a shape.

    Bars are 95 % intervals; shapes stand a little apart so that none hides another's. The heads are
    named along the top of the first panel.
    """
    plt = pyplot()
    tasks, shapes = names(points, "task"), names(points, "shape")
    series = names(points, "series")
    figure, (panels,) = plt.subplots(
        1, len(tasks), figsize=(1 + 3.1 * len(tasks), 3.8), sharey=True, squeeze=False
    )
    for panel, task in zip(panels, tasks, strict=True):
        for number, shape in enumerate(shapes):
            apart = 1.03 ** (number - (len(shapes) - 1) / 2)
            for style, name in zip(cycle(STYLES), series):
                wanted = (task, shape, name)
                line = [p for p in points if (p["task"], p["shape"], p["series"]) == wanted]
                line.sort(key=itemgetter("tokens"))
                ends = [[p["tau"] - p["low"] for p in line], [p["high"] - p["tau"] for p in line]]
                panel.errorbar(
                    [apart * p["tokens"] for p in line],
                    [p["tau"] for p in line],
                    yerr=np.where(np.isfinite(ends), ends, 0.0),
                    label=f"{shape} {name}".strip() if line else None,
                    color=COLOURS[number % len(COLOURS)],
                    linestyle=style,
                    marker="o",
                    markersize=4,
                    linewidth=1.4,
                    elinewidth=0.8,
                    capsize=2,
                )
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(plt.matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter(lambda value, _: in_millions(value))
        panel.xaxis.set_minor_formatter(plt.matplotlib.ticker.NullFormatter())
        panel.set_title(kind_of(task))
        panel.set_xlabel("tokens of data")
        panel.grid(alpha=0.3, linewidth=0.5)
        panel.margins(x=0.12)
    panels[0].set_ylabel("tokens per verify step")
    _name_heads(panels[0], points)
    panels[-1].legend(fontsize=8, title="shape", title_fontsize=8)
    save(figure, out)


def in_millions(tokens: float) -> str:
    """0.5 M of 500,000; fewer than 100,000 in thousands."""
    return f"{tokens / 1e6:g} M" if tokens >= 1e5 else f"{tokens / 1e3:g} k"


def _name_heads(panel: Any, points: Sequence[Row]) -> None:
    places: dict[float, list[str]] = defaultdict(list)
    for point in points:
        if point["head"] not in places[point["tokens"]]:
            places[point["tokens"]].append(point["head"])
    low, high = panel.get_ylim()
    panel.set_ylim(low, high + 0.25 * (high - low))  # room for the names
    for tokens, there in places.items():
        panel.annotate(
            ", ".join(there),
            (tokens, 0.985),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=7,
            color="0.35",
            ha="center",
            va="top",
        )

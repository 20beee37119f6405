"""The charts of a report: functions from a summary to a figure, or None where it has no figures.

They are called inside of ``drawing.style``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptivespec.eval.analysis import POOLED, Cell, Summary
from adaptivespec.eval.analysis.text import promise
from adaptivespec.eval.report.drawing import COLOURS, INK, axes, grid

__all__ = ["acceptance", "depth", "frontier", "shapes", "split"]

_PANELS = 9
_BLOCK = 32
_KINDS = {"lossless": ("o", COLOURS[0]), "lossy": ("s", COLOURS[1]), "not told": ("D", COLOURS[5])}
_CONTROL = ("x", COLOURS[3])


def frontier(summary: Summary) -> Any | None:
    """Speed-up against accuracy difference, all tasks pooled, with 95 % intervals."""
    cells = sorted(summary.frontier(), key=lambda cell: cell.speed.speedup.value or 0.0)
    if not cells:
        return None
    figure, ax = axes(8.4, 4.8)
    ax.axhline(0, color=INK, linewidth=0.6, alpha=0.4)
    ax.axvline(1, color=INK, linewidth=0.6, alpha=0.4)
    ax.plot([1], [0], marker="*", color=INK, linestyle="", label="baseline")
    seen: set[str] = set()
    places = []
    for cell in cells:
        speed, loss = cell.speed.speedup, cell.quality.difference
        x, y = speed.value or 0.0, 100 * (loss.value or 0.0)
        kind = "control" if cell.role == "control" else promise(cell.lossless)
        marker, colour = _CONTROL if kind == "control" else _KINDS[kind]
        ax.errorbar(
            [x],
            [y],
            xerr=_arms(x, speed.low, speed.high),
            yerr=_arms(y, loss.low, loss.high, 100),
            fmt=marker,
            color=colour,
            elinewidth=0.8,
            markersize=5,
            label=None if kind in seen else kind,
        )
        seen.add(kind)
        places.append((x, y, cell.arm))
    for line in _kappas(summary, cells):
        ax.plot(*zip(*line, strict=True), color=COLOURS[1], linewidth=0.8, alpha=0.5, zorder=0)
    ax.set_xlabel("speed-up per request over the baseline (geometric mean over prompts)")
    ax.set_ylabel("accuracy difference, points")
    _label(figure, ax, places)
    ax.legend(loc="best", ncols=len(seen) + 1)
    return figure


def acceptance(summary: Summary) -> Any | None:
    """Tokens per verify step: a line for each arm, a mark for each task."""
    names = [
        cell.arm
        for cell in summary.pooled()
        if cell.decoding.accept_length is not None and cell.role != "plain"
    ]
    if not names:
        return None
    figure, ax = axes(8.4, 1.1 + 0.28 * len(names))
    for number, task in enumerate([*summary.tasks, POOLED]):
        values = [summary.cell(name, task).decoding.accept_length for name in names]
        known = [(value, row) for row, value in enumerate(values) if value is not None]
        ax.plot(
            [value for value, _ in known],
            [row for _, row in known],
            linestyle="",
            marker="|" if task == POOLED else "o",
            markersize=12 if task == POOLED else 5,
            color=INK if task == POOLED else COLOURS[number % len(COLOURS)],
            label=task,
        )
    _arm_axis(ax, names)
    ax.set_xlim(left=1)
    ax.grid(axis="x", alpha=0.2)
    ax.set_xlabel("tokens per verify step (tau)")
    figure.legend(loc="outside lower center", ncols=6)
    return figure


def depth(summary: Summary) -> Any | None:
    """Share of drafting steps that accept the draft at a depth, exact and promoted stacked."""
    cells = [cell for cell in _shown(summary) if cell.decoding.exact_by_depth]
    if not cells:
        return None
    figure, panels = _panels(len(cells), 1.7)
    most = max(len(cell.decoding.exact_by_depth) for cell in cells)
    for ax, cell in zip(panels, cells, strict=False):
        exact = cell.decoding.exact_by_depth
        promoted = cell.decoding.promoted_by_depth or [0.0] * len(exact)
        depths = list(range(1, len(exact) + 1))
        ax.bar(depths, exact, color=COLOURS[0], label="exact")
        ax.bar(depths, promoted, bottom=exact, color=COLOURS[1], label="promoted")
        ax.set_title(cell.arm, fontsize=9)
        ax.set_xlim(0.4, most + 0.6)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_ylim(0, 1)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    figure.supxlabel("depth of the draft", fontsize=9)
    figure.supylabel("share of drafting steps", fontsize=9)
    return figure


def shapes(summary: Summary) -> Any | None:
    """Which trees were asked for, by output position; arms with one tree only are left out."""
    cells = [cell for cell in _shown(summary) if len(_shape_names([cell])) > 1]
    if not cells:
        return None
    figure, panels = _panels(len(cells), 1.9)
    names = _shape_names(cells)
    common = names[: len(COLOURS) - 1]
    for ax, cell in zip(panels, cells, strict=False):
        positions = list(cell.decoding.shapes)
        totals = [sum(cell.decoding.shapes[position].values()) for position in positions]
        bottom = [0.0] * len(positions)
        for number, name in enumerate([*common, "others"]):
            wanted = [name] if name != "others" else names[len(common) :]
            if not wanted:
                continue
            heights = [
                sum(cell.decoding.shapes[position].get(one, 0) for one in wanted) / total
                for position, total in zip(positions, totals, strict=True)
            ]
            starts = [position * _BLOCK for position in positions]
            ax.bar(
                starts,
                heights,
                _BLOCK * 0.92,
                bottom=bottom,
                align="edge",
                color=COLOURS[5] if name == "others" else _SHAPE_COLOURS[number],
                label=name,
            )
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
        ax.set_title(cell.arm, fontsize=9)
        ax.set_ylim(0, 1)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, title="steps,top-k,nodes")
    figure.supxlabel("output position, tokens", fontsize=9)
    figure.supylabel("share of steps", fontsize=9)
    return figure


def split(summary: Summary) -> Any | None:
    """Milliseconds a token of output, by phase."""
    phases = ("prefill", "draft", "verify", "host")
    cells = [
        cell
        for cell in summary.pooled()
        if any(getattr(cell.speed, f"{phase}_ms") for phase in phases)
    ]
    if not cells:
        return None
    figure, ax = axes(8.4, 1.1 + 0.28 * len(cells))
    left = [0.0] * len(cells)
    for number, phase in enumerate(phases):
        values = [getattr(cell.speed, f"{phase}_ms") or 0.0 for cell in cells]
        ax.barh(range(len(cells)), values, left=left, color=_PHASE_COLOURS[number], label=phase)
        left = [start + value for start, value in zip(left, values, strict=True)]
    _arm_axis(ax, [cell.arm for cell in cells])
    ax.set_xlabel("milliseconds per token of output")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


_SHAPE_COLOURS = tuple(colour for colour in COLOURS if colour != COLOURS[5])
_PHASE_COLOURS = (COLOURS[5], COLOURS[1], COLOURS[0], COLOURS[3])


def _shown(summary: Summary) -> list[Cell]:
    """Pooled lines that get a panel: as many as fit, those of the frontier last."""
    cells = [cell for cell in summary.pooled() if cell.decoding.steps]
    return sorted(cells, key=lambda cell: cell.role == "frontier")[:_PANELS]


def _panels(count: int, height: float) -> tuple[Any, Sequence[Any]]:
    columns = min(3, count)
    rows = -(-count // columns)
    figure, found = grid(8.4, 0.7 + height * rows, rows, columns)
    for ax in found[count:]:
        ax.set_visible(False)
    return figure, found


def _shape_names(cells: Sequence[Cell]) -> list[str]:
    """Shapes of some arms, the most frequent first."""
    counts: dict[str, int] = {}
    for cell in cells:
        for row in cell.decoding.shapes.values():
            for name, count in row.items():
                counts[name] = counts.get(name, 0) + count
    return sorted(counts, key=lambda name: (-counts[name], name))


def _arm_axis(ax: Any, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)


def _arms(value: float, low: float | None, high: float | None, scale: float = 1.0) -> Any:
    """Lengths of the two arms of an error bar; none without an interval."""
    if low is None or high is None:
        return None
    return [[max(0.0, value - scale * low)], [max(0.0, scale * high - value)]]


def _kappas(summary: Summary, cells: Sequence[Cell]) -> list[list[tuple[float, float]]]:
    """Places of the margin arms of each policy, by kappa: what a user moves along."""
    rules = {arm.name: (arm.policy, *arm.rule.split(":", 1)) for arm in summary.settings.arms}
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for cell in cells:
        policy, rule, *options = rules[cell.arm]
        if rule == "margin" and options and cell.role != "control" and _is_number(options[0]):
            x, y = cell.speed.speedup.value or 0.0, 100 * (cell.quality.difference.value or 0.0)
            lines.setdefault(policy, []).append((float(options[0]), x, y))
    return [[(x, y) for _, x, y in sorted(line)] for line in lines.values() if len(line) > 1]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _label(figure: Any, ax: Any, places: Sequence[tuple[float, float, str]]) -> None:
    """Names beside their points, moved until they cover neither each other nor a point."""
    figure.draw_without_rendering()
    pixels = [ax.transData.transform((x, y)) for x, y, _ in places]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in pixels]
    for (px, py), (x, y, name) in zip(pixels, places, strict=True):
        wide, high = 6.2 * len(name), 12
        for dx, dy in _OFFSETS:
            left, bottom = px + dx - (wide if dx < 0 else 0), py + dy - high / 2
            box = (left, bottom, left + wide, bottom + high)
            if not any(_overlap(box, other) for other in taken):
                break
        taken.append(box)
        ax.annotate(
            name,
            (x, y),
            xytext=(dx * 0.72, dy * 0.72),
            textcoords="offset points",
            ha="right" if dx < 0 else "left",
            va="center",
            fontsize=8,
        )


_OFFSETS = [(dx, dy) for dy in (10, -10, 24, -24, 38, -38, 52, -52, 66, -66) for dx in (8, -8)]


def _overlap(one: Sequence[float], two: Sequence[float]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]

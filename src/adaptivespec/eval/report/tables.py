"""The tables of a report as text: the same in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptivespec.eval.analysis import Cell, Summary
from adaptivespec.eval.analysis.text import DASH, number, percent, points, promise
from adaptivespec.eval.report import columns
from adaptivespec.eval.report.columns import Column

__all__ = ["Table", "tables"]


@dataclass(frozen=True)
class Table:
    """Cells of text. The first `heads` columns name the line; the rest are figures."""

    key: str
    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]
    heads: int = 1


def tables(summary: Summary) -> list[Table]:
    """Every table that has a line and a column with figures."""
    found = [
        _of_cells(
            "arms", "Arms at a glance", columns.GLANCE_NOTE, columns.GLANCE, summary.pooled(), 2
        ),
        _paper(summary),
        _of_cells(
            "accuracy",
            "Accuracy by task",
            columns.ACCURACY_NOTE,
            columns.ACCURACY,
            _graded(summary),
            2,
        ),
        _of_cells(
            "text", "How far the text goes", columns.TEXT_NOTE, columns.TEXT, summary.pooled(), 1
        ),
        _of_cells(
            "length",
            "Length, loops, failures",
            columns.LENGTH_NOTE,
            columns.LENGTH,
            summary.cells,
            2,
        ),
        _of_cells(
            "decoding",
            "Acceptance and trees",
            columns.DECODING_NOTE,
            columns.DECODING,
            summary.cells,
            2,
        ),
        _of_cells("time", "Time", columns.TIME_NOTE, columns.TIME, summary.cells, 2),
        _of_cells(
            "stream", "Streams and servers", columns.STREAM_NOTE, columns.STREAM, summary.cells, 2
        ),
        _noise(summary),
        _controls(summary),
        _asked(summary),
        _tasks(summary),
    ]
    return [table for table in (_without_empty(table) for table in found) if table.rows]


def _graded(summary: Summary) -> list[Cell]:
    order = {name: number for number, name in enumerate([*summary.tasks])}
    cells = [cell for cell in summary.cells if cell.quality.graded]
    return sorted(cells, key=lambda cell: order.get(cell.task, len(order)))


def _of_cells(
    key: str,
    title: str,
    note: str,
    wanted: Sequence[Column],
    cells: Sequence[Cell],
    heads: int,
) -> Table:
    names = list(dict.fromkeys(cell.task for cell in cells))
    ordered = sorted(cells, key=lambda cell: names.index(cell.task))
    rows = [[text(cell) for _, text in wanted] for cell in ordered]
    return Table(key, title, note, [name for name, _ in wanted], rows, heads)


def _of_lines(
    key: str, title: str, note: str, lines: Sequence[Mapping[str, str]], heads: int
) -> Table:
    names = list(lines[0]) if lines else []
    return Table(key, title, note, names, [list(line.values()) for line in lines], heads)


def _paper(summary: Summary) -> Table:
    note = "Speed-up / tau / recovery of each arm; arms of the frontier are in the tables below."
    return _of_lines("paper", "As papers print it", note, summary.paper_table(), 2)


def _noise(summary: Summary) -> Table:
    lines = [
        {
            "task": line.task,
            "baseline against": line.what,
            "n": str(line.items),
            "texts that differ": f"{line.diverged} ({percent(line.diverged / line.items)})",
            "first difference": number(line.divergence_at, 0),
            "difference, points": columns.bounded(
                points(line.difference.value), line.difference, "points"
            ),
            "detectable": points(line.detectable).lstrip("+"),
        }
        for line in summary.noise
    ]
    note = (
        "The baseline against what ought to be equal: itself with the prompt read in other pieces, "
        "and lossless arms. What differs here is rounding; a lossy effect as small is no claim."
    )
    return _of_lines("noise", "Noise floor", note, lines, 2)


def _controls(summary: Summary) -> Table:
    lines = [
        {
            "arm": line.arm,
            "control": line.control,
            "promoted / 100": f"{number(line.arm_rate)} and {number(line.control_rate)}",
            "accuracy": f"{percent(line.arm_accuracy)} and {percent(line.control_accuracy)}",
            "arm less control, points": columns.bounded(
                points(line.difference.value), line.difference, "points"
            ),
            "detectable": points(line.detectable).lstrip("+"),
            "McNemar p": number(line.mcnemar_p, 3),
            "NLL": f"{number(line.arm_nll, 3)} and {number(line.control_nll, 3)}",
        }
        for line in summary.controls
    ]
    note = (
        "A control promotes about as often as the arm, without looking at the margin. Where the "
        "arm is no better than its control, nothing shows that the margin carries information."
    )
    return _of_lines("controls", "Controls", note, lines, 2)


def _asked(summary: Summary) -> Table:
    lines = [
        {
            "arm": arm.name,
            "text": promise(arm.lossless),
            "role": arm.role,
            "rule": arm.resolved_rule or arm.rule or DASH,
            "policy": arm.resolved_policy or arm.policy or DASH,
            "target": arm.target,
            "what it is": summary.settings.targets.get(arm.target, DASH),
        }
        for arm in summary.settings.arms
    ]
    note = "Every arm as it was run. A lossy arm may emit text that the target would not."
    return _of_lines("asked", "What was run", note, lines, 7)


def _tasks(summary: Summary) -> Table:
    lines = [
        {
            "task": task.name,
            "title": task.title,
            "graded": "yes" if task.graded else "no",
            "items": f"{len(task.items)} of {task.available}",
            "timed": str(len(task.timed)),
            "set aside": str(len(task.dev)),
            "max tokens": str(task.max_tokens),
            "data": task.digest,
        }
        for task in summary.settings.tasks
    ]
    return _of_lines("tasks", "Tasks", "Set aside: dev items, never reported.", lines, 2)


def _without_empty(table: Table) -> Table:
    """The table less the lines without a figure; of a table that has none every line is kept."""
    if table.heads >= len(table.columns):
        return table
    kept = [row for row in table.rows if not {"", DASH, "0"}.issuperset(row[table.heads :])]
    return Table(table.key, table.title, table.note, table.columns, kept, table.heads)

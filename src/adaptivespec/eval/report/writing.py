"""Writes a report into the folder of its run."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaptivespec.eval.analysis import Summary, analyse
from adaptivespec.eval.analysis.samples import Samples
from adaptivespec.eval.analysis.text import number, percent, points, times
from adaptivespec.eval.errors import RunError
from adaptivespec.eval.report import charts, drawing
from adaptivespec.eval.report.disagreements import Reading, readings
from adaptivespec.eval.report.findings import findings
from adaptivespec.eval.report.hostile import cell, visible
from adaptivespec.eval.report.tables import tables
from adaptivespec.eval.requirements import require
from adaptivespec.eval.rows import Row, read_rows
from adaptivespec.eval.settings import Settings

__all__ = ["FILES", "read_run", "write_report"]

FILES = ("summary.csv", "report.md", "report.html", "frontier.png")

_CHARTS: Mapping[str, tuple[Callable[[Summary], Any], str]] = {
    "frontier": (charts.frontier, "Speed-up against accuracy, all tasks pooled, 95 % intervals"),
    "acceptance": (charts.acceptance, "Tokens per verify step, by task"),
    "depth": (charts.depth, "Acceptance by depth, exact and promoted"),
    "shapes": (charts.shapes, "Trees that were asked for, by output position"),
    "split": (charts.split, "Where the time goes, per token of output"),
}


def read_run(folder: Path) -> tuple[Settings, list[Row]]:
    """The settings and rows of a run.

    Raises:
        RunError: the folder holds no run, or a damaged one.
    """
    settings = Settings.read(folder / "settings.json")
    try:
        return settings, list(read_rows(folder / "rows.jsonl"))
    except OSError as error:
        raise RunError(
            f"cannot read rows.jsonl: {error.strerror}",
            field=str(folder),
            remedy="Name the --output folder of a finished `adaptivespec bench`",
        ) from error


def write_report(folder: Path) -> Summary:
    """Write the files of ``FILES`` from settings.json and rows.jsonl of a folder.

    The same rows give the same bytes. frontier.png is left out where nothing was timed and graded.

    Raises:
        RunError: the folder holds no run, or a damaged one.
    """
    require()
    settings, rows = read_run(folder)
    summary = analyse(settings, rows)
    chosen = readings(Samples.of(settings, rows))
    drawn = _draw(summary)
    image = drawn.pop("png", None)
    (folder / "summary.csv").write_text(_csv(summary), encoding="utf-8", newline="")
    if image is not None:
        (folder / "frontier.png").write_bytes(image)
    for name, escape in (("report.md", False), ("report.html", True)):
        text = _render(name, escape, summary, drawn, chosen)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return summary


def _draw(summary: Summary) -> dict[str, Any]:
    """Charts that have figures: name -> title and SVG; and the frontier as "png"."""
    found: dict[str, Any] = {}
    for name, (chart, title) in _CHARTS.items():
        with drawing.style():
            figure = chart(summary)
        if figure is not None:
            found[name] = (title, drawing.svg(figure, name))
            if name == "frontier":
                found["png"] = drawing.png(figure)
    return found


def _csv(summary: Summary) -> str:
    buffer = io.StringIO()
    lines = summary.csv_rows()
    writer = csv.DictWriter(buffer, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _bare(value) for name, value in line.items()})
    return buffer.getvalue()


def _bare(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(value) if isinstance(value, str) else value


def _render(
    name: str, escape: bool, summary: Summary, drawn: Mapping[str, Any], chosen: list[Reading]
) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("adaptivespec.eval.report"),
        autoescape=escape,  # noqa: S701  off for Markdown, whose cells are escaped by `cell`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "visible": lambda value: visible(str(value)),
        "cell": lambda value: cell(str(value)),
        "number": number,
        "percent": percent,
        "points": points,
        "times": times,
    }
    template = environment.get_template(f"{name}.jinja")
    return template.render(
        summary=summary,
        settings=summary.settings,
        findings=findings(summary),
        tables=tables(summary),
        charts=drawn,
        readings=chosen,
        provenance=list(_flat(summary.settings.provenance)),
        identity=list(_flat(summary.settings.model)),
    )


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Nested JSON as names with dots and values as text."""
    if isinstance(value, Mapping):
        parts = [_flat(item, f"{name}.{key}".lstrip(".")) for key, item in value.items()]
        return [line for part in parts for line in part]
    if isinstance(value, list | tuple):
        return [(name, " ".join(map(str, value)))]
    return [(name, "unknown" if value is None else str(value))]

"""Rows of a run: a line for each answer, appended as they come and read again after a stop."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adaptivespec.eval.errors import RunError
from adaptivespec.eval.targets.base import Answer
from adaptivespec.eval.tasks.base import Grade

__all__ = ["Phase", "Place", "Row", "RowFile"]

Phase = Literal["quality", "noise", "speed", "tune"]
"""quality: every item once, graded. noise: plain decoding again, with other chunks of the prompt.
speed: some items in turn by every arm, timed; `restart` counts processes. tune: dev items, timed,
for fixed trees."""


@dataclass(frozen=True)
class Place:
    """What identifies a row."""

    phase: Phase
    restart: int
    task: str
    index: int
    arm: str


@dataclass
class Row:
    """One answer, its grade and where it belongs. Times count in the phases speed and tune alone.

    Attributes:
        place: phase, restart, task, index, arm.
        order: how manieth of its block it was; the arms of a block are shuffled.
        answer: as the target gave it.
        grade: None in phases that do not grade.
    """

    place: Place
    order: int
    answer: Answer
    grade: Grade | None = None

    def to_json(self) -> dict[str, Any]:
        """A flat dictionary of JSON values; fields of the answer that are None are left out."""
        row: dict[str, Any] = {**dataclasses.asdict(self.place), "order": self.order}
        answer = dataclasses.asdict(self.answer)
        row |= {name: value for name, value in answer.items() if value is not None}
        if self.grade is not None:
            row["grade"] = dataclasses.asdict(self.grade)
        return row

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Row:
        """The inverse of ``to_json``; KeyError or TypeError where it is no row."""
        row = dict(row)
        place = Place(**{item.name: row.pop(item.name) for item in dataclasses.fields(Place)})
        grade = row.pop("grade", None)
        order = row.pop("order")
        return cls(place, order, Answer(**row), None if grade is None else Grade(**grade))


class RowFile:
    """`rows.jsonl` of a run: appended to, one line at a time, each on the disk when `add` returns.

    A line that a stop cut short is dropped when the file is opened for appending.

    Raises:
        RunError: a line that is not the last is no row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = list(read_rows(path)) if path.exists() else []
        self.done = {row.place for row in self.rows}
        _cut_to_whole_lines(path)
        self._file = path.open("a", encoding="utf-8")

    def add(self, row: Row) -> None:
        """Append a row and keep it; its place must be new."""
        if row.place in self.done:
            raise ValueError(f"{row.place} is there already")
        text = json.dumps(row.to_json(), allow_nan=False)
        self._file.write(text + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows.append(row)
        self.done.add(row.place)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file; a last line that was cut short is left out.

    Raises:
        RunError: a line that is not the last is no row.
    """
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if number == len(lines):  # what follows the last line break
            return
        try:
            yield Row.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"line {number} is no row of a benchmark: {error}",
                field=str(path),
                remedy="Take it out, or begin anew in another folder",
            ) from error


def _cut_to_whole_lines(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            path.write_bytes(whole)

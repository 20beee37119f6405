"""Trace files: a header line that says what was run, then one JSON object per decode step."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError, TreeError
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.trace import StepTrace
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.trace_lines import Header, TraceLines, header_of

if TYPE_CHECKING:
    from adaptivespec.engine import Engine, GenerationResult

__all__ = ["Header", "Trace", "TraceError", "TraceWriter", "read_trace", "trace_of"]

_MAKE_ONE = "`adaptivespec generate -p TEXT --trace FILE --record-width 4` writes one"


class TraceError(AdaptiveSpecError, ValueError):
    """A trace file cannot be read or used; the field is the file and, where known, the line."""


@dataclass(frozen=True)
class Trace:
    """A trace file that was read.

    Attributes:
        path: where it was read from.
        header: its first line.
        steps: all others; every one has its nodes.
        truncated: lines left out because they were cut short: 0, or 1 for the last one.
    """

    path: Path
    header: Header
    steps: list[StepTrace]
    truncated: int = 0

    @property
    def recording(self) -> bool:
        """Whether there is a tree at every position of the text."""
        return self.header.record_width is not None


def trace_of(
    path: Path,
    engine: Engine,
    result: GenerationResult,
    params: SamplingParams,
    record: tuple[int, int] | None = None,
) -> Trace:
    """A finished generation, run with ``trace=True``, as what reading its file would give."""
    return Trace(path, header_of(engine, result, params, record), list(result.trace or []))


class TraceWriter:
    """Writes a trace; as a context manager it closes the file.

    The file is opened at once, so that a place that cannot be written to is known early. Call
    ``begin`` before the first ``write``. Every step is on disk when ``write`` returns.

    Raises ConfigError when the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot write {path}: {error.strerror}",
                field="trace",
                remedy="Name a file in a directory that exists and may be written to",
            ) from error

    def begin(
        self,
        engine: Engine,
        result: GenerationResult,
        params: SamplingParams,
        record: tuple[int, int] | None = None,
        prompt: Sequence[int] | None = None,
    ) -> None:
        """Write the header of a generation that starts now; arguments as of ``header_of``.

        It reaches the disk with the first step.
        """
        header = header_of(engine, result, params, record, prompt)
        self._file.write(header.model_dump_json() + "\n")
        self._lines = TraceLines(engine.tokenizer)

    def write(self, step: StepTrace) -> None:
        """Write one step."""
        print(json.dumps(self._lines.line(step)), file=self._file, flush=True)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


def read_trace(path: Path) -> Trace:
    """Read and check a trace file. A last line that was cut short is left out and counted.

    Raises TraceError naming file and line: unreadable, no header, a value of the wrong type, a
    tree that is none, a position out of order.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"cannot be read: {reason}", field=str(path), remedy=_MAKE_ONE) from error
    first, *lines = text.split("\n")
    header = _header(path, first)
    if lines and not lines[-1]:
        lines.pop()  # the file ends with a line break, as it should
    steps: list[StepTrace] = []
    for number, line in enumerate(lines, 2):
        where = f"{path}, line {number}"
        try:
            step = _STEP.validate_json(line, strict=True)
        except ValidationError as error:
            if number == len(lines) + 1 and not text.endswith("\n"):
                return Trace(path, header, steps, truncated=1)
            raise TraceError(_first(error), field=where) from None
        fault = _fault(step, steps[-1] if steps else None, header) or _fault_of(step.nodes)
        if fault:
            raise TraceError(fault, field=where)
        steps.append(step)
    return Trace(path, header, steps)


def _header(path: Path, line: str) -> Header:
    try:
        return Header.model_validate_json(line, strict=True)
    except ValidationError as error:
        known = '"adaptivespec_trace"' in line
        message = _first(error) if known else "is no header of a trace"
        raise TraceError(
            message, field=f"{path}, line 1", remedy=None if known else _MAKE_ONE
        ) from None


def _fault(step: StepTrace, before: StepTrace | None, header: Header) -> str:
    """What types do not say of a step; "" when nothing is wrong with it."""
    if before is not None and step.position != (due := before.position + before.committed):
        return f"position is {step.position}, and {due} after the line before it"
    if header.record_width is not None and step.committed != 1:
        return f"a step of a recording commits 1 token, not {step.committed}"
    if step.position < 1 or step.committed < 1:
        return "position and committed must be at least 1"
    if step.root_confidence is not None and not math.isfinite(step.root_confidence):
        return f"root_confidence is {step.root_confidence}"
    return ""


def _fault_of(nodes: dict[str, list[Any]] | None) -> str:
    """What is wrong with the nodes of a step, "" for nothing."""
    if nodes is None:
        return "has no nodes"
    for name, adapter in _LISTS.items():
        if name not in nodes:
            return f"nodes has no {name}"
        try:
            adapter.validate_python(nodes[name], strict=True)
        except ValidationError as error:
            return f"nodes.{name}.{_first(error)}"
        if len(nodes[name]) != len(nodes["token"]):
            return f"nodes.{name} has {len(nodes[name])} entries, token {len(nodes['token'])}"
    # Drawn drafts that the drafter's own law excludes have no log q.
    logq = [-math.inf if value is None else value for value in nodes["logq"]]
    try:
        tree = DraftTree.from_parents(nodes["token"], nodes["parent"], logq).validate()
    except TreeError as error:
        return f"nodes: {error}"
    if tree.depth.tolist() != nodes["depth"]:
        return "nodes.depth does not follow from nodes.parent"
    places = set(zip(nodes["parent"], nodes["rank"], strict=True))
    if len(places) < tree.num_nodes or min(nodes["rank"]) < 0:
        return "nodes.rank must be >= 0 and differ between siblings"
    if not all(0 <= margin <= 1 for margin in nodes["margin"]):
        return "nodes.margin must be in [0, 1]"
    if min(nodes["target"]) < 0:
        return "nodes.target must be >= 0"
    return ""


def _first(error: ValidationError) -> str:
    """The first complaint of pydantic, with the place within the line."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


_STEP = TypeAdapter(StepTrace)
_LISTS: dict[str, TypeAdapter[Any]] = {
    **{name: TypeAdapter(list[int]) for name in ("token", "parent", "depth", "rank", "target")},
    "logq": TypeAdapter(list[float | None]),
    "margin": TypeAdapter(list[float]),
}

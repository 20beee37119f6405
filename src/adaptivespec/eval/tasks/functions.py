"""Task: write an easy Python function, which is run on a few calls."""

from __future__ import annotations

import copy
import inspect
import json
import re
from ast import literal_eval
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from typing import Any, ClassVar

from adaptivespec.eval.grading.code import extract_code
from adaptivespec.eval.grading.sandbox import run_python
from adaptivespec.eval.tasks.bank import Exercise, exercises
from adaptivespec.eval.tasks.base import Grade, Item, Task

_PROMPT = (
    "Complete the following Python function. Answer with the whole function in one code block.\n\n"
    "```python\n{header}```"
)

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Functions(Task):
    """Functions of a few lines, with unit tests whose results our own references give."""

    name: ClassVar[str] = "functions"
    title: ClassVar[str] = "Python functions"
    summary: ClassVar[str] = "write a short Python function; graded by running it in a sandbox"
    source: ClassVar[str] = "made for this package, Apache-2.0"
    max_tokens: ClassVar[int] = 256

    def load(self, data: Path | None) -> Sequence[Item]:
        """All functions of the bank; ``data`` is not needed."""
        return [_item(index, exercise) for index, exercise in enumerate(exercises())]

    def grade(self, item: Item, text: str) -> Grade:
        """Right when every call gives the value of the reference."""
        wanted = item.reference
        code = extract_code(text, wanted["name"])
        if not code.strip():
            return Grade(False, "", "unparsed")
        run = run_python(code, wanted["calls"])
        if run.outcome == "error":
            return Grade(False, "", "unparsed")
        ended = f"failed: {run.message}" if run.outcome == "failed" else run.outcome
        results = [_ADDRESS.sub("", result) for result in run.results or (ended,)]
        correct = run.outcome == "passed" and _all_same(results, wanted["results"])
        # All right answers share the form of the reference: 2 and 2.0 agree.
        found = wanted["results"] if correct else results
        return Grade(correct, json.dumps(found))


def _item(index: int, exercise: Exercise) -> Item:
    function = exercise.reference
    source = inspect.getsource(function)
    body_starts = source.index('"""', source.index('"""') + 3) + 3
    header = source[source.index("def ") : body_starts] + "\n"
    calls, results = [], []
    for arguments in exercise.arguments:
        calls.append(f"{function.__name__}({', '.join(map(repr, arguments))})")
        results.append(repr(function(*copy.deepcopy(arguments))))
    reference = {"name": function.__name__, "calls": calls, "results": results}
    return Item(Functions.name, index, (_PROMPT.format(header=header),), reference)


def _all_same(given: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(given) == len(wanted) and all(map(_same, given, wanted))


def _same(given: str, wanted: str) -> bool:
    """Equal as values, of one kind where one is a truth value; floats to nine digits."""
    if given == wanted:
        return True
    try:
        a, b = literal_eval(given), literal_eval(wanted)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    if _is_number(a) and _is_number(b):
        return isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)

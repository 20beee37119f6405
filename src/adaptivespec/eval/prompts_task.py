"""A task made of a user's own prompts: a JSON Lines file, graded in one of a few ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from adaptivespec.core.registry import unknown_name
from adaptivespec.eval.errors import DataError
from adaptivespec.eval.grading.exact import canonical, first_object, normal_text
from adaptivespec.eval.grading.final_number import final_number, normal_number
from adaptivespec.eval.tasks.base import UNGRADED, Grade, Item, Task

__all__ = ["GRADERS", "GradedPrompts", "UngradedPrompts", "prompts_task"]

_KEYS = ("prompt", "answer")


def _exact(reference: Any, text: str) -> Grade:
    answer = normal_text(text)
    return Grade(answer == normal_text(str(reference)), answer)


def _contains(reference: Any, text: str) -> Grade:
    answer, wanted = normal_text(text), normal_text(str(reference))
    return Grade(True, wanted) if wanted in answer else Grade(False, answer)


def _number(reference: Any, text: str) -> Grade:
    answer = final_number(text)
    if answer is None:
        return Grade(False, "", "unparsed")
    return Grade(answer == normal_number(str(reference)), answer)


def _math(reference: Any, text: str) -> Grade:
    from adaptivespec.eval.grading.maths import compare

    verdict = compare(str(reference), text)
    return Grade(verdict.correct, verdict.answer, "graded" if verdict.parsed else "unparsed")


def _json(reference: Any, text: str) -> Grade:
    found = first_object(text)
    if found is None:
        return Grade(False, "", "unparsed")
    answer = canonical(found)
    return Grade(answer == canonical(reference), json.dumps(answer, sort_keys=True))


GRADERS: Mapping[str, Callable[[Any, str], Grade]] = {
    "exact": _exact,
    "contains": _contains,
    "number": _number,
    "math": _math,
    "json": _json,
}
"""Ways to grade: the whole text, a text within it, the last number, mathematics, a JSON object."""


class UngradedPrompts(Task):
    """Prompts without reference answers: for losses that compare answers alone."""

    name: ClassVar[str] = "prompts"
    title: ClassVar[str] = "prompts"
    summary: ClassVar[str] = "the user's prompts, not graded"
    source: ClassVar[str] = "the user"
    graded: ClassVar[bool] = False

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items

    def load(self, data: Path | None) -> Sequence[Item]:
        return self.items

    def grade(self, item: Item, text: str) -> Grade:
        return UNGRADED


class GradedPrompts(UngradedPrompts):
    """Prompts whose reference is [a key of GRADERS, the user's answer]."""

    summary: ClassVar[str] = "the user's prompts, graded against the user's answers"
    graded: ClassVar[bool] = True

    def grade(self, item: Item, text: str) -> Grade:
        grader, answer = item.reference
        return GRADERS[grader](answer, text)


def prompts_task(path: Path, grader: str | None) -> Task:
    """The task of a file with lines ``{"prompt": text, "answer": JSON value}``.

    Args:
        grader: a key of ``GRADERS``, or None: answers are then not needed and nothing is graded.

    Raises:
        DataError: the file cannot be read or a line is wrong; names the line.
        ConfigError: there is no such grader.
    """
    if grader is not None and grader not in GRADERS:
        raise unknown_name("grade", grader, GRADERS)
    try:
        lines = path.expanduser().read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"cannot read {path}: {reason}", field="prompts", remedy="Name a JSON Lines file"
        ) from error
    items: list[Item] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompt, answer = _read(line, f"{path}:{number}", grader)
            reference = None if grader is None else [grader, answer]
            items.append(Item("prompts", len(items), (prompt,), reference))
    if not items:
        raise DataError(
            f"{path} holds no prompt", field="prompts", remedy='Write lines {"prompt": "..."}'
        )
    return UngradedPrompts(items) if grader is None else GradedPrompts(items)


def _read(line: str, place: str, grader: str | None) -> tuple[str, Any]:
    def wrong(message: str, remedy: str = 'Write {"prompt": "...", "answer": "..."}') -> DataError:
        return DataError(f"{place}: {message}", field="prompts", remedy=remedy)

    try:
        record = json.loads(line)
    except ValueError as error:
        raise wrong(f"is no JSON ({error})") from error
    if not isinstance(record, dict):
        raise wrong("is no JSON object")
    unknown = [key for key in record if key not in _KEYS]
    if unknown:
        raise wrong(f"has the key {unknown[0]!r}, which means nothing")
    prompt, answer = record.get("prompt"), record.get("answer")
    if not isinstance(prompt, str) or not prompt.strip():
        raise wrong("has no prompt")
    if grader is not None:
        if answer is None:
            raise wrong(
                "has no answer to grade by",
                "Add it, or leave out --grade and use --loss disagreement",
            )
        if grader == "number":
            try:
                normal_number(str(answer))
            except ValueError as error:
                raise wrong(f"has the answer {answer!r}, which is no number") from error
        if grader == "json" and not isinstance(answer, dict):
            raise wrong(f"has the answer {answer!r}, which is no JSON object")
    return prompt, answer

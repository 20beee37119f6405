"""The contract of a task: items to ask, and a verdict on every answer.

A task is one file and one line in ``TASKS``. Loading reads files and nothing else; grading may be
called from any thread, is deterministic, never raises on what a model wrote, and runs no model code
inside this process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

Status = Literal["graded", "unparsed", "ungraded"]


@dataclass(frozen=True)
class Item:
    """One thing to ask.

    Attributes:
        task: name of its task.
        index: number within the task, from 0; the same whatever selection is run.
        turns: user messages; each but the first follows the answer to the one before.
        reference: JSON value that the grader compares with.
    """

    task: str
    index: int
    turns: tuple[str, ...]
    reference: Any = None

    @property
    def key(self) -> str:
        """The item's name in messages: "gsm8k/17"."""
        return f"{self.task}/{self.index}"


@dataclass(frozen=True)
class Grade:
    """A verdict on one answer.

    Attributes:
        correct: None where the task has no grader.
        answer: the final answer as it was understood, in a normal form: two answers of one item
            agree exactly when these are equal. Empty when none was found.
        status: "graded"; "unparsed" where no answer was found or the grader gave up in time, which
            counts as wrong but is reported apart; "ungraded" where the task has no grader.
    """

    correct: bool | None
    answer: str = ""
    status: Status = "graded"


UNGRADED = Grade(None, "", "ungraded")


class Task(ABC):
    """A set of items of one kind.

    Attributes:
        name: as registered, and as the command line spells it.
        title: for tables.
        summary: one line: what is asked, and how it is graded.
        source: where the items come from, with the licence.
        graded: False for tasks that are run for speed alone.
        max_tokens: of an answer, unless the run sets another bound.
        stop: texts that end an answer.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    graded: ClassVar[bool] = True
    max_tokens: ClassVar[int] = 256
    stop: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def load(self, data: Path | None) -> Sequence[Item]:
        """Every item, in an order of its own that never changes.

        Args:
            data: folder with the files of public tasks, if the user has one.

        Raises:
            DataError: the items can be had nowhere; says where they were looked for and what to do.
        """

    @abstractmethod
    def grade(self, item: Item, text: str) -> Grade:
        """A verdict on the answer ``text`` (of the last turn) to ``item``."""

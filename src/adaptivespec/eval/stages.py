"""The stages of a run: what is asked in which order, and how answers become rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from adaptivespec.core.progress import Progress, StageEvent
from adaptivespec.eval.arms import Arm
from adaptivespec.eval.rows import Phase, Place, Row, RowFile
from adaptivespec.eval.selection import Selected
from adaptivespec.eval.settings import Settings, TaskSettings
from adaptivespec.eval.targets.base import Answer, Ask
from adaptivespec.eval.tasks.base import Grade, Item
from adaptivespec.eval.worker import Job

__all__ = ["Answers", "Entry", "Stage", "blocks", "noise", "quality", "speed", "warm_up"]

GRADERS = 2
"""Answers that are graded at once; code and mathematics are graded in processes of their own."""


class Answers(Protocol):
    """Whoever answers jobs: a pool of workers, or a server."""

    def answers(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Answer]]: ...


@dataclass(frozen=True)
class Entry:
    """One thing to ask: the place of its row, its number within its block, and the job."""

    place: Place
    order: int
    job: Job


def ask_for(task: TaskSettings, settings: Settings) -> Ask:
    """How the items of a task are asked in a run, without details."""
    return Ask(
        max_tokens=task.max_tokens,
        stop=tuple(task.stop),
        temperature=settings.temperature,
        seed=settings.seed,
    )


def block(
    phase: Phase, restart: int, item: Item, arms: Sequence[Arm], ask: Ask, seed: int
) -> list[Entry]:
    """An item by every arm, in an order shuffled for this block alone."""
    shuffled = list(arms)
    random.Random(f"{seed} {phase} {restart} {item.key}").shuffle(shuffled)  # noqa: S311
    return [
        Entry(Place(phase, restart, item.task, item.index, arm.name), order, (arm, item, ask))
        for order, arm in enumerate(shuffled)
    ]


def blocks(
    phase: Phase,
    restart: int,
    items: Sequence[tuple[Selected, Item]],
    arms: Sequence[Arm],
    settings: Settings,
    **changes: Any,
) -> list[Entry]:
    """A block for each item, one after the other; `changes` are of how they are asked."""
    return [
        entry
        for task, item in items
        for entry in block(
            phase,
            restart,
            item,
            arms,
            replace(ask_for(task.settings, settings), **changes),
            settings.seed,
        )
    ]


def quality(tasks: Sequence[Selected], arms: Sequence[Arm], settings: Settings) -> list[Entry]:
    """Every item once by every arm, with details."""
    return blocks("quality", 0, _asked(tasks), arms, settings, detail=True)


def noise(tasks: Sequence[Selected], arms: Sequence[Arm], settings: Settings) -> list[Entry]:
    """Every item again by plain decoding, its prompt read in other pieces."""
    baseline = [arm for arm in arms if arm.name == settings.baseline]
    items = _asked(tasks)
    return blocks("noise", 0, items, baseline, settings, detail=True, split_prompt=True)


def speed(
    tasks: Sequence[Selected], arms: Sequence[Arm], settings: Settings, restart: int
) -> list[Entry]:
    """The timed items of one restart, block by block, the tasks mixed."""
    items = [(task, item) for task in tasks for item in task.chosen(task.settings.timed)]
    random.Random(f"{settings.seed} {restart}").shuffle(items)  # noqa: S311
    return blocks("speed", restart, items, arms, settings)


def _asked(tasks: Sequence[Selected]) -> list[tuple[Selected, Item]]:
    return [(task, item) for task in tasks for item in task.chosen(task.settings.items)]


def warm_up(tasks: Sequence[Selected], arms: Sequence[Arm], settings: Settings) -> list[Job]:
    """One short answer by every arm, so that what happens once belongs to no timed one."""
    first = tasks[0]
    item = first.chosen(first.settings.items)[0]
    ask = replace(ask_for(first.settings, settings), max_tokens=16)
    return [(arm, item, ask) for arm in arms]


class Stage:
    """Asks what is not in the file yet, and adds a row for each answer.

    Args:
        graders: tasks by name; answers of tasks that are not in it are not graded.
    """

    def __init__(
        self,
        name: str,
        file: RowFile,
        progress: Progress,
        graders: Mapping[str, Callable[[Item, str], Grade]] | None = None,
    ) -> None:
        self._name, self._file, self._progress = name, file, progress
        self._graders = graders or {}

    def run(self, host: Answers, entries: Sequence[Entry]) -> None:
        """Ask `host` for all `entries` that have no row."""
        left = [entry for entry in entries if entry.place not in self._file.done]
        done = len(entries) - len(left)
        self._report(done, len(entries))
        grading: list[Future[Row]] = []
        with ThreadPoolExecutor(GRADERS) as threads:
            for number, answer in host.answers(entry.job for entry in left):
                grading.append(threads.submit(self._row, left[number], answer))
                while grading and grading[0].done():
                    done += self._add(grading.pop(0))
                self._report(done, len(entries))
            for row in grading:
                done += self._add(row)
                self._report(done, len(entries))

    def _row(self, entry: Entry, answer: Answer) -> Row:
        _, item, ask = entry.job
        grader = self._graders.get(item.task)
        grade = None if grader is None or answer.error else grader(item, answer.text)
        if not ask.detail:  # the text says whether the answer is that of the graded run
            answer = replace(answer, token_ids=None, kinds=None, margins=None, pieces=None)
        return Row(entry.place, entry.order, answer, grade)

    def _add(self, row: Future[Row]) -> int:
        self._file.add(row.result())
        return 1

    def _report(self, done: int, total: int) -> None:
        self._progress(StageEvent(self._name, done, total))

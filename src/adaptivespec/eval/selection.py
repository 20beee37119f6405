"""Which items of a task a run asks, times, and tunes on."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.settings import TaskSettings
from adaptivespec.eval.tasks import make_task
from adaptivespec.eval.tasks.base import Item, Task

__all__ = ["PerTask", "Selected", "Selection", "digest_of", "select", "shuffled"]


@dataclass(frozen=True)
class PerTask:
    """A number for all tasks, None for none, and others for tasks by name."""

    general: int | None = None
    named: Mapping[str, int] = field(default_factory=dict)

    def of(self, task: str) -> int | None:
        """The number of a task."""
        return self.named.get(task, self.general)


@dataclass(frozen=True)
class Selection:
    """How many items of each task.

    Attributes:
        limit: asked, none for all that are left.
        timed: of those, None for all of them.
        dev: set aside for tuning; never asked otherwise.
        max_tokens: of an answer, none for the task's own bound.
        seed: of the order.
    """

    limit: PerTask = field(default_factory=PerTask)
    timed: int | None = None
    dev: int = 0
    max_tokens: PerTask = field(default_factory=PerTask)
    seed: int = 0


@dataclass(frozen=True)
class Selected:
    """A task with its items by index, and what a run asks of them."""

    task: Task
    items: Mapping[int, Item]
    settings: TaskSettings

    def chosen(self, indices: Sequence[int]) -> list[Item]:
        """The items of these indices."""
        return [self.items[index] for index in indices]


def select(name: str, selection: Selection, data: Path | None) -> Selected:
    """Draw items of a task: a shuffled order, asked from its front, dev items from its back.

    So a larger limit asks the same items and more, and dev items are never asked.

    Raises:
        DataError: the items cannot be had.
        ConfigError: no item is left.
    """
    task = make_task(name)
    items = shuffled(task, selection.seed, data)
    order = [item.index for item in items]
    dev = min(selection.dev, len(order) // 2)
    left = len(order) - dev
    wanted = selection.limit.of(name)
    count = left if wanted is None else min(wanted, left)
    if count < 1:
        raise ConfigError(
            f"leaves no item of {name}, which has {len(order)}",
            field="limit",
            remedy="Ask for at least one",
        )
    asked = order[:count]
    timed = asked if selection.timed is None else asked[: selection.timed]
    by_index = {item.index: item for item in items}
    settings = TaskSettings(
        name=name,
        title=task.title,
        graded=task.graded,
        max_tokens=selection.max_tokens.of(name) or task.max_tokens,
        stop=list(task.stop),
        items=asked,
        timed=timed,
        dev=order[left:],
        available=len(order),
        digest=digest_of(by_index[index] for index in asked),
    )
    return Selected(task, by_index, settings)


def shuffled(task: Task, seed: int, data: Path | None) -> list[Item]:
    """Every item of a task in the order of a seed; DataError as of ``Task.load``."""
    items = list(task.load(data))
    random.Random(f"{task.name} {seed}").shuffle(items)  # noqa: S311  repeatable, no secret
    return items


def digest_of(items: Iterable[Item]) -> str:
    """Hash of prompts and references, as 16 hexadecimal digits."""
    content = [[item.task, item.index, item.turns, item.reference] for item in items]
    text = json.dumps(content, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""A pool whose answers are a function of rule and item, for tests of what runs on a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from adaptivespec.eval.targets.base import Answer
from adaptivespec.eval.tasks.base import Grade, Item, Task

IDENTITY: dict[str, Any] = {
    "model": {"name": "fake", "digest": None},
    "head": {"name": "fake-head", "digest": None},
    "backend": "torch",
    "precision": "float32",
}


class Sums(Task):
    """Sums; a right answer is the number alone."""

    name: ClassVar[str] = "sums"
    title: ClassVar[str] = "Sums"
    summary: ClassVar[str] = "sums"
    source: ClassVar[str] = "made here"
    max_tokens: ClassVar[int] = 8
    size: ClassVar[int] = 400

    def load(self, data: Any) -> list[Item]:
        return [Item(self.name, i, (f"{i} + 1",), str(i + 1)) for i in range(self.size)]

    def grade(self, item: Item, text: str) -> Grade:
        return Grade(text == item.reference, text) if text else Grade(False, "", "unparsed")


class Products(Sums):
    """Another task."""

    name: ClassVar[str] = "products"
    title: ClassVar[str] = "Products"


class AnsweringPool:
    """Gives `text(rule, item)`, the last job first where there are several; counts its jobs."""

    about = "a script"

    def __init__(
        self, text: Callable[[str, Item], str], identity: dict[str, Any] | None = None
    ) -> None:
        self.text, self.identity = text, identity or IDENTITY
        self.asked: list[tuple[str, Item]] = []
        self.fails_after: int | None = None

    def __enter__(self) -> AnsweringPool:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.closed = True

    def answers(self, jobs: Iterable[Any]) -> Iterator[tuple[int, Answer]]:
        for number, (arm, item, ask) in reversed(list(enumerate(jobs))):
            assert ask.temperature == 0
            self.asked.append((arm.name, item))
            if self.fails_after is not None and len(self.asked) > self.fails_after:
                yield number, Answer(error="out of memory")
                return
            stats = {
                "num_spec_steps": 2,
                "num_committed_tokens": 5,
                "num_promoted_tokens": 0 if arm.rule == "strict" else 1,
            }
            yield (
                number,
                Answer(
                    self.text(arm.rule, item),
                    "stop",
                    3,
                    5,
                    rule=arm.rule,
                    policy="dcs",
                    stats=stats,
                ),
            )

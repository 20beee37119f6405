"""Easy functions that the task "functions" asks for: documentation, reference and test calls.

They are written for this benchmark; none is a question of the training corpus. Order matters: items
are numbered by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Exercise:
    """A reference with the argument tuples that it and an answer are tried on."""

    reference: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], ...]


class Bank:
    """Collects exercises as they are defined."""

    def __init__(self) -> None:
        self.exercises: list[Exercise] = []

    def on(self, *arguments: Any) -> Callable[[F], F]:
        """Register a function; each argument is a tuple of arguments, or a lone argument."""
        calls = tuple(each if isinstance(each, tuple) else (each,) for each in arguments)

        def register(function: F) -> F:
            self.exercises.append(Exercise(function, calls))
            return function

        return register


def exercises() -> list[Exercise]:
    """All exercises, in their order."""
    from adaptivespec.eval.tasks.bank import collections, numbers, texts

    return [*numbers.BANK.exercises, *texts.BANK.exercises, *collections.BANK.exercises]

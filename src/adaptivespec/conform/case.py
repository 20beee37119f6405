"""What a case is: one question to a server, and what its answer has to be.

A case is a function of a `Subject`. It returns None or a remark when the server passes, and raises
`Failed`, `Refused` or `NotApplicable` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptivespec.conform.answer import Answer, Request
    from adaptivespec.conform.subject import Subject

__all__ = ["Case", "Failed", "NotApplicable", "Outcome", "Refused", "Verdict", "case", "require"]

LONGEST = 240


class Verdict(StrEnum):
    """How a case ended."""

    passed = "pass"
    failed = "fail"
    refused = "refused"
    not_applicable = "n/a"
    error = "error"


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        id: "group.name".
        title: what has to hold, in a line.
        finds: the kind of fault that it is there to find.
        seen: where that fault was reported; empty where a rule of the interface stands behind it.
        needs: what the server must offer: "logprobs", "completions".
        ask: the function.
    """

    id: str
    title: str
    finds: str
    seen: tuple[str, ...]
    needs: tuple[str, ...]
    ask: Callable[[Subject], str | None] = field(repr=False)

    @property
    def group(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]


@dataclass(frozen=True)
class Outcome:
    """How one case ended. `curl` repeats the request that shows a failure."""

    case: Case
    verdict: Verdict
    detail: str = ""
    sent: str = ""
    came: str = ""
    required: str = ""
    curl: str = ""
    seconds: float = 0.0


class Failed(Exception):
    """The server does not do what is required."""

    def __init__(self, required: str, came: str, request: Request | None = None) -> None:
        self.required, self.came, self.request = required, came, request
        super().__init__(f"required: {required}; came: {came}")


class Refused(Exception):
    """The server says that it does not do this, and names the parameter: honest."""

    def __init__(self, parameter: str, message: str) -> None:
        self.parameter = parameter
        super().__init__(f"{parameter}: {message}")


class NotApplicable(Exception):
    """The case cannot be asked of this server or model; the text says why."""


REGISTRY: list[Case] = []


def case(
    id: str, title: str, *, finds: str, seen: tuple[str, ...] = (), needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Subject], str | None]], Callable[[Subject], str | None]]:
    """Register a function as a case."""

    def register(function: Callable[[Subject], str | None]) -> Callable[[Subject], str | None]:
        REGISTRY.append(Case(id, title, finds, seen, needs, function))
        return function

    return register


def require(ok: object, required: str, came: object, answer: Answer | None = None) -> None:
    """Raise Failed unless `ok`."""
    if not ok:
        raise Failed(required, shown(came), answer.request if answer is not None else None)


def shown(value: object, longest: int = LONGEST) -> str:
    """A value in one line of bounded length."""
    text = value if isinstance(value, str) else repr(value)
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."

"""Several calls at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import Any, TypeVar

__all__ = ["together"]

T = TypeVar("T")


def together(calls: Sequence[Callable[[], T]], width: int) -> list[T]:
    """Call all, at most `width` at once; the first error, in their order, is raised.

    Ctrl-C does not wait for calls under way: their threads are left to themselves.
    """
    found: list[Any] = [None] * len(calls)
    left = iter(enumerate(calls))
    taking = Lock()

    def work() -> None:
        while True:
            with taking:
                number, call = next(left, (-1, None))
            if call is None:
                return
            try:
                found[number] = call()
            except Exception as error:  # raised below, in the caller's thread
                found[number] = error

    threads = [Thread(target=work, daemon=True) for _ in range(min(width, len(calls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in found:
        if isinstance(result, Exception):
            raise result
    return found

"""Plays a running generation: shows its text as it comes, and lets Ctrl-C end it early."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptivespec.core.trace import StepTrace
    from adaptivespec.engine import GenerationResult, Stream, TokenInfo

__all__ = ["Played", "play"]


@dataclass(frozen=True)
class Played:
    """How a generation went. ``result`` is None when it was interrupted before its first step."""

    result: GenerationResult | None
    first_token_s: float | None
    interrupted: bool


def play(
    stream: Stream,
    show: Callable[[str, Sequence[TokenInfo]], None],
    on_step: Callable[[StepTrace], None] | None = None,
) -> Played:
    """Consume the stream. The first Ctrl-C ends it after the current step, with its result kept.

    Errors of ``show`` (a closed pipe, say) end the generation and are passed on.
    """
    start, first, shown = time.perf_counter(), None, ""
    interrupted = False
    try:
        with _interrupts() as requested:
            for chunk in stream:
                requested.patient = True
                if first is None:
                    first = time.perf_counter() - start
                if chunk.text:
                    shown += chunk.text
                    show(chunk.text, chunk.tokens)
                if on_step is not None and chunk.step is not None:
                    on_step(chunk.step)
                if requested.set:
                    interrupted = True
                    break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        stream.close()
    result = stream.result
    if result is not None and result.text.startswith(shown) and result.text != shown:
        show(result.text[len(shown) :], ())
    return Played(result=result, first_token_s=first, interrupted=interrupted)


@dataclass
class _Request:
    """Whether Ctrl-C was pressed; ``patient`` once a step can be waited for."""

    set: bool = False
    patient: bool = False


@contextmanager
def _interrupts() -> Iterator[_Request]:
    """Ctrl-C sets the request; one before the first chunk, or a second one, raises at once."""
    request = _Request()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: Any) -> None:
        if request.set or not request.patient:
            raise KeyboardInterrupt
        request.set = True

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, previous)

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
    """How a generation went.

    Attributes:
        result: what was generated, if only a part.
        first_token_s: seconds from the start to the first chunk; None when there was none.
        num_drafted: candidates that the drafter scored in all steps.
        interrupted: whether Ctrl-C ended it.
    """

    result: GenerationResult
    first_token_s: float | None
    num_drafted: int
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
    drafted, interrupted = 0, False
    try:
        with _interrupts() as requested:
            for chunk in stream:
                requested.patient = True
                if first is None:
                    first = time.perf_counter() - start
                if chunk.text:
                    shown += chunk.text
                    show(chunk.text, chunk.tokens)
                if chunk.step is not None:
                    drafted += chunk.step.num_drafted
                    if on_step is not None:
                        on_step(chunk.step)
                if requested.set:
                    interrupted = True
                    break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        stream.close()
    result = stream.result
    if result.text.startswith(shown) and result.text != shown:
        show(result.text[len(shown) :], ())
    return Played(result, first, drafted, interrupted)


@dataclass
class _Request:
    """Whether Ctrl-C was pressed; ``patient`` once a step can be waited for."""

    set: bool = False
    patient: bool = False


@contextmanager
def _interrupts() -> Iterator[_Request]:
    """Ctrl-C sets the request; one before the first chunk, or a second one, raises at once.

    Where the signal is ignored (a job in the background of a script), it stays so.
    """
    request = _Request()
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
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

"""From exceptions to exit codes: 2 for what the user can put right, 130 for Ctrl-C, 141 for a
closed pipe, 1 for anything else. A traceback is shown with --debug (or ADAPTIVESPEC_DEBUG) only.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from adaptivespec.cli import display

__all__ = ["BROKEN_PIPE", "INTERRUPTED", "USER_ERROR", "guarded", "report"]

USER_ERROR = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its exceptions turned into one line on stderr and an exit code."""

    @functools.wraps(command)
    def run(**values: Any) -> None:
        interrupted: list[int] = []
        try:
            with _noting_interrupts(interrupted), _drawing_warnings(values.get("quiet", False)):
                command(**values)
                sys.stdout.flush()
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _silence_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except Exception as error:
            if interrupted:  # a library turned Ctrl-C into an error of its own
                raise typer.Exit(INTERRUPTED) from None
            if values.get("debug"):
                raise
            raise typer.Exit(report(error)) from None

    return run


def report(error: Exception) -> int:
    """Draw an error as one line; return the exit code that it stands for."""
    from adaptivespec.core.errors import AdaptiveSpecError

    if isinstance(error, AdaptiveSpecError):
        display.error(str(error))
        return USER_ERROR
    if isinstance(error, OSError):
        display.error(str(error))
        return 1
    kind = type(error).__name__
    display.error(f"internal error, {kind}: {error}. Run again with --debug for the traceback")
    return 1


@contextmanager
def _drawing_warnings(quiet: bool) -> Iterator[None]:
    """Warnings of this package are notices, which --quiet leaves out; others are shown as ever."""
    from adaptivespec.core.errors import FallbackWarning

    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, FallbackWarning):
                others(message, category, *where)
            elif not quiet:
                display.note(str(message))

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _noting_interrupts(noted: list[int]) -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt as ever, and is noted."""

    def handle(number: int, frame: Any) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _silence_output() -> None:
    """Point stdout and stderr at the null device, so that nothing complains at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null, stream.fileno())
        except (OSError, ValueError):  # not a real file, or closed already
            continue

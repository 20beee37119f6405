"""Are two mathematical answers equal? math-verify, in a process of its own that can be killed.

math-verify bounds its time by signals, which fail off the main thread and score a right answer as
wrong. So its limits are off, and a worker process, one for each process that grades, is killed
when it takes too long; verdicts are then the same from every thread.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec

from adaptivespec.eval.errors import DataError

__all__ = ["LIMIT_S", "Verdict", "compare"]

LIMIT_S = 5.0
"""Seconds that one answer may take; far more than any that is meant in earnest."""

_START_S = 120.0
_WORKER = "adaptivespec.eval.grading.maths_worker"


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right; `parsed` is False when none was found or the time was up."""

    correct: bool
    answer: str
    parsed: bool


UNPARSED = Verdict(False, "", False)


class _Worker:
    """A worker process; its replies are read by a thread, so that waiting for one can end."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self.owner = os.getpid()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        if self.reply(_START_S) is None:
            self.kill()
            raise DataError(
                "the grader of mathematics does not start",
                field="math-verify",
                remedy="Try `python -c 'import math_verify'` to see why",
            )

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, request: str, limit_s: float) -> str | None:
        """The reply to a line, or None when the worker died or the time was up."""
        assert self.process.stdin is not None  # noqa: S101
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self.reply(limit_s)

    def reply(self, limit_s: float) -> str | None:
        try:
            return self._lines.get(timeout=limit_s) or None
        except queue.Empty:
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    @property
    def usable(self) -> bool:
        """Whether it lives and belongs to this process, not to one that this was forked from."""
        return self.owner == os.getpid() and self.process.poll() is None


_lock = threading.Lock()
_worker: _Worker | None = None


def compare(gold: str, text: str, limit_s: float = LIMIT_S) -> Verdict:
    """Compare the final answer within `text` with `gold`.

    Args:
        gold: LaTeX without dollars, as in MATH ("\\frac{1}{2}"), or a plain expression.
        text: an answer; what is boxed counts first, else the last expression.
        limit_s: seconds until the worker is killed and the answer is not parsed.

    Raises:
        DataError: math-verify is not installed or does not start.
    """
    global _worker
    request = json.dumps({"gold": gold, "text": text})
    with _lock:
        if _worker is None or not _worker.usable:
            _need_math_verify()
            _worker = _Worker()
        reply = _worker.ask(request, limit_s)
        if reply is None:
            _worker.kill()
            _worker = None
            return UNPARSED
    said = json.loads(reply)
    if not said["answer"]:
        return UNPARSED
    return Verdict(said["correct"], said["answer"], True)


def _need_math_verify() -> None:
    if find_spec("math_verify") is None:
        raise DataError(
            "grading mathematics needs math-verify",
            field="math500",
            remedy="Install it with `pip install 'adaptivespec[eval]'`",
        )


@atexit.register
def close() -> None:
    """End the worker of this process, if there is one."""
    global _worker
    with _lock:
        if _worker is not None and _worker.owner == os.getpid():
            _worker.kill()
        _worker = None

"""Runs Python that a model wrote, in a process that can compute and read, and nothing else.

Each run is a process of its own, with an empty environment, an empty working folder that is thrown
away, nothing to read on standard input, and the standard library alone. It may not write files,
open sockets, start processes or threads, or signal others (``seccomp.py``; where the kernel has no
seccomp, an audit hook of Python's does what it can, and ``protections`` says so). Time and memory
are bounded by the kernel and by us.

A run counts only when its report arrives: it carries a nonce and is sent after the tests ran, so
that leaving early, by whatever way, is a failure. The filter guards the machine against what models
write in error, and the score against what they write in vain; code that was made to read the
child's own memory could forge a report.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from adaptivespec.eval.grading.seccomp import filter_program

__all__ = ["Limits", "Outcome", "Run", "protections", "run_python"]

Outcome = Literal["passed", "failed", "timeout", "error"]

_CHILD = Path(__file__).with_name("sandbox_child.py")
_ISOLATED = ("-s", "-S", "-P", "-B", "-X", "utf8")  # -I would ignore the hash seed
_REPORT_BYTES = 4 << 20
_POSIX = os.name == "posix"


@dataclass(frozen=True)
class Limits:
    """What a run may use.

    Attributes:
        cpu_s: seconds of computing, the same on a busy machine as on an idle one.
        wall_s: seconds until it is killed whatever it does, its start included.
        memory_bytes: of address space.
        files: open at once.
    """

    cpu_s: int = 3
    wall_s: float = 15.0
    memory_bytes: int = 1 << 30
    files: int = 64

    def rlimits(self) -> dict[str, int]:
        """The limits that the kernel holds, by their names in `resource`."""
        return {
            "RLIMIT_CPU": self.cpu_s,
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_NOFILE": self.files,
            "RLIMIT_NPROC": 0,
            "RLIMIT_FSIZE": _REPORT_BYTES,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True)
class Run:
    """What came of a run.

    Attributes:
        outcome: "passed" when the code ran to its end without an error; "failed"; "timeout";
            "error" when the sandbox itself could not be set up,
            which says nothing about the code.
        results: repr of the value of each call, "!" and the type of error where it raised one.
        message: the last line of the exception, or how the process ended. Empty when passed.
        seconds: wall time.
        in_force: what held the code.
    """

    outcome: Outcome
    results: tuple[str, ...] = ()
    message: str = ""
    seconds: float = 0.0
    in_force: tuple[str, ...] = ()


def run_python(source: str, calls: Sequence[str] = (), limits: Limits = Limits()) -> Run:
    """Run `source`, then evaluate the expressions `calls` among its names.

    Args:
        source: a module's text; nothing but the standard library can be imported.
        calls: expressions such as "add(1, 2)"; an error in one does not stop the others.
        limits: of time, memory and files.

    Never raises on what the code does. Safe to call from any thread.
    """
    nonce = secrets.token_hex(16)
    program = filter_program()
    job = {
        "nonce": nonce,
        "source": source.encode("utf-8", "replace").decode("utf-8"),
        "calls": list(calls),
        "rlimits": limits.rlimits(),
        "filter": program.hex() if program else None,
    }
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as report,
    ):
        given.write(json.dumps(job).encode())
        given.seek(0)
        try:
            code = _run_child(folder, given, report, limits.wall_s)
        except OSError as error:
            return Run("error", message=f"cannot start the sandbox: {error}")
        report.seek(0)
        lines = report.read(2 * _REPORT_BYTES).decode("utf-8", "replace").splitlines()
    return _judge(lines, nonce, code, time.monotonic() - started)


def _run_child(folder: str, given: Any, report: Any, wall_s: float) -> int | None:
    """The exit status of the child, or None when it had to be killed for its time."""
    # Sets in the same order every time; nothing else of the environment is handed on.
    environment = {"PYTHONHASHSEED": "0"}
    if not _POSIX:
        environment["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, *_ISOLATED, str(_CHILD)],
        stdin=given,
        stdout=report,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
        start_new_session=_POSIX,
    )
    try:
        return process.wait(wall_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started."""
    if _POSIX:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
        process.wait()


def _judge(lines: list[str], nonce: str, code: int | None, seconds: float) -> Run:
    said = [line.removeprefix(nonce + " ") for line in lines if line.startswith(nonce + " ")]
    if "ready" not in said:
        return Run("error", message=f"the sandbox did not start (status {code})", seconds=seconds)
    if said and said[-1] != "ready":
        report = json.loads(said[-1])
        error = report["error"]
        return Run(
            "passed" if error is None else "failed",
            tuple(report["results"]),
            error or "",
            seconds,
            tuple(report["in_force"]),
        )
    if code is None:
        return Run("timeout", message="the time is up", seconds=seconds)
    if _POSIX and code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Run("timeout", message="the processor time is up", seconds=seconds)
    return Run("failed", message=f"ended early with status {code}", seconds=seconds)


@cache
def protections() -> tuple[str, ...]:
    """What holds model code on this machine: limits, and "seccomp" or "audit hook"."""
    run = run_python("")
    return run.in_force if run.outcome == "passed" else ("none: " + run.message,)

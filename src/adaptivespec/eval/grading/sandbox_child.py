"""The sandboxed side: give up rights, run the code, report. Run by path, without site packages.

Standard input holds the job, standard output takes the report:
    {"nonce", "source", "calls", "rlimits": {name: value}, "filter": hex or null}
    nonce + " ready"               before the code runs, then
    nonce + " " + JSON             {"error": last line or null, "results": [repr or "!Type"],
                                    "in_force": [...]} when it ran to its end.
Nothing of this package is imported here.
"""

from __future__ import annotations

import io
import json
import os
import sys
import types
from typing import Any

MAX_PRINTED = 1 << 20
MAX_REPR = 4000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that are denied where there is no seccomp; a dot at the end stands for a whole kind.
_EVENTS = (
    "os.fork os.forkpty os.exec os.posix_spawn os.spawn os.system os.kill os.killpg os.remove "
    "os.rename os.rmdir os.mkdir os.chmod os.chown os.chflags os.truncate os.link os.symlink "
    "os.utime os.setxattr os.removexattr os.putenv os.startfile shutil. socket. subprocess. "
    "ctypes. signal.pthread_kill _thread.start_new_thread _thread.start_joinable_thread "
    "resource.setrlimit resource.prlimit pty.spawn mmap.__new__ winreg. ftplib. smtplib. urllib."
)


class _Printed(io.TextIOBase):
    """Takes what is printed, keeps nothing, and fails when it is too much."""

    def __init__(self) -> None:
        self.left = MAX_PRINTED

    def write(self, text: str) -> int:
        self.left -= len(text)
        if self.left < 0:
            raise OSError("too much output")
        return len(text)

    def writable(self) -> bool:
        return True


def _limit(wanted: dict[str, int]) -> list[str]:
    """Set resource limits; says which are in force."""
    try:
        import resource
    except ImportError:
        return []
    in_force = []
    for name, value in wanted.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        try:
            # The hard limit on time is a second later: a handler of SIGXCPU must not outlive it.
            hard = value + 1 if name == "RLIMIT_CPU" else value
            resource.setrlimit(number, (value, hard))
        except (ValueError, OSError):
            continue
        in_force.append(name)
    return in_force


def _filter(program: bytes) -> bool:
    """Install a seccomp filter; False where the kernel or the C library does not let us."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        prctl = libc.prctl
    except (ImportError, OSError, AttributeError):
        return False

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    die_with_parent, no_new_privileges, set_seccomp, by_filter, sigkill = 1, 38, 22, 2, 9
    zero = ctypes.c_ulong(0)
    prctl(die_with_parent, ctypes.c_ulong(sigkill), zero, zero, zero)
    if prctl(no_new_privileges, ctypes.c_ulong(1), zero, zero, zero) != 0:
        return False
    given = Program(len(program) // 8, program)
    return bool(prctl(set_seccomp, ctypes.c_ulong(by_filter), ctypes.byref(given), zero, zero) == 0)


def _audit() -> None:
    """Deny by Python's own audit events. Code in C is not held by this."""
    names = frozenset(name for name in _EVENTS.split() if not name.endswith("."))
    kinds = tuple(name for name in _EVENTS.split() if name.endswith("."))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and bool(int(arguments[2] or 0) & _WRITING)
        if writes or event in names or event.startswith(kinds):
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(hook)


def _last_line(error: BaseException) -> str:
    name = type(error).__name__
    try:
        lines = str(error).strip().splitlines()
    except BaseException:
        lines = []
    return f"{name}: {lines[-1][:500]}" if lines else name


def _run(source: str, calls: list[str]) -> dict[str, Any]:
    """Run the code, then evaluate each call in its names; the first error of the code ends it."""
    text_of, evaluate, last_line = repr, eval, _last_line
    if "random" in source:  # the same draws every time
        import random

        random.seed(0)
    module = types.ModuleType("answer")  # not "__main__": what is guarded by that does not run
    sys.modules["answer"] = module
    names = module.__dict__
    results: list[str] = []
    try:
        exec(compile(source, "answer.py", "exec"), names)  # noqa: S102
    except BaseException as error:
        return {"error": last_line(error), "results": results}
    for call in calls:
        try:
            results.append(text_of(evaluate(call, names))[:MAX_REPR])
        except BaseException as error:
            results.append("!" + type(error).__name__)
    return {"error": None, "results": results}


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    report_to = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    os.environ.clear()
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout = sys.stderr = _Printed()
    nonce, dumps, write, leave = job["nonce"], json.dumps, os.write, os._exit
    in_force = _limit(job["rlimits"])
    if job["filter"] and _filter(bytes.fromhex(job["filter"])):
        in_force.append("seccomp")
    else:
        _audit()
        in_force.append("audit hook")
    write(report_to, f"{nonce} ready\n".encode())
    report = _run(job["source"], job["calls"])
    report["in_force"] = in_force
    write(report_to, f"{nonce} {dumps(report)}\n".encode())
    leave(0)


if __name__ == "__main__":
    main()

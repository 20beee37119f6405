"""The sandbox: what models write fails, and fails within its limits; the runner goes on."""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from adaptivespec.eval.grading import sandbox
from adaptivespec.eval.grading.sandbox import Limits, protections, run_python
from adaptivespec.eval.grading.seccomp import denied_calls, filter_program

QUICK = Limits(cpu_s=1, wall_s=3.0)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
filtered = pytest.mark.skipif(filter_program() is None, reason="no filter for this machine")

# What a kernel filter and Python's audit events both have to stop.
MISDEEDS = {
    "os._exit": "import os; os._exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "quit by an exception": "raise SystemExit",
    "input": "input()",
    "stdin": "import sys\nif not sys.stdin.read(): raise EOFError",
    "fork": "import os; os.fork()",
    "fork bomb": "import os\nwhile True: os.fork()",
    "threads": "import threading\nwhile True: threading.Thread(target=input).start()",
    "subprocess": "import subprocess; subprocess.run(['true'])",
    "shell": "import os\nif os.system('true'): raise OSError",
    "exec": "import os, sys; os.execv(sys.executable, ['python', '-c', ''])",
    "file written": "open('answer.txt', 'w').write('x')",
    "file appended": "open({victim!r}, 'a').write('x')",
    "file deleted": "import os; os.remove({victim!r})",
    "folder deleted": "import shutil; shutil.rmtree({folder!r})",
    "renamed": "import os; os.rename({victim!r}, {victim!r} + '2')",
    "folder made": "import os; os.mkdir('x')",
    "rights": "import os; os.chmod({victim!r}, 0o777)",
    "link": "import os; os.symlink('/', 'x')",
    "cut": "import os; os.truncate({victim!r}, 0)",
    "socket": "import socket; socket.socket()",
    "web": "import urllib.request as r; r.urlopen('http://127.0.0.1:9/')",
    "signal to the parent": "import os, signal; os.kill(os.getppid(), signal.SIGTERM)",
    "signal to the group": "import os; os.killpg(0, 15)",
    "output": "print('x' * 10**8)",
    "endless output": "while True: print('x' * 1000)",
    "syntax": "def",
    "error": "assert False, 'no'",
    "recursion": "def f(): f()\nf()",
    "crash": "import os; os.abort()",
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "precious.txt"
    path.write_text("here")
    return path


@linux
@pytest.mark.parametrize("name", MISDEEDS)
def test_misdeeds_fail_and_harm_nothing(name: str, victim: Path) -> None:
    source = MISDEEDS[name].format(victim=str(victim), folder=str(victim.parent))
    before = set(victim.parent.iterdir())
    started = time.monotonic()
    run = run_python(source, limits=QUICK)
    assert run.outcome in ("failed", "timeout"), run
    assert run.message
    assert time.monotonic() - started < QUICK.wall_s + 1
    assert victim.read_text() == "here"
    assert set(victim.parent.iterdir()) == before


@linux
@pytest.mark.parametrize(
    "name",
    [
        "os._exit",
        "input",
        "fork",
        "shell",
        "exec",
        "file appended",
        "file deleted",
        "renamed",
        "rights",
        "link",
        "cut",
        "socket",
        "signal to the parent",
        "output",
    ],
)
def test_misdeeds_fail_without_seccomp(
    name: str, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "filter_program", lambda: None)
    source = MISDEEDS[name].format(victim=str(victim), folder=str(victim.parent))
    run = run_python(source, limits=QUICK)
    assert run.outcome in ("failed", "timeout"), run
    assert victim.read_text() == "here"
    assert "audit hook" in run_python("", limits=QUICK).in_force


@linux
def test_memory_is_bounded() -> None:
    run = run_python("x = bytearray(4 << 30)", limits=QUICK)
    assert (run.outcome, run.message) == ("failed", "MemoryError")


@linux
def test_endless_code_ends_with_its_processor_time() -> None:
    run = run_python("while True: pass", limits=Limits(cpu_s=1, wall_s=30))
    assert run.outcome == "timeout"
    assert "processor" in run.message


def test_sleep_ends_with_the_wall_time() -> None:
    started = time.monotonic()
    run = run_python("import time; time.sleep(60)", limits=Limits(wall_s=1.5))
    assert run.outcome == "timeout"
    assert time.monotonic() - started < 2.5


@linux
def test_ignoring_the_signal_of_the_time_limit_does_not_help() -> None:
    source = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert run_python(source, limits=Limits(cpu_s=1, wall_s=30)).outcome == "timeout"


def test_what_is_right_passes_with_its_results() -> None:
    source = "import math, re, json, collections\ndef half(x):\n    return x / 2\n"
    run = run_python(source, ["half(3)", "half('a')", "missing(1)", "exit(0)", "print('x')"])
    assert run.outcome == "passed"
    assert run.results == ("1.5", "!TypeError", "!NameError", "!NameError", "None")
    assert run.message == ""


def test_what_is_guarded_by_main_does_not_run() -> None:
    assert run_python("if __name__ == '__main__':\n    input()").outcome == "passed"


def test_a_forged_report_does_not_count() -> None:
    forged = """
        import os
        for fd in range(3, 20):
            try: os.write(fd, b'0' * 32 + b' {"error": null, "results": [], "in_force": []}\\n')
            except OSError: pass
        os._exit(0)
    """
    lines = [line[8:] for line in forged.splitlines()]
    assert run_python("\n".join(lines)).outcome == "failed"


def test_the_message_is_the_last_line_of_the_exception() -> None:
    assert run_python("raise ValueError('one\\ntwo')").message == "ValueError: two"
    assert run_python("int('x')").message.startswith("ValueError: invalid literal")


def test_environment_and_folder_are_empty() -> None:
    os.environ["SANDBOX_TEST_SECRET"] = "x"
    try:
        calls = ["'SANDBOX_TEST_SECRET' in os.environ", "os.listdir('.')", "len(os.environ)"]
        assert run_python("import os", calls).results == ("False", "[]", "0")
    finally:
        del os.environ["SANDBOX_TEST_SECRET"]


def test_the_same_code_gives_the_same_results() -> None:
    source = "import random\nwords = ['pear', 'fig', 'kiwi', 'plum', 'date']"
    runs = {run_python(source, ["list(set(words))", "random.random()"]).results for _ in range(4)}
    assert len(runs) == 1


def test_runs_from_threads() -> None:
    results: list[tuple[str, ...]] = []

    def work(n: int) -> None:
        results.append(run_python(f"n = {n}", ["n"]).results)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [("0",), ("1",), ("2",), ("3",)]


def test_odd_text_is_an_error_of_the_answer() -> None:
    for source in ("x = '\ud800'", "\x00", "(" * 5000, "é = 1"):
        assert run_python(source).outcome in ("passed", "failed")


def test_a_sandbox_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.sys, "executable", "/no/such/python")
    run = run_python("x = 1")
    assert run.outcome == "error"
    assert "cannot start" in run.message


@filtered
def test_protections_name_the_filter() -> None:
    assert {"RLIMIT_CPU", "seccomp"} <= set(protections())


def decide(program: bytes, number: int, audit: int, *arguments: int) -> int:
    """What a classic BPF program returns for a system call: a model of the kernel's machine."""
    data = struct.pack("<iIQ6Q", number, audit, 0, *(list(arguments) + [0] * 6)[:6])
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, value = 0, 0
    while True:
        operation, if_true, if_false, k = code[at]
        at += 1
        if operation == 0x06:
            return int(k)
        if operation == 0x20:
            value = struct.unpack_from("<I", data, k)[0]
        else:
            true = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[operation]
            at += if_true if true else if_false


ALLOW, DENY, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


@pytest.mark.parametrize(
    ("machine", "audit", "read", "openat"),
    [("x86_64", 0xC000003E, 0, 257), ("aarch64", 0xC00000B7, 63, 56)],
)
def test_the_filter_of_each_machine(machine: str, audit: int, read: int, openat: int) -> None:
    program = filter_program(machine)
    assert program is not None
    assert len(program) // 8 < 4096  # the kernel takes no more
    assert decide(program, read, audit) == ALLOW
    assert all(decide(program, number, audit) == DENY for number in denied_calls(machine))
    assert decide(program, 435, audit) == UNKNOWN  # clone3
    assert decide(program, openat, audit, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC | os.O_RDONLY):
        assert decide(program, openat, audit, 0, 0, flags) == DENY
    assert decide(program, read, 0x40000003) == 0x80000000  # another machine's call: killed


def test_machines_without_a_table_have_no_filter() -> None:
    assert filter_program("mips") is None

"""The command line as a process: Ctrl-C, closed pipes, a terminal. With a slow fake engine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pty = pytest.importorskip("pty", reason="needs a POSIX terminal")

TESTS = Path(__file__).resolve().parents[2]
PROGRAM = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from fakes.engine import FakeEngine
from adaptivespec.cli import main, options
options.create_engine = FakeEngine(text="word " * 400, delay=0.02)
main.main()
"""


def start(*arguments: str, **extra) -> subprocess.Popen:
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], **(settings | extra))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def interrupt_after_first_text(process: subprocess.Popen) -> tuple[str, str]:
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return (first + out).decode(), err.decode()


def test_ctrl_c_keeps_text_and_statistics():
    process = start("generate", "-p", "x", "--max-tokens", "400")
    out, err = interrupt_after_first_text(process)
    assert process.returncode == 130
    assert out.startswith("word")
    assert len(out) < 1000
    assert "accept length" in err
    assert "cancelled" in err
    assert "Traceback" not in err


def test_ctrl_c_with_json_and_trace(home):
    trace = home / "t.jsonl"
    process = start("generate", "-p", "x", "--max-tokens", "400", "--json", "--trace", str(trace))
    while not (trace.exists() and trace.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["finish_reason"] == "cancelled"
    assert all(json.loads(line) for line in trace.read_text().splitlines())
    assert b"Traceback" not in err


def test_a_closed_pipe_ends_quietly():
    process = start("generate", "-p", "x", "--max-tokens", "400")
    assert process.stdout.read(4) == b"word"
    process.stdout.close()
    assert process.wait(timeout=30) == 141
    err = process.stderr.read().decode()
    process.stderr.close()
    assert "Traceback" not in err
    assert "Broken" not in err
    assert "accept length" not in err


def read_until(terminal: int, *wanted: bytes) -> bytes:
    """Read until all of `wanted` have come, one behind the other."""
    seen, place = b"", 0
    for part in wanted:
        while (found := seen.find(part, place)) < 0:
            ready, _, _ = select.select([terminal], [], [], 30)
            assert ready, f"{part!r} did not come, only {seen!r}"
            seen += os.read(terminal, 4096)
        place = found + len(part)
    return seen


def test_chat_on_a_terminal(home):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    process = start(
        "chat", stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        read_until(ours, b">")
        os.write(ours, b"\x03")
        # A key pressed before the next prompt stands would meet the terminal's own line editing.
        read_until(ours, b"Ctrl-D", b">")
        os.write(ours, b"hello\r")
        read_until(ours, b"word word")
        process.send_signal(signal.SIGINT)
        read_until(ours, b"tokens/s", b">")
        os.write(ours, b"/rule paper\r")
        read_until(ours, b"lossless: no", b">")
        os.write(ours, b"\x04")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    history = list(home.rglob("chat_history"))
    assert "hello" in history[0].read_text()
    assert history[0].stat().st_mode & 0o077 == 0


def test_kinds_are_coloured_on_a_terminal_only():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    options = ("generate", "-p", "x", "--show-kinds", "--max-tokens", "3")
    process = start(*options, stdout=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.communicate(timeout=30)
    assert b"\x1b[32mword" in shown
    piped = start(*options)
    assert piped.communicate(timeout=30)[0] == b"word word word \n"


@pytest.mark.parametrize("swallowed", [False, True])
def test_ctrl_c_while_loading(home, swallowed):
    ready = home / "loading"
    wait = (
        "def load(**arguments):\n"
        f"    open({str(ready)!r}, 'w').close()\n"
        "    try:\n"
        "        import time; time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        f"        {'raise ImportError from None' if swallowed else 'raise'}\n"
    )
    program = PROGRAM.replace("main.main()", wait + "options.create_engine = load\nmain.main()")
    process = subprocess.Popen(
        [sys.executable, "-c", program, "generate", "-p", "x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not ready.exists():
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err

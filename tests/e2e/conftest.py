"""The installed command, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("adaptivespec"))
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cli() -> Cli:
    """cli("generate", "-p", "Hello") -> the finished process, its output as text."""

    def run(*arguments: str, **extra) -> subprocess.CompletedProcess[str]:
        settings = {"capture_output": True, "text": True, "timeout": 240, **extra}
        if "input" not in settings:
            settings["stdin"] = subprocess.DEVNULL
        return subprocess.run([COMMAND, *arguments], check=False, **settings)

    return run


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Like cli, but returns the running process, its pipes unbuffered."""

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    return run

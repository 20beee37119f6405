"""SGLang's HTTP server in processes of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.run import CPU_ARGUMENTS, PLACES, Run, RunFailed, end, environment, tail

READY_WITHIN = 300  # seconds
REQUEST_WITHIN = 120


@dataclass(frozen=True)
class Server:
    """A server that answers at `address`."""

    address: str

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=REQUEST_WITHIN) as response:  # noqa: S310
            return response.read().decode()

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """(status, answer); an error's answer, too."""
        request = urllib.request.Request(  # noqa: S310
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_WITHIN) as response:  # noqa: S310
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextmanager
def serving(run: Run, folder: Path) -> Iterator[Server]:
    """The server of a run's engine, once it is ready; its jobs are not asked. Ended on leaving.

    Raises RunFailed, its message with the end of the log, when it does not become ready.
    """
    folder.mkdir(parents=True)
    port, log = _free_port(), folder / "log.txt"
    with PLACES, log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *_flags(run.engine | {"port": port})],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(run.config) | run.environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            server = Server(f"http://127.0.0.1:{port}")
            deadline = time.monotonic() + READY_WITHIN
            while not _ready(server):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RunFailed(f"the server is not ready\n{tail(log.read_text())}")
                time.sleep(0.5)
            yield server
        finally:
            end(process)


def _ready(server: Server) -> bool:
    try:
        server.get("/health_generate")
    except OSError:
        return False
    return True


def _flags(arguments: dict[str, Any]) -> list[str]:
    """As a command line writes arguments of `sglang.Engine`."""
    flags = []
    for name, value in {**CPU_ARGUMENTS, **arguments}.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not False:
            flags += [flag, str(value)]
    return flags


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]

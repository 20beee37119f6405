"""Requests written by hand, for servers on loopback: what no client library would send."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fakes.scripted import ScriptedTarget, prefer
from fakes.serving import MODEL, Served, counting, following, serving

BODY = {"model": MODEL, "prompt": "a", "max_tokens": 8, "temperature": 0}
LONG = {**BODY, "max_tokens": 50_000}


def endless() -> Any:
    return counting(max_model_len=100_000)


class Gated(ScriptedTarget):
    """A target that makes a step only when it is let."""

    def __init__(self) -> None:
        super().__init__(lambda prefix: prefer(following(prefix[-1])), 1000)
        self.steps = threading.Semaphore(0)
        self.open = False

    def verify(self, *arguments: Any) -> Any:
        if not self.open:
            self.steps.acquire()
        return super().verify(*arguments)

    def release(self) -> None:
        self.open = True
        self.steps.release(100)


@contextmanager
def gated(**options: Any) -> Iterator[tuple[Served, Gated]]:
    target = Gated()
    with serving(counting(target=target), **options) as served:
        try:
            yield served, target
        finally:
            target.release()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for what other threads bring about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=20)


def head(path: str, *lines: str, method: str = "POST", host: str = "localhost") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


def post(body: dict[str, Any] | bytes, *lines: str, path: str = "/v1/completions") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = ["Content-Type: application/json", f"Content-Length: {len(content)}", *lines]
    return head(path, *headers) + content


def read_one(connection: socket.socket) -> bytes:
    """One response that has a length; the connection may go on."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    start, _, content = received.partition(b"\r\n\r\n")
    (length,) = re.findall(rb"(?im)^content-length: (\d+)", start)
    while len(content) < int(length):
        piece = connection.recv(65536)
        assert piece, received
        content += piece
    return start + b"\r\n\r\n" + content


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def answer(served: Served, request: bytes) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of a request after which the connection is closed."""
    with connect(served) as connection:
        first, _, rest = request.partition(b"\r\n")
        connection.sendall(first + b"\r\nConnection: close\r\n" + rest)
        start, _, content = read_all(connection).partition(b"\r\n\r\n")
    status, *lines = start.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, json.loads(content) if content else None


def error(served: Served, request: bytes) -> tuple[int, str]:
    status, _, body = answer(served, request)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    return status, body["error"]["code"]

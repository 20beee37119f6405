"""Requests that are too large: refused at once, and survived."""

from __future__ import annotations

import select
import socket

from adaptivespec.conform.answer import CHAT, Request
from adaptivespec.conform.case import Failed, case, require, shown
from adaptivespec.conform.prompts import SHORT
from adaptivespec.conform.subject import LONG_TOKENS, Subject

LARGE = 48 << 20  # bytes
PART = 1 << 16
NO_WAIT_S = 20.0
DEEP = 100_000
STOPS = 64
HUGE = 1_000_000


@case(
    "limits.body",
    "a body of 48 MB gives a 4xx, and no wait",
    finds="memory and time spent on bodies of any size",
)
def large_body(subject: Subject) -> str | None:
    link = subject.link
    request = Request(
        f"{link.url}/{CHAT}",
        keyed=link.key is not None,
        note=f"POST {CHAT} with a message of 48 MB",
        data=f"""@<(python3 -c 'import json; print(json.dumps({{"model": "x", "messages": """
        f"""[{{"role": "user", "content": "a" * {LARGE}}}]}}))')""",
    )
    start = b'{"model": "x", "messages": [{"role": "user", "content": "'
    end = b'"}]}'
    filling = LARGE - len(start) - len(end)
    with link.connect() as connection:
        connection.sendall(link.head(CHAT, LARGE) + start)
        sent_all = _send(connection, filling) and _send_last(connection, end)
        status = _status(connection, min(link.timeout, NO_WAIT_S), request)
    if status is None and not sent_all:
        return "the connection is closed before the body is read"
    if status is None or not 400 <= status < 500:
        raise Failed("a 4xx", f"status {status}" if status else "a closed connection", request)
    return None


@case(
    "limits.deep-json",
    "JSON a hundred thousand levels deep gives a 4xx",
    finds="a parser that runs out of stack",
)
def deep_json(subject: Subject) -> str | None:
    content = b"[" * DEEP + b"]" * DEEP
    data = f"""@<(python3 -c 'n = {DEEP}; print("[" * n + "]" * n)')"""
    answer = subject.link.post_bytes(CHAT, content, data)
    require(400 <= answer.status < 500, "a 4xx", answer.words, answer)
    return None


@case(
    "limits.many-stops",
    "of many stop strings the last one counts as well, or their number is refused",
    finds="strings beyond some number dropped in silence",
)
def many_stops(subject: Subject) -> str | None:
    long = subject.long()
    word = next((word for word in long.text.split()[3:] if long.text.count(word) == 1), "")
    stops = [f"@never {number}@" for number in range(STOPS)]
    answer = subject.ask(subject.prompt_of(long), max_tokens=LONG_TOKENS, stop=[*stops, word])
    expected = long.text[: long.text.index(word)]
    return subject.same(long, answer, expected, f"the text before the last stop string {word!r}")


@case(
    "limits.huge-n",
    "a million choices are refused",
    finds="memory and time spent on what nobody can want",
)
def huge_n(subject: Subject) -> str | None:
    body = subject.body(SHORT, max_tokens=1, n=HUGE, stream=True)
    with subject.link.open(CHAT, body) as stream:
        if stream.status == 200:
            raise Failed("a 4xx", "status 200", stream.request)
        answer = stream.whole()
    require(400 <= answer.status < 500, "a 4xx", answer.words, answer)
    return None


def _send(connection: socket.socket, length: int) -> bool:
    """Send so much filling, unless an answer comes first; False where it is not taken."""
    left = length
    while left:
        if select.select([connection], [], [], 0)[0]:
            return False
        if not _send_last(connection, b"a" * min(PART, left)):
            return False
        left -= min(PART, left)
    return True


def _send_last(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def _status(connection: socket.socket, timeout: float, request: Request) -> int | None:
    """The status of the answer; None where the connection was closed without one."""
    connection.settimeout(timeout)
    try:
        line = connection.recv(256)
    except TimeoutError as error:
        raise Failed("an answer", f"none in {timeout:g} s", request) from error
    except OSError:
        return None
    if not line:
        return None
    try:
        return int(line.split(None, 2)[1])
    except (IndexError, ValueError) as error:
        raise Failed("an HTTP status", shown(line), request) from error

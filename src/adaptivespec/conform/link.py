"""HTTP as the cases need it: requests, streams, broken bytes, clients that walk away."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from adaptivespec.conform.answer import Answer, Request
from adaptivespec.conform.case import Failed
from adaptivespec.core.errors import AdaptiveSpecError, ConfigError

__all__ = ["Link", "LinkError", "Stream"]

CONNECT_S = 5.0
LONGEST_WAIT_S = 5.0
TRIES = 5
DONE = "[DONE]"


class LinkError(AdaptiveSpecError):
    """The server cannot be asked at all."""


class Link:
    """Connections to one server. Safe to use from several threads.

    Args:
        base_url: such as "http://localhost:8000/v1"; "/v1" is added where there is no path.
        api_key: sent as a bearer token; None for servers without keys.
        timeout: seconds that one answer may take.

    Raises:
        ConfigError: `base_url` is no address, or httpx2 is not installed.
    """

    def __init__(self, base_url: str, api_key: str | None = None, timeout: float = 60.0) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise ConfigError(
                "httpx2, through which servers are asked, is not installed",
                field="conform",
                remedy="pip install 'adaptivespec[conform]'; or scripts/setup.sh conform",
            ) from error
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"{base_url!r} is no address of a server",
                field="base_url",
                remedy="Write it as http://HOST:PORT/v1",
            )
        path = parts.path.rstrip("/") or "/v1"
        self._parts = parts._replace(path=path, query="", fragment="")
        self.url = urlunsplit(self._parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.timeout = timeout
        self._httpx = httpx2
        self.key = api_key
        # A connection that the server closes for idleness just as it is used again would be an
        # error of ours: each request makes its own.
        self._headers = {"Connection": "close"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._client = httpx2.Client(
            headers=self._headers,
            timeout=httpx2.Timeout(timeout, connect=CONNECT_S),
        )

    def close(self) -> None:
        """Close all connections; requests under way end with an error."""
        self._client.close()

    def get(self, path: str, *, root: bool = False) -> Answer:
        """GET below the base address, or at the server's root."""
        url = self._root(path) if root else f"{self.url}/{path}"
        request = Request(url, keyed=self.key is not None, note=f"GET {url}")
        with self._errors(request):
            response = self._client.get(url)
        return _answer(request, response)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """POST a JSON body and read the whole answer; a full queue (429) is waited for."""
        request = self.request(path, body)
        for attempt in range(TRIES):
            with self._errors(request):
                response = self._client.post(request.url, json=dict(body))
            if response.status_code != 429 or attempt == TRIES - 1:
                break
            time.sleep(_retry_after(response.headers))
        return _answer(request, response)

    def post_root(self, path: str, body: Mapping[str, Any]) -> Answer:
        """POST a JSON body at the server's root."""
        request = Request(self._root(path), dict(body), self.key is not None)
        with self._errors(request):
            return _answer(request, self._client.post(request.url, json=dict(body)))

    def post_bytes(self, path: str, content: bytes, data: str = "") -> Answer:
        """POST bytes as they are, as JSON by their content type.

        Args:
            data: what curl would be given in bash; by default the bytes in quotes.
        """
        data = data or f"$'{_escaped(content)}'"
        request = Request(
            f"{self.url}/{path}", keyed=self.key is not None, note=f"POST {path} {data}", data=data
        )
        headers = {"Content-Type": "application/json"}
        with self._errors(request):
            response = self._client.post(request.url, content=content, headers=headers)
        return _answer(request, response)

    @contextmanager
    def open(self, path: str, body: Mapping[str, Any]) -> Iterator[Stream]:
        """POST, and leave the reading to the caller; leaving the context drops the connection."""
        request = self.request(path, body)
        for attempt in range(TRIES):
            with (
                self._errors(request),
                self._client.stream("POST", request.url, json=dict(body)) as response,
            ):
                if response.status_code != 429 or attempt == TRIES - 1:
                    yield Stream(request, response, time.monotonic() + self.timeout)
                    return
                wait = _retry_after(response.headers)
            time.sleep(wait)

    def stream(self, path: str, body: Mapping[str, Any]) -> Answer:
        """POST and read a stream to its end."""
        with self.open(path, body) as stream:
            return stream.whole()

    def request(self, path: str, body: Mapping[str, Any]) -> Request:
        """The request that `post` and `stream` send."""
        return Request(f"{self.url}/{path}", dict(body), self.key is not None)

    def connect(self, buffer: int | None = None) -> socket.socket:
        """A bare connection; `buffer` bounds what the system reads ahead for it."""
        port = self._parts.port or (443 if self._parts.scheme == "https" else 80)
        plain = socket.socket(self._family())
        if buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        plain.settimeout(self.timeout)
        try:
            plain.connect((self._parts.hostname, port))
        except OSError as error:
            plain.close()
            raise Failed("a connection", str(error)) from error
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return context.wrap_socket(plain, server_hostname=self._parts.hostname)
        return plain

    def head(self, path: str, length: int) -> bytes:
        """The head of a POST with a JSON body of so many bytes, for a bare connection."""
        lines = [
            f"POST {self._parts.path}/{path} HTTP/1.1",
            f"Host: {self._parts.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
            *(f"{name}: {value}" for name, value in self._headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _root(self, path: str) -> str:
        above = self._parts.path.rpartition("/")[0]
        netloc = self._parts.netloc.rpartition("@")[2]
        return urlunsplit(self._parts._replace(netloc=netloc, path=f"{above}/{path}"))

    def _family(self) -> socket.AddressFamily:
        found = socket.getaddrinfo(self._parts.hostname, None, type=socket.SOCK_STREAM)
        families = [entry[0] for entry in found]
        return socket.AF_INET if socket.AF_INET in families else families[0]

    @contextmanager
    def _errors(self, request: Request) -> Iterator[None]:
        """What goes wrong on the way is a failure of the server, told in words."""
        httpx = self._httpx
        try:
            yield
        except httpx.ConnectError as error:
            raise Failed("a connection", f"none: {error}", request) from error
        except httpx.TimeoutException as error:
            raise Failed("an answer", f"none in {self.timeout:g} s", request) from error
        except httpx.TransportError as error:
            raise Failed("a whole answer", f"connection lost: {error}", request) from error


class Stream:
    """A response whose body has not been read yet."""

    def __init__(self, request: Request, response: Any, deadline: float) -> None:
        self.request = request
        self._response = response
        self._deadline = deadline

    @property
    def status(self) -> int:
        return int(self._response.status_code)

    @property
    def content_type(self) -> str:
        return str(self._response.headers.get("content-type", ""))

    def data(self) -> Iterator[str]:
        """The data of server-sent events as they come."""
        waiting = b""
        for piece in self._response.iter_bytes():
            if time.monotonic() > self._deadline:
                raise Failed("an end of the stream", "none within the timeout", self.request)
            *lines, waiting = (waiting + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield self._decoded(line[5:].strip())

    def first(self) -> None:
        """Wait for the first event with text, and read no further."""
        for data in self.data():
            if data == DONE or _has_text(json.loads(data)):
                return

    def whole(self) -> Answer:
        """Read to the end."""
        if self.status != 200:
            self._response.read()
            return _answer(self.request, self._response)
        answer = Answer(self.request, self.status, self.content_type)
        for data in self.data():
            if data == DONE:
                answer.done += 1
                continue
            try:
                answer.events.append(json.loads(data))
            except ValueError as error:
                raise Failed("events of JSON", data, self.request) from error
        if not answer.events:
            raise Failed("a stream of events", self.content_type or "nothing", self.request)
        return answer

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Failed("events in UTF-8", repr(data), self.request) from error


def _has_text(event: Any) -> bool:
    choices = event.get("choices") or () if isinstance(event, dict) else ()
    return any((item.get("delta") or item).get(key) for item in choices for key in _TEXT)


_TEXT = ("content", "text", "reasoning_content", "reasoning")


def _answer(request: Request, response: Any) -> Answer:
    content_type = str(response.headers.get("content-type", ""))
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    return Answer(request, int(response.status_code), content_type, response.content, body)


def _escaped(content: bytes) -> str:
    """Bytes as bash writes them between $' and '."""
    return repr(content)[2:-1].replace("\\'", "'").replace("'", "\\'")


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return min(float(headers.get("retry-after", 1)), LONGEST_WAIT_S)
    except ValueError:
        return 1.0

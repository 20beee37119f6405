"""Serves the page under a strict content policy, beside a chat API whose streams tests script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from adaptivespec.serve.page import render
from fakes import page_story

Line = dict[str, Any]
NONCE = "d29ybGQ"
POLICY = (
    f"default-src 'none'; script-src 'nonce-{NONCE}'; style-src 'nonce-{NONCE}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)
BOOT: Line = {
    "model": "tiny",
    "max_model_len": 4096,
    "rule": "margin",
    "policy": "dcs",
    "kappa": 0.2,
    "temperature": 0,
    "lossless": False,
    "needs_key": False,
    "rules": [
        {
            "name": "strict",
            "summary": "The own choice.",
            "lossless": True,
            "has_kappa": False,
        },
        {
            "name": "margin",
            "summary": "Within kappa of the best.",
            "lossless": False,
            "has_kappa": True,
        },
    ],
    "policies": [
        {"name": "dcs", "summary": "Drafts while it is confident."},
        {"name": "static", "summary": "One shape for all steps."},
    ],
}


@dataclass
class Script:
    """How the server behaves; tests change it between requests.

    Attributes:
        answers: steps of the answer by the rule asked for; "" for any other.
        status, error, headers: of a refusal; status 200 streams.
        piece: bytes of the stream that are written at a time; 0 for whole events.
        newline: of the events' lines.
        cut_after: events after which the connection is lost; None for never.
        hold_after: events after which the stream waits for `go`.
        content: the answer as it is written, where the tokens' texts are not all of it.
        error_event: sent in place of the end.
        key: that requests have to bring.
        bodies: of all requests so far.
        gone: set when a client left while its answer was held.
    """

    boot: Mapping[str, Any] = field(default_factory=lambda: BOOT)
    answers: dict[str, list[Line]] = field(default_factory=lambda: {"": page_story.steps()})
    status: int = 200
    error: Line = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    piece: int = 0
    newline: str = "\n"
    cut_after: int | None = None
    hold_after: int | None = None
    content: str = ""
    error_event: Line | None = None
    key: str = ""
    bodies: list[Line] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The address of a server that follows `script` until the context is left."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), _handler(script))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        script.go.set()
        server.shutdown()
        thread.join()
        server.server_close()


def events(steps: list[Line], lossless: bool, written: str = "") -> list[Line]:
    """The chunks of a stream, as the server sends them; `written` all at once, where given."""

    def chunk(**choice: Any) -> Line:
        choice = {"index": 0, "delta": {}, "finish_reason": None, **choice}
        return {"object": "chat.completion.chunk", "lossless": lossless, "choices": [choice]}

    texts: dict[str, str] = {}
    for step in steps:
        texts |= step["texts"]
    root = steps[0]["nodes"]["token"][0]
    made = [
        chunk(delta={"role": "assistant"}, trace={"header": page_story.header(lossless=lossless)}),
        chunk(
            delta={"content": "" if written else texts[str(root)]},
            tokens=[_token(root, texts[str(root)], "bonus", 1.0)],
        ),
    ]
    for step in steps:
        run = zip(step["tokens"], step["kinds"], step["margins"], strict=True)
        tokens = [_token(token, texts[str(token)], kind, margin) for token, kind, margin in run]
        content = "".join(token["text"] for token in tokens if token["id"] != page_story.END)
        delta = {"content": "" if written else content}
        made.append(chunk(delta=delta, tokens=tokens, trace={"steps": [step]}))
    made.append(chunk(delta={"content": written}, finish_reason="stop"))
    made.append({"lossless": lossless, "choices": [], "usage": {"completion_tokens": 8}})
    return made


def _token(token: int, text: str, kind: str, margin: float) -> Line:
    return {"id": token, "text": text, "kind": kind, "margin": margin, "logprob": -0.5}


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *parts: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path != "/":
                self._send(404, b"", {})
                return
            page = render(script.boot, nonce=NONCE).encode()
            kind = "text/html; charset=utf-8"
            self._send(200, page, {"Content-Type": kind, "Content-Security-Policy": POLICY})

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            script.bodies.append(body)
            wrong = script.key and self.headers["Authorization"] != f"Bearer {script.key}"
            status = 401 if wrong else script.status
            if status != 200:
                error = {"message": "wrong key", "code": "key"} if wrong else script.error
                self._send(status, json.dumps({"error": error}).encode(), script.headers)
                return
            self._stream(script.answers.get(body.get("rule"), script.answers.get("", [])), body)

        def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, steps: list[Line], body: Line) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            chunks = events(steps, body.get("rule") == "strict", script.content)
            for sent, chunk in enumerate(chunks):
                if sent == script.cut_after:
                    return
                if sent == script.hold_after:
                    self._hold()
                self._event(json.dumps(chunk, ensure_ascii=False))
            if script.error_event is not None:
                self._event(json.dumps({"error": script.error_event}))
            else:
                self._event("[DONE]")

        def _hold(self) -> None:
            """Wait until the test lets the stream go on or the client has left."""
            self.connection.settimeout(0.02)
            while not script.go.is_set():
                try:
                    if self.connection.recv(1) == b"":
                        script.gone.set()
                        return
                except TimeoutError:
                    continue
            self.connection.settimeout(None)

        def _event(self, data: str) -> None:
            content = f"data: {data}{script.newline * 2}".encode()
            size = script.piece or len(content)
            try:
                for start in range(0, len(content), size):
                    self.wfile.write(content[start : start + size])
                    self.wfile.flush()
            except OSError:
                script.gone.set()

    return Handler

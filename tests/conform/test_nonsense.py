"""Whatever comes back, it is the server that fails and not the suite."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from adaptivespec.conform import Report, Verdict, run, selected
from adaptivespec.conform.link import Link
from adaptivespec.conform.subject import Subject

CHOICE: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
NONSENSE = {
    "a list": [],
    "a text": "hello",
    "null": None,
    "an empty object": {},
    "no choices": {"choices": []},
    "choices null": {"choices": None, "usage": None},
    "a choice of nothing": {"choices": [{}]},
    "a choice that is none": {"choices": [3]},
    "no message": {"choices": [CHOICE], "usage": USAGE},
    "content null": {"choices": [{**CHOICE, "message": {"content": None}}], "usage": USAGE},
    "usage of words": {
        "choices": [{**CHOICE, "message": {"content": "a b"}}],
        "usage": {"prompt_tokens": "three", "completion_tokens": None},
    },
    "logprobs of another form": {
        "choices": [{**CHOICE, "message": {"content": "a b"}, "logprobs": {"content": [{}]}}],
        "usage": USAGE,
    },
    "metrics of another form": {
        "choices": [{**CHOICE, "message": {"content": "hello, friend"}, "text": "hello, friend"}],
        "usage": USAGE,
        "metrics": {"speculative_decoding": {"num_spec_steps": "many", "acceptance_histogram": 3}},
        "timings": [],
        "sglext": "none",
    },
    "an error in a stream": {"error": "out of memory"},
}


@contextmanager
def answering(said: Any) -> Iterator[str]:
    """The address of a server that says the same to everything but the list of models."""
    whole = json.dumps(said).encode()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            models = {"object": "list", "data": [{"id": "m", "object": "model"}]}
            self._send(json.dumps(models).encode() if "models" in self.path else whole)

        def do_POST(self) -> None:
            content = self.rfile.read(min(int(self.headers["Content-Length"]), 1 << 20))
            stream = b'"stream": true' in content or b'"stream":true' in content
            self._send(b"data: " + whole + b"\n\ndata: [DONE]\n\n" if stream else whole)

        def _send(self, data: bytes) -> None:
            try:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("said", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_fails_and_the_suite_goes_on(said):
    with answering(said) as url:
        link = Link(url, timeout=1)
        try:
            report = Report(url, "m")
            run(Subject(link), selected(), report)
        finally:
            link.close()
    wrong = {o.case.id: o.detail for o in report.outcomes if o.verdict is Verdict.error}
    assert wrong == {}
    assert report.complete
    assert report.count(Verdict.failed) > 3

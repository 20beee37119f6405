"""A server with OpenAI's chat interface whose answers, and faults, tests choose.

It says back the last user message in capitals, a word a chunk, as if each word were a token.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "echo"
Body = dict[str, Any]


@dataclass
class Script:
    """How the server behaves; tests change it between requests.

    Attributes:
        status: of answers; what is not 200 comes with OpenAI's error body.
        fault: "", "cut" (the connection ends midway), "no finish" (the stream ends without a
            reason), "no usage", "bad json", "error event", "endless".
        first_s: seconds before the first chunk.
        extra: fields of the last chunk, and of whole responses.
        choice_extra: fields of the choice of whole responses.
        refuses_logprobs: 400 for requests that ask for them.
        key: that requests have to bring.
        bodies: of all requests so far.
        most: requests that were under way at once, at most.
        reused: requests that came over the connection of an earlier one.
    """

    status: int = 200
    fault: str = ""
    first_s: float = 0.0
    finish: str = "stop"
    models: list[Mapping[str, str]] = field(
        default_factory=lambda: [{"id": MODEL, "object": "model", "owned_by": "tests"}]
    )
    extra: Body = field(default_factory=dict)
    choice_extra: Body = field(default_factory=dict)
    refuses_logprobs: bool = False
    key: str = ""
    bodies: list[Body] = field(default_factory=list)
    most: int = 0
    reused: int = 0
    closed: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The address of a server that follows `script` until the context is left."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), _handler(script))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        script.closed.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()
    running = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        served = 0

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if script.key and self.headers.get("Authorization") != f"Bearer {script.key}":
                self._whole(401, {"error": {"message": "wrong key"}})
            elif self.path == "/v1/models":
                self._whole(200, {"object": "list", "data": script.models})
            elif self.path == "/page/models":
                self._whole(200, "<html>Welcome</html>", "text/html")
            else:
                self._whole(404, {"error": {"message": "no such page"}})

        def do_POST(self) -> None:
            nonlocal running
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                script.reused += self.served > 0
                self.served += 1
                running += 1
                script.most = max(script.most, running)
                script.bodies.append(body)
            try:
                self._answer(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client has gone
            finally:
                with lock:
                    running -= 1

        def _answer(self, body: Body) -> None:
            if script.status != 200:
                self._whole(script.status, {"error": {"message": "out of order"}})
                return
            if script.refuses_logprobs and body.get("logprobs"):
                self._whole(400, {"error": {"message": "logprobs are not supported"}})
                return
            words = [word + " " for word in body["messages"][-1]["content"].upper().split()]
            words = words[: body["max_tokens"]]
            usage = {
                "prompt_tokens": sum(len(m["content"].split()) for m in body["messages"]),
                "completion_tokens": len(words),
                "total_tokens": 0,
            }
            if body.get("stream"):
                self._stream(body, words, usage)
                return
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(words)},
                "finish_reason": script.finish,
                **script.choice_extra,
            }
            self._whole(200, {"choices": [choice], "usage": usage, **script.extra})

        def _stream(self, body: Body, words: list[str], usage: Body) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if script.first_s:
                script.closed.wait(script.first_s)
            self._event({"choices": [_choice({"role": "assistant", "content": ""})]})
            for number, word in enumerate(words):
                if number == 1 and self._fails():
                    return
                choice = _choice({"content": word})
                if body.get("logprobs"):
                    token = {"token": word, "logprob": -0.5, "bytes": None, "top_logprobs": []}
                    choice["logprobs"] = {"content": [token]}
                self._event({"choices": [choice]})
            if script.fault != "no finish":
                self._event({"choices": [_choice({}, script.finish)]})
                end: Body = {"choices": [], **script.extra}
                if script.fault != "no usage" and body["stream_options"]["include_usage"]:
                    end["usage"] = usage
                self._event(end)
            self._piece(b"data: [DONE]\n\n")
            self._piece(b"")

        def _fails(self) -> bool:
            """Whether the stream ended by the fault that is asked for."""
            if script.fault == "cut":
                self.close_connection = True
                return True
            if script.fault == "bad json":
                self._piece(b"data: {not json\n\n")
            if script.fault == "error event":
                self._event({"error": {"message": "out of memory", "code": 500}})
            while script.fault == "endless" and not script.closed.is_set():
                self._event({"choices": [_choice({"content": "on "})]})
                time.sleep(0.01)
            return False

        def _event(self, data: Body) -> None:
            event = {"id": "1", "object": "chat.completion.chunk", "model": MODEL, **data}
            self._piece(b"data: " + json.dumps(event).encode() + b"\n\n")

        def _piece(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def _whole(self, status: int, body: Body | str, kind: str = "application/json") -> None:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _choice(delta: Body, finish: str | None = None) -> Body:
    return {"index": 0, "delta": delta, "finish_reason": finish}

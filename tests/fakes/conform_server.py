"""A small and correct server with OpenAI's interface, and a switch for every fault a case finds.

`serving("overshoots")` gives the address of a server with that fault; without names it has none.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fakes.conform_answer import (
    Piece,
    answer,
    chat_logprobs,
    completion_logprobs,
    prompt_of,
    speculation,
    usage,
)
from fakes.conform_checks import CONTEXT, MODEL, Wrong, check
from fakes.conform_model import Ask, count_tokens, tokenize

Body = dict[str, Any]
KEY = "toy-key"
MOST = 16 << 20  # bytes of a body
TOGETHER_S = 0.3  # how long a fault of concurrency waits for company
MANY_LEFT = 8
COMPANY = frozenset({"batch_disturbs", "seeds_shared", "rows_mixed"})
MIXED = b"user: something else\n<answer>\n"


class Server(ThreadingHTTPServer):
    """The server, and what its faults remember."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, faults: Collection[str]) -> None:
        self.faults = frozenset(faults)
        self.state = threading.Condition()
        self.one_at_a_time = threading.Lock()
        self.running, self.left, self.asked = 0, 0, 0
        self.dead = False
        self.last_messages: list[Body] = []
        self.prompts: set[bytes] = set()
        super().__init__(("127.0.0.1", 0), Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not self.dead

    def company(self) -> bool:
        """Whether another request is under way; some faults need one, and wait for it a while."""
        if not self.faults & COMPANY:
            return False
        with self.state:
            self.state.notify_all()
            return self.state.wait_for(lambda: self.running > 1, TOGETHER_S)


@contextmanager
def serving(*faults: str) -> Iterator[str]:
    """The base address of a server with these faults, until the context is left."""
    server = Server(faults)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def setup(self) -> None:
        if "waits_for_readers" in self.server.faults:
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        super().setup()

    def do_GET(self) -> None:
        faults = self.server.faults
        if self.path.startswith("/v1") and self.headers.get("Authorization") != f"Bearer {KEY}":
            self._json(401, {"error": {"message": "a wrong key"}})
        elif self.path == "/v1/models":
            entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}
            entry |= {"max_model_len": CONTEXT, "lossless": True}
            self._json(200, {"object": "list", "data": [entry]})
        elif self.path == "/health":
            self._json(503 if "unhealthy" in faults else 200, {})
        elif self.path == "/metrics":
            leaked = self.server.left // MANY_LEFT if "disconnects_leak" in faults else 0
            left = 0 if "disconnects_leak" in faults else self.server.left
            running = self.server.running + leaked + left
            self._send(200, f"vllm:num_requests_running {running}\n".encode(), "text/plain")
        else:
            self._json(404, {"error": {"message": "no such page"}})

    def do_POST(self) -> None:
        server, length = self.server, int(self.headers["Content-Length"])
        if self.headers.get("Authorization") != f"Bearer {KEY}" and not self._has("any_key"):
            self.close_connection = True
            self._refuse(Wrong("api_key", "a wrong key", "invalid_api_key", 401))
            return
        if length > MOST:
            self.close_connection = True
            self._refuse(
                Wrong("body", "too large", status=413 if not self._has("any_size") else 500)
            )
            return
        if self._has("half_blocks"):
            with server.one_at_a_time:
                content = self.rfile.read(length)
        else:
            content = self.rfile.read(length)
        with server.state:
            server.running += 1
            server.asked += 1
            server.state.notify_all()
        try:
            try:
                self._answer(content)
            except Wrong as wrong:
                self._refuse(wrong)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with server.state:
                server.running -= 1

    def _has(self, fault: str) -> bool:
        return fault in self.server.faults

    def _answer(self, content: bytes) -> None:
        try:
            body = json.loads(content)
        except RecursionError:
            if self._has("dies_of_deep_json"):
                self.server.dead = True
            status = 500 if self._has("deep_500") else 400
            raise Wrong("body", "too deep", status=status) from None
        except ValueError:
            status = 500 if self._has("bad_json_500") else 400
            raise Wrong("body", "no JSON", status=status) from None
        if self.path == "/tokenize":
            self._json(200, {"tokens": tokenize(body["content"].encode())})
            return
        check(body, self.server.faults)
        if self._has("waits_for_readers"):
            with self.server.one_at_a_time:
                self._complete(body)
            return
        self._complete(body)

    def _complete(self, body: Body) -> None:
        asks = self._asks(body)
        fault = "runs_on" if body.get("stream") else "runs_on_whole"
        if body.get("max_tokens", 0) >= 400 and (self._has(fault) or self._has("disconnects_leak")):
            self.server.left += 1
        if body.get("stream"):
            self._stream(body, asks)
            return
        choices = [list(answer(ask, False)) for ask in asks]
        chat = "messages" in body
        made = [self._whole(body, index, pieces) for index, pieces in enumerate(choices)]
        kind = "chat.completion" if chat else "text_completion"
        said = self._usage(body, asks[0], choices)
        figures = speculation(self.server.faults, said["completion_tokens"])
        response = {**self._envelope(kind), "choices": made, "usage": said}
        response["metrics"] = {"speculative_decoding": figures}
        if self._has("no_id"):
            del response["id"]
        self._json(200, response)

    def _asks(self, body: Body) -> list[Ask]:
        server = self.server
        beside = server.company()
        prompt = prompt_of(body)
        if self._has("rows_mixed") and beside:
            prompt = MIXED
        drift = b""
        if self._has("greedy_drifts"):
            drift = str(server.asked).encode()
        if self._has("batch_disturbs") and beside:
            drift = b"beside"
        messages = body.get("messages", [])
        if self._has("stale_cache") and messages[:-2] and messages[:-2] == server.last_messages:
            drift = b"stale"
        server.last_messages = messages
        n = 1 if self._has("n_ignored") else body.get("n", 1)
        if isinstance(body.get("prompt"), list):
            texts = [text.encode() for text in body["prompt"]]
            if self._has("prompts_padded"):
                texts = [text.rjust(max(map(len, texts))) for text in texts]
            most = body.get("max_tokens", 16)
            return [Ask(text, most, body, i, server.faults) for i, text in enumerate(texts)]
        if self._has("n_stream_ignored") and body.get("stream"):
            n = 1
        most = body.get("max_tokens", 16)
        return [Ask(prompt, most, body, i, server.faults, beside, drift) for i in range(n)]

    def _usage(self, body: Body, ask: Ask, choices: list[list[Piece]]) -> Body:
        prompt = prompt_of(body)
        said = usage(ask, choices, count_tokens(prompt))
        if self._has("cached_not_counted") and prompt in self.server.prompts:
            said["prompt_tokens"] -= 1
            said["total_tokens"] -= 1
        self.server.prompts.add(prompt)
        return said

    def _envelope(self, kind: str) -> Body:
        return {"id": "1", "object": kind, "created": 0, "model": MODEL, "lossless": True}

    def _whole(self, body: Body, index: int, pieces: list[Piece]) -> Body:
        text = "".join(piece.text for piece in pieces)
        choice: Body = {"index": index, "finish_reason": pieces[-1].finish, "logprobs": None}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return self._with_logprobs(body, choice, [t for piece in pieces for t in piece.tokens])

    def _with_logprobs(self, body: Body, choice: Body, tokens: list[Any]) -> Body:
        if not body.get("logprobs") or self._has("logprobs_ignored"):
            return choice
        if "messages" in body:
            tops = body.get("top_logprobs", 0)
            choice["logprobs"] = chat_logprobs(tokens, tops, self.server.faults)
        else:
            choice["logprobs"] = completion_logprobs(tokens, body["logprobs"])
        return choice

    def _stream(self, body: Body, asks: list[Ask]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        choices: list[list[Piece]] = [[] for _ in asks]
        for index, ask in enumerate(asks):
            if "messages" in body and not self._has("no_role"):
                self._event(body, [self._delta(body, index, "", role="assistant")])
            for piece in answer(ask, True):
                self._pieces(body, index, piece, len(choices[index]))
                choices[index].append(piece)
        if (body.get("stream_options") or {}).get("include_usage"):
            said = self._usage(body, asks[0], choices)
            if self._has("chunks_for_tokens"):
                said["completion_tokens"] += 1
            if not self._has("no_stream_usage"):
                self._event(body, [], usage=said)
        if not self._has("no_done"):
            self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _pieces(self, body: Body, index: int, piece: Piece, number: int) -> None:
        """The events of one token, but for what a fault takes or adds."""
        chat = "messages" in body
        lost = self._has("stream_loses_piece") or (self._has("completion_stream_cut") and not chat)
        if lost and number == 5:
            return
        if self._has("stream_error") and number == 2 and not body.get("stream_options"):
            self._event_of({"error": {"message": "out of memory", "code": 500}})
        twice = self._has("stream_logprobs_repeat") and number == 4
        tokens = piece.tokens * (2 if twice else 1)
        choice = self._delta(body, index, piece.text, finish=piece.finish)
        self._event(body, [self._with_logprobs(body, choice, tokens)])
        if piece.finish and self._has("finish_twice"):
            self._event(body, [self._delta(body, index, "", finish=piece.finish)])
        if piece.finish and self._has("text_after_finish"):
            self._event(body, [self._delta(body, index, " more")])

    def _delta(
        self, body: Body, index: int, text: str, role: str | None = None, finish: str | None = None
    ) -> Body:
        choice: Body = {"index": index, "finish_reason": finish, "logprobs": None}
        if "messages" in body:
            choice["delta"] = {"content": text, **({"role": role} if role else {})}
        else:
            choice["text"] = text
        return choice

    def _event(self, body: Body, choices: list[Body], **more: Any) -> None:
        kind = "chat.completion.chunk" if "messages" in body else "text_completion"
        event = {**self._envelope(kind), "choices": choices, **more}
        if self._has("lossless_in_whole_only"):
            del event["lossless"]
        self._event_of(event)

    def _event_of(self, event: Body) -> None:
        self._chunk(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _refuse(self, wrong: Wrong) -> None:
        error = {"message": str(wrong), "type": "invalid_request_error"}
        error |= {"param": wrong.param, "code": wrong.code}
        if self._has("nameless_400") and wrong.param != "logit_bias":
            error |= {"message": "bad request", "param": None}
        if self._has("no_error_body"):
            self._send(wrong.status, f"{wrong.param}: {wrong}".encode(), "text/plain")
        else:
            self._json(wrong.status, {"error": error})

    def _json(self, status: int, body: Body) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

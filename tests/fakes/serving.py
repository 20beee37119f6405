"""Servers on loopback, over engines whose every answer is known.

The scripted model counts: after token i comes i + 1, and after the last of them 1 again. Tokens 12
to 15 are the four bytes of one character; 0 ends an answer. What it says after "a" is therefore
"bcdefghijk🙂abc...".
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from adaptivespec.engine import Engine
from adaptivespec.serve.app import create_app
from adaptivespec.serve.run import Server, bind
from adaptivespec.serve.service import Service
from adaptivespec.serve.settings import ServeSettings
from fakes.scripted import COSTS, VOCAB, Prefix, ScriptedDrafter, ScriptedTarget, chain

MODEL = "counter"
SMILE = "🙂"
PIECES = [b"", *(bytes([c]) for c in b"abcdefghijk"), *(bytes([c]) for c in SMILE.encode())]
CYCLE = "abcdefghijk" + SMILE


def after(prompt: str, tokens: int) -> str:
    """What the model says, greedily, in so many tokens; an unfinished character is shown as such.

    `prompt` is one letter.
    """
    ids, last = [], PIECES.index(prompt.encode())
    for _ in range(tokens):
        last = following(last)
        ids.append(last)
    return b"".join(PIECES[i] for i in ids).decode(errors="replace")


def following(token: int) -> int:
    return token % (VOCAB - 1) + 1


class CountingTokenizer:
    """Letters a to k, and a character of four tokens. A chat's prompt is its last letter."""

    eos_token_ids = (0,)
    special_ids = frozenset({0})
    digit_ids: frozenset[int] = frozenset()
    think_ids = None
    has_chat_template = True
    vocab_size = VOCAB

    def encode(self, text: str) -> list[int]:
        pieces = [bytes([byte]) for byte in text.encode()]
        return [PIECES.index(piece) if piece in PIECES[1:] else 1 for piece in pieces]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return b"".join(PIECES[i] for i in ids).decode(errors="replace")

    def token_text(self, token: int) -> str:
        return self.decode([token])

    def token_bytes(self, token: int) -> bytes:
        return PIECES[token]

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode("".join(message["content"] for message in messages) or "a")


def counting(sharpness: float = 8.0, max_model_len: int = 200, target: Any = None) -> Engine:
    """An engine that counts. At a sharpness of 0 it says anything, unless it is greedy."""

    def logits(prefix: Prefix) -> list[float]:
        row = [0.0] * VOCAB
        row[0] = -30.0  # it never ends by itself
        row[following(prefix[-1])] = max(sharpness, 0.01)
        return row

    def nodes(prefix: Prefix) -> list[tuple[int, int]]:
        """The right chain, but for each third token."""
        first = following(prefix[-1])
        tokens = [first, following(first), following(following(first))]
        return chain(*(7 if token % 3 == 0 else token for token in tokens))

    tokenizer: Any = CountingTokenizer()
    made = Engine(
        target or ScriptedTarget(logits, max_model_len), tokenizer, ScriptedDrafter(nodes), MODEL
    )
    made._costs = COSTS
    return made


@dataclass
class Served:
    """A server that runs: its address, and what is behind it."""

    port: int
    service: Service
    app: FastAPI

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric; labels beside the model's name."""
        registry = self.app.state.metrics.registry
        for given in (labels | {"model_name": MODEL}, labels):
            value = registry.get_sample_value(f"adaptivespec_{name}", given)
            if value is not None:
                return value
        if "reason" in labels:
            return 0.0  # nothing was refused for it so far
        raise AssertionError(f"no metric {name} {labels}")


@contextmanager
def serving(
    engine: Engine | None = None,
    *,
    slots: int = 4,
    queue: int = 8,
    send_buffer: int | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A server in threads of this process, until the context is left.

    `send_buffer` is in bytes, of each connection; `settings` are of ServeSettings.
    """
    service = Service(engine or counting(), slots=slots, queue=queue)
    app = create_app(service, ServeSettings(model=MODEL, **settings))
    service.start()
    ready = threading.Event()
    bound = bind("127.0.0.1", 0)
    if send_buffer is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = Server(app, service, bound, drain_timeout=0, on_ready=lambda port: ready.set())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(30)
        yield Served(server.port, service, app)
    finally:
        server.stop()
        thread.join()
        service.close()

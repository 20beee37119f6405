"""An engine without a model, for tests of what is built on the engine's interface.

It "answers" with the words of a fixed text, one step per chunk, and keeps the calls it received.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from adaptivespec.core.errors import ContextLengthError
from adaptivespec.policy.costs import CostProfile

TEXT = "The sky is blue."
KINDS = ("exact", "promoted", "bonus")


@dataclass
class FakeToken:
    token_id: int
    text: str
    kind: str
    margin: float = 1.0
    logprob: float | None = None


@dataclass
class FakeStep:
    step: int
    num_drafted: int = 10
    tokens: tuple[int, ...] = ()
    strict: tuple[int, ...] = ()
    nodes: None = None

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step}


@dataclass
class FakeChunk:
    text: str
    tokens: list[FakeToken]
    step: FakeStep | None = None
    result: Any = None


@dataclass
class FakeResult:
    tokens: list[FakeToken]
    finish_reason: str
    rule: str
    policy: str
    lossless: bool
    statistics: dict[str, Any]
    matched_stop: str | None = None
    trace: list[FakeStep] | None = None
    timings: dict[str, float] = field(
        default_factory=lambda: {
            "prefill_s": 0.1,
            "draft_s": 0.02,
            "verify_s": 0.06,
            "host_s": 0.02,
            "total_s": 0.2,
        }
    )

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    @property
    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": 3, "completion_tokens": len(self.tokens)}

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "lossless": self.lossless,
            "rule": self.rule,
            "policy": self.policy,
            "speculative": self.statistics,
            "timings": self.timings,
        }


class FakeStream:
    """Words as chunks; closing it early leaves what was generated in `result`."""

    def __init__(self, words: Sequence[str], delay: float, arguments: dict[str, Any]) -> None:
        self._chunks = self._generate(words, delay)
        self._arguments = arguments
        self._tokens: list[FakeToken] = []
        self._done = False
        self.closed = False
        self.prompt = [1, 2]

    def __iter__(self) -> Iterator[FakeChunk]:
        return self

    def __next__(self) -> FakeChunk:
        return next(self._chunks)

    def close(self) -> None:
        self.closed = True
        self._chunks.close()

    @property
    def result(self) -> FakeResult:
        steps = len(self._tokens)
        lossy = self._arguments["rule"] != "strict"
        statistics = {
            "accept_length": 1.0 if steps else None,
            "num_spec_steps": steps,
            "num_draft_tokens": 4 * steps,
            "num_accepted_draft_tokens": 0,
            "num_promoted_tokens": sum(token.kind == "promoted" for token in self._tokens),
            "regret_nats": 0.5,
            "mean_tree_nodes": 5.0 if steps else None,
            "accepted_per_pos": [],
        }
        return FakeResult(
            tokens=list(self._tokens),
            finish_reason="stop" if self._done else "cancelled",
            rule=self._arguments["rule"],
            policy=self._arguments["policy"],
            lossless=not lossy,
            statistics=statistics,
        )

    def _generate(self, words: Sequence[str], delay: float) -> Iterator[FakeChunk]:
        for index, word in enumerate(words[: self._arguments["max_tokens"]]):
            time.sleep(delay)
            token = FakeToken(index, word, KINDS[index % len(KINDS)])
            self._tokens.append(token)
            yield FakeChunk(word, [token], FakeStep(index))
        self._done = True
        yield FakeChunk("", [], None, self.result)


class FakeEngine:
    """`Engine` as the command line sees it."""

    model_name = "fake"
    head_name = "fake-head"
    dtype = "float32"
    drafter = object()
    files = None, None
    tokenizer = SimpleNamespace(
        eos_token_ids=(0,),
        special_ids=frozenset({0, 1}),
        token_text=str,
        decode=lambda ids, skip: " ".join(map(str, ids)),
    )
    target = SimpleNamespace(limits=SimpleNamespace(max_model_len=1000))

    def __init__(self, text: str = TEXT, delay: float = 0.0, limit: int = 1000) -> None:
        self.words = [word for word in text.replace(" ", " \0").split("\0") if word]
        self.delay = delay
        self.limit = limit
        self.calls: list[SimpleNamespace] = []
        self.streams: list[FakeStream] = []
        self.loaded_with: dict[str, Any] = {}
        self.measured: list[dict[str, Any]] = []
        self.prepared: list[tuple[Any, ...]] = []

    def __call__(self, **arguments: Any) -> FakeEngine:
        """Stands in for the factory of engines."""
        self.loaded_with = arguments
        return self

    def stream(self, prompt: str, *, raw: bool = False, **arguments: Any) -> FakeStream:
        return self._start(len(prompt), prompt=prompt, raw=raw, **arguments)

    def chat_stream(self, messages: list[dict[str, str]], **arguments: Any) -> FakeStream:
        size = sum(len(message["content"]) for message in messages)
        return self._start(size, messages=messages, **arguments)

    def session(self) -> object:
        return object()

    def prepare(self, *arguments: Any) -> None:
        self.prepared.append(arguments)

    def costs(self, **arguments: Any) -> CostProfile:
        self.measured.append(arguments)
        near, far = ((1, 0.020), (16, 0.030)), ((1, 0.024), (16, 0.036))
        draft = ((1, 0.0015), (8, 0.002))
        return CostProfile("fake, 1 thread", ((128, near), (512, far)), draft, 0.0025)

    def _start(self, size: int, **arguments: Any) -> FakeStream:
        if size > self.limit:
            raise ContextLengthError(
                f"{size} tokens do not fit into {self.limit}",
                field="prompt",
                remedy="Shorten the prompt",
            )
        self.calls.append(SimpleNamespace(**arguments))
        self.streams.append(FakeStream(self.words, self.delay, arguments))
        return self.streams[-1]

    def close(self) -> None:
        self.closed = True

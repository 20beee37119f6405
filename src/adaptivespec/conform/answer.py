"""Requests, and answers in one form, whole or streamed, chat or completion."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from adaptivespec.conform.case import Failed, shown

__all__ = ["CHAT", "COMPLETIONS", "Answer", "Choice", "Request", "Token"]

CHAT, COMPLETIONS = "chat/completions", "completions"
#: Fields that every request has, and that no server can refuse as such.
USUAL = frozenset({"model", "messages", "prompt", "max_tokens", "temperature", "stream"})
LONGEST_BODY = 4000


@dataclass(frozen=True)
class Request:
    """A request as it was sent.

    Attributes:
        keyed: whether a key came along.
        note: what was sent, in words, where `body` is not it.
        data: then the argument of curl's --data-binary in bash; empty for a GET.
    """

    url: str
    body: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False
    note: str = ""
    data: str = ""

    def summary(self) -> str:
        """Endpoint, the last message and what is special, in a line."""
        if self.note:
            return self.note
        parts = [self.url.partition("/v1/")[2] or self.url]
        for name, value in self.body.items():
            if name == "messages" and isinstance(value, list) and value:
                value = value[-1].get("content") if isinstance(value[-1], dict) else value
            if name != "model":
                parts.append(f"{name}={shown(json.dumps(value, ensure_ascii=False), 80)}")
        return shown(" ".join(parts))

    def curl(self) -> str:
        """A shell command that repeats it; the key is taken from $API_KEY."""
        key = ' -H "Authorization: Bearer $API_KEY"' if self.keyed else ""
        curl = f"curl -sN {shlex.quote(self.url)}{key}"
        data = json.dumps(self.body, ensure_ascii=False)
        if self.note and not self.data:
            return curl
        if len(data) > LONGEST_BODY:
            return f"# {self.summary()}, {len(data)} characters, to {self.url}"
        given = f"--data-binary {self.data}" if self.data else f"-d {shlex.quote(data)}"
        return f"{curl} -H 'Content-Type: application/json' {given}"


@dataclass(frozen=True)
class Token:
    """A token with its alternatives, most likely first. `data` is its bytes where given.

    Texts tell tokens apart: one that is a part of a character is written as its bytes.
    """

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    data: bytes | None = None

    @property
    def encoded(self) -> bytes:
        return self.text.encode() if self.data is None else self.data

    @property
    def gap(self) -> float | None:
        """Nats between the two most likely tokens; None where they are not given."""
        best = sorted((value for _, value in self.top), reverse=True)
        return best[0] - best[1] if len(best) > 1 else None


@dataclass
class Choice:
    """One choice. `tokens` is None where no logprobs came; deltas are those of a stream."""

    index: int
    text: str = ""
    finish: str | None = None
    finishes: int = 0
    tokens: list[Token] | None = None
    role: str | None = None
    roles: list[str | None] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    after_finish: str = ""
    tool_calls: list[Any] = field(default_factory=list)


@dataclass
class Answer:
    """What came back. `events` holds the chunks of a stream, `body` a whole response."""

    request: Request
    status: int
    content_type: str = ""
    raw: bytes = b""
    body: Any = None
    events: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    choices: list[Choice] = field(default_factory=list)

    @property
    def first(self) -> Choice:
        """The choice with index 0."""
        for choice in self.choices:
            if choice.index == 0:
                return choice
        raise Failed("a choice with index 0", shown(self.body or self.events), self.request)

    @property
    def text(self) -> str:
        return self.first.text

    @property
    def finish(self) -> str | None:
        return self.first.finish

    @property
    def tokens(self) -> list[Token] | None:
        return self.first.tokens

    @property
    def usage(self) -> dict[str, Any]:
        """Usage; Failed when there is none."""
        for part in [self.body, *reversed(self.events)]:
            if isinstance(part, dict) and isinstance(part.get("usage"), dict):
                return dict(part["usage"])
        raise Failed("usage", "none", self.request)

    def count(self, name: str) -> int:
        """A figure of the usage, such as "completion_tokens"."""
        value = self.usage.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Failed(f"usage.{name} is an integer", shown(self.usage), self.request)
        return value

    def field(self, name: str) -> Any:
        """A field of the response's top level, of the last chunk that has it."""
        for part in [self.body, *reversed(self.events)]:
            if isinstance(part, dict) and part.get(name) is not None:
                return part[name]
        return None

    @property
    def error(self) -> dict[str, Any]:
        """The error object, or an empty one. FastAPI's and SGLang's own bodies count as one."""
        body = self.body if isinstance(self.body, dict) else {}
        found = body.get("error", body)
        return found if isinstance(found, dict) else {"message": str(found)}

    @property
    def words(self) -> str:
        """The status, and the message of an error."""
        message = self.error.get("message") or self.raw[:200].decode("utf-8", "replace")
        return shown(f"status {self.status}: {message}" if self.status != 200 else "status 200")

    def names(self, parameter: str) -> bool:
        """Whether an error speaks of a parameter."""
        return parameter.lower() in self.raw.decode("utf-8", "replace").lower()

    def read(self) -> Answer:
        """Fill in the choices; Failed when the response has not the interface's form."""
        try:
            if self.events:
                self.choices = _streamed(self.events)
            else:
                self.choices = [_whole(item) for item in self.body["choices"]]
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            came = shown(self.raw[:300].decode("utf-8", "replace") or self.events)
            raise Failed(f"OpenAI's form ({error!r})", came, self.request) from error
        return self

    def token_at(self, position: int) -> Token | None:
        """The token that holds byte `position` of the text."""
        ends = accumulate(len(token.encoded) for token in self.tokens or ())
        for token, end in zip(self.tokens or (), ends, strict=True):
            if position < end:
                return token
        return None


def _whole(item: dict[str, Any]) -> Choice:
    said = item.get("message") or {"content": item.get("text")}
    return Choice(
        index=item["index"],
        text=_said(said),
        finish=item.get("finish_reason"),
        finishes=int(item.get("finish_reason") is not None),
        tokens=_tokens(item.get("logprobs")),
        role=said.get("role"),
        tool_calls=list(said.get("tool_calls") or ()),
    )


def _streamed(events: list[dict[str, Any]]) -> list[Choice]:
    choices: dict[int, Choice] = {}
    for event in events:
        if "error" in event and "choices" not in event:
            raise ValueError(f"an error in the stream: {event['error']}")
        for item in event.get("choices") or ():
            choice = choices.setdefault(item["index"], Choice(item["index"]))
            said = item.get("delta") or {"content": item.get("text")}
            text = _said(said)
            choice.roles.append(said.get("role"))
            choice.deltas.append(text)
            if choice.finishes:
                choice.after_finish += text
            choice.text += text
            choice.tool_calls += said.get("tool_calls") or ()
            found = _tokens(item.get("logprobs"))
            if found is not None:
                choice.tokens = [*(choice.tokens or ()), *found]
            if item.get("finish_reason") is not None:
                choice.finish = item["finish_reason"]
                choice.finishes += 1
    return [choices[index] for index in sorted(choices)]


def _said(said: dict[str, Any]) -> str:
    """Text that was shown; thinking that a server keeps apart comes first."""
    thought = said.get("reasoning_content") or said.get("reasoning") or ""
    return str(thought) + str(said.get("content") or "")


def _tokens(logprobs: Any) -> list[Token] | None:
    if not logprobs:
        return None
    if "content" in logprobs:
        return [
            Token(
                _name(entry),
                float(entry["logprob"]),
                tuple((_name(top), float(top["logprob"])) for top in entry["top_logprobs"] or ()),
                bytes(entry["bytes"]) if entry.get("bytes") else None,
            )
            for entry in logprobs["content"] or ()
        ]
    tops = logprobs.get("top_logprobs") or [None] * len(logprobs["tokens"])
    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], tops, strict=True)
    return [
        Token(text, float(value), tuple((name, float(p)) for name, p in (top or {}).items()))
        for text, value, top in rows
    ]


def _name(entry: dict[str, Any]) -> str:
    text = str(entry["token"])
    part = "\N{REPLACEMENT CHARACTER}" in text and entry.get("bytes")
    return repr(bytes(entry["bytes"])) if part else text

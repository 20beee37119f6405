"""What the toy server refuses, and the faults of a server that refuses badly."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fakes.conform_answer import prompt_of
from fakes.conform_model import VOCABULARY, count_tokens

MODEL = "hash"
CONTEXT = 2000
MOST_STOPS = 100


class Wrong(Exception):
    """A request that is refused."""

    def __init__(self, param: str, message: str, code: str | None = None, status: int = 400):
        self.param, self.code, self.status = param, code, status
        super().__init__(message)


def _number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and low <= v <= high


def _integer(low: int, high: int) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _stops(value: Any) -> bool:
    listed = [value] if isinstance(value, str) else value
    fits = isinstance(listed, list) and len(listed) <= MOST_STOPS
    return fits and all(isinstance(stop, str) and stop for stop in listed)


def _messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
        for m in value
    )  # fmt: skip


def _biases(value: Any) -> bool:
    return isinstance(value, dict) and all(
        str(key).isdigit() and int(key) < VOCABULARY and _number(-100, 100)(bias)
        for key, bias in value.items()
    )


TYPES: dict[str, Callable[[Any], bool]] = {
    "model": lambda v: isinstance(v, str),
    "messages": _messages,
    "prompt": lambda v: bool(v) and all(isinstance(p, str) and p for p in _listed(v)),
    "max_tokens": _integer(0, 10**9),
    "max_completion_tokens": _integer(1, 10**9),
    "temperature": _number(0, 2),
    "stream": _flag,
    "stream_options": lambda v: isinstance(v, dict),
    "stop": _stops,
    "n": _integer(1, 128),
    "seed": _integer(-(2**63), 2**63),
    "top_p": _number(0, 1),
    "top_k": _integer(0, 10**6),
    "min_p": _number(0, 1),
    "min_tokens": _integer(0, 10**6),
    "ignore_eos": _flag,
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "logit_bias": _biases,
    "logprobs": lambda v: _flag(v) or _integer(0, 5)(v),
    "top_logprobs": _integer(0, 20),
}
VALUES = ("temperature", "max_tokens", "top_p", "n", "frequency_penalty", "top_logprobs")


def check(body: Any, faults: Collection[str]) -> None:
    """Raise Wrong unless the body can be answered; fills in nothing."""
    if not isinstance(body, dict):
        raise Wrong("body", "the body has to be an object")
    if "model" not in body or ("messages" not in body) == ("prompt" not in body):
        raise Wrong("messages", "model, and messages or prompt, are needed")
    if body["model"] != MODEL and "any_model" not in faults:
        raise Wrong("model", f"there is no model {body['model']!r}", "model_not_found", 404)
    for name, value in list(body.items()):
        _check_field(body, name, value, faults)
    if "max_completion_tokens" in body and "new_bound_ignored" not in faults:
        body["max_tokens"] = body["max_completion_tokens"]
    if body.get("max_tokens") == 0:
        if "zero_is_one" not in faults:
            raise Wrong("max_tokens", "has to be at least 1")
        body["max_tokens"] = 1
    size = count_tokens(prompt_of(body)[: 10 * CONTEXT])
    if size > CONTEXT:
        if "truncates" not in faults:
            raise Wrong("messages", "the prompt exceeds the context", "context_length_exceeded")
        body["messages"] = [{"role": "user", "content": body["messages"][0]["content"][:200]}]


def _check_field(body: dict[str, Any], name: str, value: Any, faults: Collection[str]) -> None:
    if name not in TYPES:
        ignored = {"tools": "tools_ignored", "response_format": "format_ignored"}
        if name == "tool_choice" and "tools_ignored" in faults:
            return
        if name == "no_such_field" and "unknown_500" in faults:
            raise Wrong(name, "cannot", status=500)
        if ignored.get(name) not in faults:
            raise Wrong(name, "is not supported")
    elif not TYPES[name](value):
        clamped = name in VALUES and "values_clamped" in faults and isinstance(value, (int, float))
        if clamped or (name == "n" and value == 10**6 and "huge_n" in faults):
            body[name] = 1
        else:
            status = 500 if "types_500" in faults and name != "logit_bias" else 400
            raise Wrong(name, f"{name} is wrong: {str(value)[:40]!r}", status=status)

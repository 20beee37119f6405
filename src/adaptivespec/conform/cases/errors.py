"""Requests that are wrong: refused in OpenAI's form, by name, and never answered all the same."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from adaptivespec.conform.answer import CHAT, Answer
from adaptivespec.conform.case import Failed, NotApplicable, Refused, case, require, shown
from adaptivespec.conform.link import Link
from adaptivespec.conform.prompts import SHORT
from adaptivespec.conform.subject import Subject

CONTEXT = 131_072  # tokens to go beyond where a server does not tell its context length
BAD_JSON = (b"{not json", b'{"messages": [', b"", b"\xff\xfe\x00", b'"text"', b"[1, 2]")
BAD_TYPES: tuple[dict[str, Any], ...] = (
    {"messages": "hello"},
    {"messages": []},
    {"messages": [{"role": "user"}]},
    {"messages": None},
    {"max_tokens": "many"},
    {"temperature": "hot"},
    {"stop": 5},
    {"stream": "perhaps"},
)
BAD_VALUES: tuple[dict[str, Any], ...] = (
    {"temperature": -1},
    {"max_tokens": -5},
    {"top_p": 2.5},
    {"top_p": -0.1},
    {"n": 0},
    {"n": -1},
    {"frequency_penalty": 50},
    {"logprobs": True, "top_logprobs": 100_000},
    {"logit_bias": {"999999999": 5}},
)


@case(
    "errors.bad-json",
    "a body that is no JSON object gives a 4xx with OpenAI's error body",
    finds="500, or a connection that closes",
)
def bad_json(subject: Subject) -> str | None:
    for content in BAD_JSON:
        answer = subject.link.post_bytes(CHAT, content)
        require(400 <= answer.status < 500, "a 4xx", answer.words, answer)
    return None


@case(
    "errors.wrong-types",
    "a field of a wrong type gives a 4xx",
    finds="500, or the field ignored",
)
def wrong_types(subject: Subject) -> str | None:
    _all_refused(subject, BAD_TYPES)
    return None


@case(
    "errors.bad-values",
    "a value out of range gives a 4xx",
    finds="values clamped or ignored in silence, or 500",
)
def bad_values(subject: Subject) -> str | None:
    _all_refused(subject, BAD_VALUES)
    return None


@case(
    "errors.names-parameter",
    "a 400 names the field that is wrong",
    finds="refusals that leave the user guessing",
)
def names_parameter(subject: Subject) -> str | None:
    refused = 0
    for fields in ({"temperature": -1}, {"max_tokens": "many"}, {"top_p": 2.5}):
        name = next(iter(fields))
        answer = subject.send(subject.body(SHORT, max_tokens=1) | fields)
        if answer.status != 200:
            refused += 1
            require(answer.names(name), f"an error that names {name}", answer.words, answer)
    if not refused:
        raise NotApplicable("nothing wrong was refused")
    return None


@case(
    "errors.body",
    "errors have OpenAI's body: error.message, type, param and code",
    finds="bodies that the openai client cannot tell the user about",
)
def error_body(subject: Subject) -> str | None:
    answers = [
        subject.link.post_bytes(CHAT, b"{not json"),
        subject.send(subject.body(None, temperature="hot")),
        subject.send(subject.body([])),
    ]
    seen = 0
    for answer in (answer for answer in answers if answer.status >= 400):
        seen += 1
        body = answer.body if isinstance(answer.body, dict) else {}
        error = body.get("error")
        came = shown(answer.raw[:200].decode("utf-8", "replace"))
        require(isinstance(error, dict), "an object `error`", came, answer)
        require(isinstance(answer.error.get("message"), str), "error.message", came, answer)
        missing = [name for name in ("type", "param", "code") if name not in answer.error]
        require(not missing, f"error.{', error.'.join(missing)}", came, answer)
    if not seen:
        raise NotApplicable("nothing wrong was refused")
    return None


@case(
    "errors.key",
    "a wrong key, and none, give 401",
    finds="doors left open",
)
def key(subject: Subject) -> str | None:
    link = subject.link
    if link.key is None:
        raise NotApplicable("no --api-key is given")
    for wrong in (None, f"{link.key}x", link.key[:-1]):
        other = Link(link.url, wrong, link.timeout)
        try:
            answer = other.post(CHAT, subject.body(SHORT, max_tokens=1))
        finally:
            other.close()
        require(answer.status in (401, 403), "401", answer.words, answer)
    return None


@case(
    "errors.unknown-model",
    "a model that is not served gives 404 (or 400)",
    finds="another model's answer under the name that was asked for",
)
def unknown_model(subject: Subject) -> str | None:
    answer = subject.send(subject.body(SHORT, max_tokens=1) | {"model": "no-such-model"})
    require(answer.status in (400, 404), "404", answer.words, answer)
    return None


@case(
    "errors.long-prompt",
    "a prompt that does not fit gives 400 and says that it is the context",
    finds="prompts truncated or dropped in silence",
)
def long_prompt(subject: Subject) -> str | None:
    limit = subject.context()
    words = int(1.2 * (limit or CONTEXT)) + 50
    answer = subject.send(subject.body("word " * words, max_tokens=1))
    if answer.status == 200:
        answer.read()
        count = answer.count("prompt_tokens")
        require(count >= words, f"400, or {words} prompt tokens at least", count, answer)
        raise NotApplicable(f"{words} words fit")
    if answer.status == 413:
        return "refused as too large a body"
    require(answer.status == 400, "400", answer.words, answer)
    told = answer.error.get("code") == "context_length_exceeded" or any(
        answer.names(word) for word in ("context", "too long", "length", "max_model_len")
    )
    require(told, "code context_length_exceeded, or a message about the context", answer.words,
            answer)  # fmt: skip
    return None


@case(
    "errors.unknown-parameter",
    "a field that nobody knows is refused, or noted here as ignored",
    finds="500",
)
def unknown_parameter(subject: Subject) -> str | None:
    answer = subject.send(subject.body(SHORT, max_tokens=1, no_such_field=1))
    require(answer.status < 500, "an answer or a 4xx", answer.words, answer)
    if answer.status == 200:
        return "ignored in silence"
    raise Refused("no_such_field", answer.words)


@case(
    "errors.tools",
    "a tool that is required is called, or `tools` is refused",
    finds="tools ignored",
    seen=("vllm#36138",),
)
def tools(subject: Subject) -> str | None:
    function = {
        "name": "get_weather",
        "description": "The weather of a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string", "maxLength": 20}},
            "required": ["town"],
        },
    }
    answer = subject.ask(
        "What is the weather in Rome?",
        max_tokens=64,
        tools=[{"type": "function", "function": function}],
        tool_choice="required",
    )
    calls = answer.first.tool_calls
    cut = answer.finish == "length" and answer.text.lstrip().startswith(("{", "[", "<"))
    require(calls or cut, "a call of get_weather", repr(answer.text), answer)
    for call in calls:
        name = call["function"]["name"]
        require(name == "get_weather", "a call of get_weather", name, answer)
    return None if calls else "cut at the bound before the call was whole"


@case(
    "errors.response-format",
    "response_format json_schema gives JSON of that schema, or is refused",
    finds="the schema ignored, or left within a run of drafts",
    seen=("vllm#36138",),
)
def response_format(subject: Subject) -> str | None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["zebra", "yak"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    answer = subject.ask(
        "Name an animal.",
        max_tokens=48,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "animal", "schema": schema, "strict": True},
        },
    )
    try:
        value = json.loads(answer.text)
    except ValueError:
        value = None
    fits = isinstance(value, dict) and value.get("answer") in ("zebra", "yak") and len(value) == 1
    require(fits, "an object of the schema", repr(answer.text), answer)
    return None


def _all_refused(subject: Subject, wrong: tuple[dict[str, Any], ...]) -> None:
    bodies = [subject.body(SHORT, max_tokens=2) | fields for fields in wrong]
    answers = subject.together([partial(_status, subject, body) for body in bodies])
    faults = [
        (fields, answer)
        for fields, answer in zip(wrong, answers, strict=True)
        if not 400 <= answer.status < 500
    ]
    if faults:
        came = "; ".join(f"{fields}: {answer.words}" for fields, answer in faults)
        raise Failed("a 4xx for each wrong value", shown(came), faults[0][1].request)


def _status(subject: Subject, body: dict[str, Any]) -> Answer:
    """The answer to a wrong request; where it is taken for a right one, not waited for."""
    body.setdefault("stream", True)
    with subject.link.open(CHAT, body) as stream:
        if stream.status != 200:
            return stream.whole()
        event = next(stream.data(), "")
        told = event.startswith("{") and "error" in json.loads(event)  # refused, a little late
        return Answer(stream.request, 400 if told else 200)

"""Clients that come and go: disconnects, readers that sleep, mixed load, health."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

from adaptivespec.conform.answer import CHAT, COMPLETIONS, Answer
from adaptivespec.conform.case import Failed, NotApplicable, case, require
from adaptivespec.conform.prompts import FORMS, RAW
from adaptivespec.conform.subject import LONG_TOKENS, Subject

GAUGES = (
    "adaptivespec_num_requests_running",
    "adaptivespec:num_requests_running",
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
)
ENDLESS = 1500  # tokens of answers that nobody waits for
SETTLE_S = 10.0
MANY = 20
SOME = 2
FEW = 12
PAUSE_S = 0.05
LOOKS = 4
SMALL_BUFFER = 4096  # bytes that the system reads ahead for a client that does not


@case(
    "lifecycle.disconnect",
    "after a client has gone in mid-stream its request ends, and the server answers",
    finds="generation that runs on for nobody",
    seen=("llama.cpp#24496", "sglang#36552"),
)
def disconnect(subject: Subject) -> str | None:
    _walk_away(subject)
    return _settled(subject)


@case(
    "lifecycle.disconnects",
    "so it is after twenty disconnects, several at once",
    finds="slots and rows that leak",
    seen=("llama.cpp#24496", "sglang#36552"),
)
def disconnects(subject: Subject) -> str | None:
    subject.together([partial(_walk_away, subject)] * MANY)
    return _settled(subject)


@case(
    "lifecycle.disconnect-whole",
    "a request that is not streamed ends too when its client has gone",
    finds="disconnects that are noticed in streams alone",
    seen=("llama.cpp#24496", "sglang#36552"),
)
def disconnect_whole(subject: Subject) -> str | None:
    body = subject.body(subject.prompt_of(subject.long()), **_endless(subject))
    data = json.dumps(body).encode()
    for _ in range(SOME):
        with subject.link.connect() as connection:
            connection.sendall(subject.link.head(CHAT, len(data)) + data)
    return _settled(subject)


@case(
    "lifecycle.prompt-list",
    "several prompts in one completion each get the answer that they have alone",
    finds="rows of a batch mixed up, or padded wrongly, where lengths differ",
    seen=("EAGLE#250", "transformers#29769"),
    needs=("completions",),
)
def prompt_list(subject: Subject) -> str | None:
    whole = subject.ask(list(RAW), path=COMPLETIONS, max_tokens=FEW)
    indexes = [choice.index for choice in whole.choices]
    require(indexes == list(range(len(RAW))), f"{len(RAW)} choices", indexes, whole)
    remarks = []
    for prompt, choice in zip(RAW, whole.choices, strict=True):
        alone = subject.greedy(prompt, FEW, path=COMPLETIONS)
        part = Answer(whole.request, whole.status, choices=[replace(choice, index=0)])
        remarks.append(subject.same(alone, part, alone.text, f"the answer to {prompt!r} alone"))
    return next((remark for remark in remarks if remark), None)


@case(
    "lifecycle.mixed",
    "different requests at once, streamed and whole, each get their own answer",
    finds="rows of a batch mixed up",
    seen=("vllm#14645", "EAGLE#250", "transformers#29769"),
)
def mixed(subject: Subject) -> str | None:
    lengths = (24, 6, 16, 10)
    forms = list(zip(FORMS, lengths, strict=True))
    alone = [subject.greedy(prompt, length) for prompt, length in forms]
    asks = [
        partial(subject.ask, prompt, max_tokens=length, stream=number % 2 == 0)
        for number, (prompt, length) in enumerate(forms)
    ]
    answers = subject.together([*asks, *asks[::-1]])
    remarks = [
        subject.same(first, answer, first.text, "the answer that it has alone")
        for first, answer in zip([*alone, *alone[::-1]], answers, strict=True)
    ]
    return next((remark for remark in remarks if remark), None)


@case(
    "lifecycle.slow-reader",
    "a client that does not read its stream holds nobody up",
    finds="an event loop, or a batch, that waits for one client",
)
def slow_reader(subject: Subject) -> str | None:
    fields: dict[str, Any] = {"stream": True, **subject.logprob_fields(), **_endless(subject)}
    data = json.dumps(subject.body(subject.prompt_of(subject.long()), **fields)).encode()
    with subject.link.connect(SMALL_BUFFER) as slow:
        slow.sendall(subject.link.head(CHAT, len(data)) + data)
        slow.recv(1)  # it has been accepted; from here on nothing is read
        _answers_as_ever(subject, "beside a stream that is not read")
    return None


@case(
    "lifecycle.half-request",
    "a client that sends half a request holds nobody up",
    finds="one thread that waits for one client",
)
def half_request(subject: Subject) -> str | None:
    subject.long()
    with subject.link.connect() as half:
        half.sendall(subject.link.head(CHAT, 1000) + b'{"model": ')
        for _ in range(LOOKS):  # the server may take its time to begin with the half
            _answers_as_ever(subject, "beside half a request")
            time.sleep(PAUSE_S)
    return None


@case("lifecycle.health", "/health answers 200", finds="a balancer that takes it for dead")
def health(subject: Subject) -> str | None:
    answer = subject.link.get("health", root=True)
    if answer.status == 404:
        raise NotApplicable("no /health")
    require(answer.status == 200, "200", answer.words, answer)
    return None


def _endless(subject: Subject) -> dict[str, Any]:
    """The bound of an answer that nobody waits for, within the context."""
    room = (subject.context() or 2 * ENDLESS) - subject.long().count("prompt_tokens") - 1
    # Engines that draft may keep some of the context for drafts.
    return {"max_tokens": min(ENDLESS, room * 3 // 4)}


def _walk_away(subject: Subject) -> None:
    """Ask for a long stream and close the connection at its first text."""
    prompt = subject.prompt_of(subject.long())
    body = subject.body(prompt, stream=True, **_endless(subject))
    with subject.link.open(CHAT, body) as stream:
        if stream.status != 200:
            raise Failed("a stream", stream.whole().words, stream.request)
        stream.first()


def _settled(subject: Subject) -> str | None:
    """Nothing runs any more, by the server's gauge, and it answers as before."""
    _idle(subject)
    _answers_as_ever(subject, "after the disconnect")
    return _idle(subject)  # once more: by now even a request that was late has begun


def _answers_as_ever(subject: Subject, when: str) -> None:
    long = subject.long()
    answer = subject.ask(subject.prompt_of(long), max_tokens=LONG_TOKENS)
    subject.same(long, answer, long.text, f"the same answer {when}")


def _idle(subject: Subject) -> str | None:
    """Wait until no request is running; a remark where the server has no gauge."""
    end = time.monotonic() + min(SETTLE_S, subject.link.timeout)
    while True:
        metrics = subject.link.get("metrics", root=True)
        running = _running(metrics)
        if running is None:
            return "no gauge of running requests to look at"
        if running == 0:
            return None
        if time.monotonic() > end:
            raise Failed("no request running after the client has gone", f"{running:g}",
                         metrics.request)  # fmt: skip
        time.sleep(PAUSE_S)


def _running(metrics: Answer) -> float | None:
    if metrics.status != 200:
        return None
    values = []
    for line in metrics.raw.decode("utf-8", "replace").splitlines():
        name, _, value = line.rpartition(" ")
        if name.partition("{")[0] in GAUGES:
            values.append(float(value))
    return sum(values) if values else None

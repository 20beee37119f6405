"""Text on its way: streams, characters of several bytes, the form of responses."""

from __future__ import annotations

from typing import Any

from adaptivespec.conform.answer import CHAT, COMPLETIONS, Answer
from adaptivespec.conform.case import Failed, NotApplicable, case, require
from adaptivespec.conform.prompts import SHORT
from adaptivespec.conform.subject import LONG_TOKENS, MULTIBYTE_TOKENS, Subject

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _streamed(subject: Subject) -> Answer:
    """An answer, streamed; asked once."""
    whole = subject.both()[0]
    return subject.once(
        "streamed",
        lambda: subject.ask(
            subject.prompt_of(whole),
            stream=True,
            max_tokens=whole.request.body["max_tokens"],
            stream_options={"include_usage": True},
        ),
    )


@case(
    "text.stream-equals-whole",
    "the pieces of a stream, put together, are the whole answer",
    finds="pieces lost, repeated or held back for ever",
    seen=("vllm#47616",),
)
def stream_equals_whole(subject: Subject) -> str | None:
    remarks = []
    for whole in subject.both():
        bound = whole.request.body["max_tokens"]
        stream = subject.ask(subject.prompt_of(whole), stream=True, max_tokens=bound)
        required = "the text of the whole answer"
        remarks.append(subject.same(whole, stream, whole.text, required))
        require(stream.finish == whole.finish, f"finish {whole.finish!r}", stream.finish, stream)
    return next((remark for remark in remarks if remark), None)


@case(
    "text.utf8",
    "a stream splits no character: nothing is replaced, and the pieces are the whole answer",
    finds="bytes of a character sent one token at a time",
)
def utf8(subject: Subject) -> str | None:
    whole = subject.multibyte()
    subject.require_text(whole)
    stream = subject.ask(subject.prompt_of(whole), stream=True, max_tokens=MULTIBYTE_TOKENS)
    # A bound may cut the last character; some servers leave it out, some mark it.
    required = "no U+FFFD but where the bound cut a character"
    for answer in (whole, stream):
        require(REPLACEMENT not in answer.text.rstrip(REPLACEMENT), required, answer.text, answer)
    expected, came = whole.text.rstrip(REPLACEMENT), stream.text.rstrip(REPLACEMENT)
    stream.first.text = came
    return subject.same(whole, stream, expected, "the text of the whole answer")


@case(
    "text.role-first",
    "the first chunk of a stream carries the role, and no other role comes",
    finds="a client that builds a message from chunks is left without its role",
)
def role_first(subject: Subject) -> str | None:
    streamed = _streamed(subject)
    roles = streamed.first.roles
    require(roles[:1] == ["assistant"], "role 'assistant' in the first chunk", roles[:3], streamed)
    others = {role for role in roles if role} - {"assistant"}
    require(not others, "no other role", others, streamed)
    return None


@case(
    "text.stream-ends-once",
    "a stream has one finish_reason, no text after it, and ends with [DONE]",
    finds="streams that a client waits on, or reads as cut",
    seen=("vllm#7627",),
)
def ends_once(subject: Subject) -> str | None:
    streamed = _streamed(subject)
    first = streamed.first
    require(first.finishes == 1, "one finish_reason", first.finishes, streamed)
    require(not first.after_finish, "no text after it", first.after_finish, streamed)
    require(streamed.done == 1, "one [DONE] at the end", streamed.done, streamed)
    kind = streamed.content_type
    require(kind.startswith("text/event-stream"), "text/event-stream", kind, streamed)
    return None


@case(
    "text.schema",
    "responses, chunks and the list of models are of the openai client's types",
    finds="fields missing or of other types: ids, objects, times, choices",
)
def schema(subject: Subject) -> str | None:
    types = _types()
    whole, streamed = subject.both()[0], _streamed(subject)
    _valid(types.ChatCompletion, whole.body, whole)
    ids = {event.get("id") for event in streamed.events}
    for event in streamed.events:
        _valid(types.ChatCompletionChunk, event, streamed)
    require(len(ids) == 1, "one id in all chunks of a stream", ids, streamed)
    models = subject.link.get("models")
    for entry in models.body["data"]:
        _valid(types.Model, entry, models)
    if subject.without("completions") is None:
        completion = subject.ask(SHORT, path=COMPLETIONS, max_tokens=2)
        _valid(types.Completion, completion.body, completion)
    return None


@case(
    "text.completions-stream",
    "a streamed completion equals the whole one",
    finds="the older endpoint left behind",
    needs=("completions",),
)
def completions_stream(subject: Subject) -> str | None:
    whole = subject.long_raw()
    stream = subject.ask(
        subject.prompt_of(whole), path=COMPLETIONS, stream=True, max_tokens=LONG_TOKENS
    )
    require(stream.done == 1, "one [DONE] at the end", stream.done, stream)
    return subject.same(whole, stream, whole.text, "the text of the whole answer")


@case(
    "text.openai-client",
    "the openai client reads an answer, whole and streamed",
    finds="whatever else breaks the client that people use",
)
def openai_client(subject: Subject) -> str | None:
    openai = _openai()
    with openai.OpenAI(
        base_url=subject.link.url,
        api_key=subject.link.key or "-",
        max_retries=0,
        timeout=subject.link.timeout,
    ) as client:
        body: Any = subject.body(SHORT, max_tokens=8)
        request = subject.link.request(CHAT, body)
        try:
            said = client.chat.completions.create(**body).choices[0].message.content
            pieces = []
            for chunk in client.chat.completions.create(**body, stream=True):
                pieces += [choice.delta.content or "" for choice in chunk.choices]
        except (openai.OpenAIError, AttributeError, TypeError, LookupError) as error:
            raise Failed("an answer", f"{type(error).__name__}: {error}", request) from error
        if not said:
            raise NotApplicable("the answer is empty")
        if said != "".join(pieces):
            raise Failed(f"the same streamed: {said!r}", repr("".join(pieces)), request)
    return None


def _openai() -> Any:
    try:
        import openai
    except ImportError as error:
        raise NotApplicable(
            "the openai client is not installed: pip install 'adaptivespec[conform]'"
        ) from error
    return openai


def _types() -> Any:
    _openai()
    from types import SimpleNamespace

    from openai.types import Completion, Model
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    return SimpleNamespace(
        Completion=Completion,
        Model=Model,
        ChatCompletion=ChatCompletion,
        ChatCompletionChunk=ChatCompletionChunk,
    )


def _valid(kind: Any, value: Any, answer: Answer) -> None:
    try:
        kind.model_validate(value)
    except ValueError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]]  # type: ignore[attr-defined]
        raise Failed(f"a {kind.__name__} of OpenAI's", "; ".join(lines), answer.request) from error

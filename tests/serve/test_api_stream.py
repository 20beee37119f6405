"""The API through the real client: streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from fakes.scripted import VOCAB, ScriptedTarget, prefer
from fakes.serving import MODEL, Served, after, counting, following, serving

A = [{"role": "user", "content": "a"}]
USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def server():
    with serving(counting()) as served:
        yield served


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, **options: Any) -> list[Any]:
    given = {"model": MODEL, "messages": A, "temperature": 0, "max_tokens": 20, **options}
    return list(client.chat.completions.create(stream=True, **given))


def complete(client: openai.OpenAI, **options: Any) -> list[Any]:
    given = {"model": MODEL, "prompt": "a", "temperature": 0, "max_tokens": 20, **options}
    return list(client.completions.create(stream=True, **given))


def text_of(chunks: list[Any], index: int = 0) -> str:
    choices = [c for chunk in chunks for c in chunk.choices if c.index == index]
    return "".join(
        (choice.delta.content or "") if hasattr(choice, "delta") else choice.text
        for choice in choices
    )


def test_a_chat_in_pieces(client):
    chunks = chat(client)
    first = chunks[0].choices[0]
    assert (first.delta.role, first.delta.content, first.finish_reason) == ("assistant", "", None)
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert text_of(chunks) == after("a", 20)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    assert {chunk.lossless for chunk in chunks} == {True}
    assert {chunk.usage for chunk in chunks} == {None}


def test_a_completion_in_pieces(client):
    chunks = complete(client)
    assert text_of(chunks) == after("a", 20)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert {chunk.object for chunk in chunks} == {"text_completion"}


def test_a_step_that_commits_several_tokens_is_one_chunk(client):
    pieces = [chunk.choices[0].delta.content for chunk in chat(client)]
    assert "def" in pieces


def test_usage_comes_last_when_it_is_asked_for(client):
    chunks = chat(client, **USAGE)
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (1, 20, 21)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks[:-1])
    assert all("usage" in chunk.model_fields_set for chunk in chunks)


def test_what_came_of_speculation_is_told_with_the_end(client):
    chunks = chat(client, **USAGE)
    told = [chunk for chunk in chunks if "metrics" in (chunk.model_extra or {})]
    assert told == chunks[-2:]
    whole = client.chat.completions.create(
        model=MODEL, messages=A, temperature=0, max_tokens=20
    ).metrics  # fmt: skip
    assert told[0].metrics.keys() == whole.keys()
    assert told[0].metrics["speculative_decoding"]["num_committed_tokens"] == 19


def test_a_character_of_several_tokens_comes_whole(client):
    for tokens in range(9, 17):
        chunks = complete(client, max_tokens=tokens)
        assert text_of(chunks) == after("a", tokens)
        for chunk in chunks[:-1]:
            assert "\N{REPLACEMENT CHARACTER}" not in chunk.choices[0].text


@pytest.mark.parametrize("stop", ["f", "ef", "cdefg", "k🙂a"])
def test_no_part_of_a_stop_string_is_shown(client, stop):
    chunks = complete(client, stop=stop, max_tokens=60)
    assert text_of(chunks) == after("a", 40).partition(stop)[0]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].choices[0].stop_reason == stop


@pytest.mark.parametrize("options", [{}, {"stop": "k🙂b"}, {"stop": "k🙂a"}, {"max_tokens": 12}])
def test_every_token_has_its_logprob_once(client, options):
    options = {"max_tokens": 40, **options}
    streamed = chat(client, logprobs=True, top_logprobs=1, **options)
    tokens = [
        token
        for chunk in streamed
        for token in (chunk.choices[0].logprobs or EMPTY).content
    ]  # fmt: skip
    whole = client.chat.completions.create(
        model=MODEL, messages=A, temperature=0, logprobs=True, top_logprobs=1, **options
    )
    assert [t.model_dump() for t in tokens] == [
        t.model_dump() for t in whole.choices[0].logprobs.content
    ]
    assert len(tokens) == whole.usage.completion_tokens


class EMPTY:
    content: tuple[Any, ...] = ()


def test_offsets_go_on_from_chunk_to_chunk(client):
    chunks = complete(client, logprobs=0, max_tokens=16)
    offsets = [
        offset
        for chunk in chunks
        for offset in (chunk.choices[0].logprobs.text_offset if chunk.choices[0].logprobs else [])
    ]
    assert offsets == [*range(10), 10, 10, 10, 10, 11, 12]


def test_an_echo_comes_first(client):
    chunks = complete(client, prompt="abc", echo=True, max_tokens=3)
    assert chunks[0].choices[0].text == "abc"
    assert text_of(chunks) == "abcdef"


def test_choices_are_told_apart(client):
    chunks = complete(client, prompt=["a", "b", "cd"], n=2, max_tokens=7, **USAGE)
    for index in range(6):
        assert text_of(chunks, index) == after("abd"[index // 2], 7)
        own = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert [c.finish_reason for c in own if c.finish_reason] == ["length"]
    assert chunks[-1].usage.completion_tokens == 42
    assert chunks[-1].usage.prompt_tokens == 4
    told = [i for i, chunk in enumerate(chunks) if "metrics" in (chunk.model_extra or {})]
    assert told == [len(chunks) - 2, len(chunks) - 1]


def test_every_choice_of_a_chat_begins_with_its_role(client):
    chunks = chat(client, n=3)
    for index in range(3):
        own = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert own[0].delta.role == "assistant"
        assert text_of(chunks, index) == after("a", 20)


def test_a_trace_comes_along(client):
    chunks = chat(client, extra_body={"return_trace": True})
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[0].trace["header"]["prompt"] == "a"
    steps = [step for c in choices[1:] for step in getattr(c, "trace", {}).get("steps", [])]
    assert [step["step"] for step in steps] == list(range(len(steps)))
    tokens = [token for c in choices for token in getattr(c, "tokens", [])]
    assert [token["text"] for token in tokens][:3] == ["b", "c", "d"]
    assert len(tokens) == 20
    assert tokens[0]["kind"] == "bonus"
    assert tokens[0]["id"] == steps[0]["nodes"]["token"][0]
    assert {"exact", "bonus"} == {token["kind"] for token in tokens}
    texts = {key: text for step in steps for key, text in step["texts"].items()}
    assert texts["2"] == "b"


def test_streams_run_beside_one_another(server: Served):
    async def ask() -> list[str]:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

            async def one(letter: str) -> str:
                stream = await client.completions.create(
                    model=MODEL, prompt=letter, max_tokens=30, temperature=0, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*map(one, "abcdefgh"))

    assert asyncio.run(ask()) == [after(letter, 30) for letter in "abcdefgh"]


class Failing(ScriptedTarget):
    """A target whose logits are NaN once the text is long enough."""

    def __init__(self, at: int) -> None:
        super().__init__(lambda prefix: self._row(prefix, at), 200)

    def _row(self, prefix: tuple[int, ...], at: int) -> list[float]:
        if len(prefix) > at:
            return [float("nan")] * VOCAB
        return prefer(following(prefix[-1]))


def test_a_failure_midway_ends_the_stream_with_an_error():
    with (
        serving(counting(target=Failing(6))) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        seen: list[Any] = []
        stream = client.completions.create(
            model=MODEL, prompt="a", max_tokens=20, stream=True, temperature=0
        )
        with pytest.raises(openai.APIError) as caught:
            seen.extend(stream)
        assert "NaN" in caught.value.message
        assert caught.value.code == "generation_failed"
        assert "".join(chunk.choices[0].text for chunk in seen).startswith("bc")
        assert all(chunk.choices[0].finish_reason is None for chunk in seen)
        raw = client.completions.with_raw_response.create(
            model=MODEL, prompt="a", max_tokens=20, stream=True, temperature=0
        )
        assert "[DONE]" not in raw.http_response.read().decode()
        with pytest.raises(openai.InternalServerError) as whole:
            client.completions.create(model=MODEL, prompt="a", max_tokens=20, temperature=0)
        assert whole.value.code == "generation_failed"
        assert "Traceback" not in json.dumps(whole.value.body)
        fine = client.completions.create(model=MODEL, prompt="a", max_tokens=2, temperature=0)
        assert fine.choices[0].text == "bc"


def test_a_failure_that_is_no_error_of_ours_tells_nothing_of_itself(caplog):
    engine = counting()

    class Broken(ScriptedTarget):
        def verify(self, *arguments: Any) -> Any:
            raise ZeroDivisionError("secret words")

    engine.target = Broken(engine.target.logits, 200)
    with (
        serving(engine) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model=MODEL, prompt="a", max_tokens=9, temperature=0)
        assert caught.value.code == "internal_error"
        assert "secret" not in json.dumps(caught.value.body)
        assert served.metric("requests_rejected_total", reason="internal_error") == 1
    assert "secret words" in caplog.text


def test_a_rule_that_the_model_cannot_serve_is_refused_by_name() -> None:
    body = {"rule": {"name": "relaxed", "options": {"think_only": True}}}
    with (
        serving(counting()) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        given = {"model": MODEL, "prompt": "a", "max_tokens": 9, "temperature": 0}
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match="thinking tokens") as caught:
                client.completions.create(**given, stream=stream, extra_body=body)
            assert caught.value.param == "rule"

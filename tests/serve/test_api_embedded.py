"""The embedded model behind the API: what it says there is what it says without."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from adaptivespec import Engine
from fakes.raw_http import error, post
from fakes.serving import MODEL, Served, serving

pytestmark = pytest.mark.network

QUESTION = [{"role": "user", "content": "Name three rivers, and an emoji for each."}]


@pytest.fixture(scope="module")
def engine(model_cache):
    return Engine.from_pretrained(cache_dir=model_cache, local_files_only=True)


@pytest.fixture(scope="module")
def server(engine):
    with serving(engine) as served:
        yield served


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, **options: Any) -> Any:
    given = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 60, **options}
    return client.chat.completions.create(**given)


@pytest.fixture(scope="module")
def alone(engine, server):
    """What the engine says of itself; the server rests meanwhile."""
    return engine.chat(QUESTION, temperature=0, max_tokens=60)


def test_an_answer_is_the_engines_own(client, alone):
    answer = chat(client)
    assert answer.choices[0].message.content == alone.text
    assert answer.usage.completion_tokens == alone.usage["completion_tokens"]
    assert answer.usage.prompt_tokens == alone.usage["prompt_tokens"]


def test_streamed_text_bytes_and_tokens_are_one_answer(client, alone):
    extra = {"return_trace": True}
    chunks = list(chat(client, stream=True, logprobs=True, top_logprobs=2, extra_body=extra))
    choices = [chunk.choices[0] for chunk in chunks]
    assert "".join(choice.delta.content or "" for choice in choices) == alone.text
    tokens = [token for c in choices if c.logprobs for token in c.logprobs.content]
    content = bytes(byte for token in tokens for byte in token.bytes)
    assert content.decode() == alone.text
    traced = [token for choice in choices for token in getattr(choice, "tokens", [])]
    assert [token["id"] for token in traced] == alone.token_ids
    assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_lossy_answers_are_told_from_lossless_ones(client, alone):
    lossy = chat(client, extra_body={"rule": "margin", "kappa": 0.1, "policy": "static"})
    figures = lossy.metrics["speculative_decoding"]
    assert lossy.lossless is False
    assert figures["num_promoted_tokens"] > 0
    assert figures["regret_nats"] > 0
    strict = chat(client, extra_body={"policy": "static"})
    assert (strict.lossless, strict.choices[0].message.content) == (True, alone.text)


def test_another_turn_reads_only_what_is_new(client, alone):
    messages = [*QUESTION, {"role": "assistant", "content": alone.text},
                {"role": "user", "content": "Thank you!"}]  # fmt: skip
    chat(client)
    usage = chat(client, messages=messages, max_tokens=4).usage
    assert usage.prompt_tokens_details.cached_tokens > len(alone.token_ids)


def test_text_that_is_no_unicode_is_refused(server: Served):
    body = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    assert error(server, post(body, path="/v1/chat/completions")) == (400, "invalid_value")


def test_the_shipped_judge_serves_and_other_heads_do_not(client):
    judged = chat(client, max_tokens=10, extra_body={"rule": "judge"})
    assert judged.lossless is False
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, extra_body={"rule": {"name": "judge", "options": {"head": "/etc"}}})
    assert caught.value.param == "rule"

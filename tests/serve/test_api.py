"""The API through the real client: whole answers."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from fakes.serving import CYCLE, MODEL, SMILE, Served, after, counting, serving

A = [{"role": "user", "content": "a"}]


@pytest.fixture(scope="module")
def server():
    with serving(counting()) as served:
        yield served


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def free():
    """A client of a server whose model says anything at temperature 1."""
    with (
        serving(counting(sharpness=0)) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def chat(client: openai.OpenAI, **options: Any) -> Any:
    given = {"model": MODEL, "messages": A, "temperature": 0, "max_tokens": 8, **options}
    return client.chat.completions.create(**given)


def complete(client: openai.OpenAI, **options: Any) -> Any:
    given = {"model": MODEL, "prompt": "a", "temperature": 0, "max_tokens": 8, **options}
    return client.completions.create(**given)


def test_a_chat(client):
    answer = chat(client)
    choice = answer.choices[0]
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert answer.id.startswith("chatcmpl-")
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert (choice.message.role, choice.message.content) == ("assistant", after("a", 8))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 8)
    assert answer.usage.total_tokens == 9
    assert answer.lossless is True
    assert chat(client).id != answer.id


def test_a_completion(client):
    answer = complete(client)
    assert (answer.object, answer.choices[0].text) == ("text_completion", after("a", 8))
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].finish_reason == "length"


def test_speculation_is_reported_under_the_names_of_vllm_and_ours(client):
    answer = chat(client, max_tokens=40)
    figures = answer.metrics["speculative_decoding"]
    assert set(figures) >= {
        "mean_acceptance_length", "draft_acceptance_rate", "acceptance_histogram",
        "num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens", "num_promoted_tokens",
        "regret_nats", "mean_tree_nodes", "lossless", "rule", "policy", "accepted_per_pos",
        "promoted_per_pos", "kind_counts", "num_drafts", "num_committed_tokens",
    }  # fmt: skip
    assert figures["num_committed_tokens"] == 39  # the first token is the prompt's
    assert figures["num_spec_steps"] < 39
    assert figures["num_accepted_draft_tokens"] == sum(figures["accepted_per_pos"])
    assert (figures["rule"], figures["lossless"]) == ("strict", True)


def test_our_own_benchmark_reads_what_is_reported(client):
    from adaptivespec.eval.targets.reported import read

    figures = read(chat(client, max_tokens=40).model_dump(), 40)
    assert figures["accept_length"] == pytest.approx(39 / figures["num_spec_steps"])
    assert figures["lossless"] is True


def test_a_lossy_answer_says_so(client):
    answer = chat(client, max_tokens=40, extra_body={"rule": "margin", "kappa": 0.0})
    assert answer.lossless is False
    figures = answer.metrics["speculative_decoding"]
    assert figures["num_promoted_tokens"] > 0
    assert figures["rule"] == "margin:kappa=0.0"
    assert answer.choices[0].message.content != after("a", 40)


def test_a_request_chooses_its_policy(client):
    plain = chat(client, extra_body={"policy": "none"})
    assert plain.metrics["speculative_decoding"]["num_draft_tokens"] == 0
    assert plain.metrics["speculative_decoding"]["mean_acceptance_length"] == 1
    assert plain.choices[0].message.content == after("a", 8)


def test_temperature_is_1_unless_it_is_given(free):
    given = {"model": MODEL, "messages": A, "max_tokens": 12}
    texts = {free.chat.completions.create(**given).choices[0].message.content for _ in range(4)}
    assert len(texts) > 1
    greedy = {chat(free, max_tokens=12).choices[0].message.content for _ in range(2)}
    assert greedy == {after("a", 12)}


def test_choices_of_one_request_differ_and_repeat_with_the_seed(free):
    def texts(**options: Any) -> list[str]:
        answer = complete(free, temperature=1, n=4, **options)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        return [choice.text for choice in answer.choices]

    first = texts(seed=3)
    assert len(set(first)) > 1
    assert texts(seed=3) == first
    assert texts(seed=4)[:3] == first[1:]  # choice i is seeded with seed + i
    assert texts() != texts()


def test_several_prompts_and_choices(client):
    answer = complete(client, prompt=["a", "bc"], n=2, max_tokens=3)
    assert [choice.text for choice in answer.choices] == ["bcd", "bcd", "def", "def"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 12)


@pytest.mark.parametrize("prompt", [[1], [[1]], "a", ["a"]])
def test_prompts_of_every_kind(client, prompt):
    assert complete(client, prompt=prompt).choices[0].text == after("a", 8)


def test_echo_repeats_the_prompt(client):
    assert complete(client, prompt="abc", echo=True, max_tokens=2).choices[0].text == "abcde"
    assert complete(client, prompt=[1, 2], echo=True, max_tokens=2).choices[0].text == "abcd"


def test_lengths_that_are_not_given(client):
    assert complete(client, max_tokens=None).usage.completion_tokens == 16
    whole = chat(client, max_tokens=None)
    assert whole.usage.total_tokens == 200
    assert whole.choices[0].finish_reason == "length"
    last = complete(client, prompt="a" * 195, max_tokens=None)
    assert last.usage.total_tokens == 200


@pytest.mark.parametrize("tokens", range(1, 10))
def test_exactly_as_many_tokens_as_asked(client, tokens):
    answer = chat(client, max_tokens=tokens)
    assert answer.usage.completion_tokens == tokens
    assert answer.choices[0].message.content == after("a", tokens)
    newer = chat(client, max_tokens=None, max_completion_tokens=tokens)
    assert newer.usage.completion_tokens == tokens


@pytest.mark.parametrize("stop", ["f", "ef", "cde", SMILE, f"k{SMILE}a"])
def test_stop_strings_end_an_answer_before_them(client, stop):
    answer = complete(client, stop=["zzz", stop], max_tokens=50)
    assert answer.choices[0].text == (CYCLE * 2)[1:].partition(stop)[0]
    assert (answer.choices[0].finish_reason, answer.choices[0].stop_reason) == ("stop", stop)


def test_a_stop_id_ends_an_answer_and_is_named(client):
    answer = complete(client, extra_body={"stop_token_ids": [6]}, max_tokens=50)
    assert (answer.choices[0].text, answer.choices[0].stop_reason) == ("bcde", 6)


def test_eos_ends_an_answer_unless_it_is_ignored(client):
    bias = {"0": 100}
    ended = complete(client, logit_bias=bias)
    assert (ended.choices[0].finish_reason, ended.choices[0].text) == ("stop", "")
    assert ended.choices[0].stop_reason is None
    assert ended.usage.completion_tokens == 1
    later = complete(client, logit_bias=bias, extra_body={"min_tokens": 4})
    assert (later.choices[0].text, later.usage.completion_tokens) == ("bcde", 5)
    ignored = complete(client, logit_bias=bias, extra_body={"ignore_eos": True})
    assert (ignored.usage.completion_tokens, ignored.choices[0].finish_reason) == (8, "length")


def test_bias_and_penalties_change_the_answer(client):
    assert complete(client, logit_bias={"2": -100}, max_tokens=1).choices[0].text != "b"
    assert complete(client, logit_bias={"9": 50}).choices[0].text == "i" * 8
    mild = complete(client, logit_bias={"9": 9}, max_tokens=3)
    assert mild.choices[0].text == "iii"
    spread = complete(client, logit_bias={"9": 9}, max_tokens=3, frequency_penalty=2)
    assert spread.choices[0].text != "iii"


def test_logprobs_of_a_chat(client):
    tokens = chat(client, max_tokens=14, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert [token.token for token in tokens][:3] == ["b", "c", "d"]
    assert bytes(b for token in tokens for b in token.bytes).decode() == after("a", 14)
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # the greedy choice is the likeliest
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)
        assert -0.1 < token.logprob <= 0
    without = chat(client, logprobs=True).choices[0].logprobs.content
    assert [token.top_logprobs for token in without] == [[]] * 8


def test_logprobs_of_a_completion(client):
    choice = complete(client, max_tokens=16, logprobs=2).choices[0]
    logprobs = choice.logprobs
    assert choice.text == "bcdefghijk🙂ab"
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == 16
    assert logprobs.text_offset == [*range(10), 10, 10, 10, 10, 11, 12]
    assert all(token in top for token, top in
               zip(logprobs.tokens, logprobs.top_logprobs, strict=True))  # fmt: skip
    assert all(len(top) == 2 for top in logprobs.top_logprobs[:9])
    chosen = complete(client, logprobs=0).choices[0].logprobs
    assert [len(top) for top in chosen.top_logprobs] == [1] * 8


def test_logprobs_of_a_stopped_answer_are_those_of_its_tokens(client):
    choice = chat(client, logprobs=True, stop="e", max_tokens=20).choices[0]
    assert choice.message.content == "bcd"
    assert [token.token for token in choice.logprobs.content] == ["b", "c", "d", "e"]


def test_a_trace_is_given_when_asked_for(client):
    answer = chat(client, max_tokens=20, extra_body={"return_trace": True})
    choice = answer.choices[0]
    header, steps = choice.trace["header"], choice.trace["steps"]
    assert (header["rule"], header["prompt"], header["max_tokens"]) == ("strict", "a", 20)
    assert steps[0]["position"] == 1
    assert sum(step["committed"] for step in steps) == 19
    texts: dict[str, str] = {}
    for step in steps:
        assert not texts.keys() & step["texts"].keys()
        texts |= step["texts"]
        assert {str(token) for token in step["nodes"]["token"]} <= texts.keys()
    assert "".join(token["text"] for token in choice.tokens)[:9] == "bcdefghij"
    assert {token["kind"] for token in choice.tokens} == {"exact", "bonus"}
    assert chat(client).choices[0].model_extra.get("trace") is None


def test_a_second_turn_finds_the_first_in_the_cache(client):
    prompt = "abcdefghij" * 4
    first = complete(client, prompt=prompt, max_tokens=4)
    second = complete(client, prompt=prompt + first.choices[0].text + "a", max_tokens=4)
    assert second.usage.prompt_tokens_details.cached_tokens > 30
    assert second.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens


def test_the_model_is_listed(client):
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.object, model.owned_by, model.max_model_len) == ("model", "adaptivespec", 200)
    assert (model.lossless, model.rule, model.policy) == (True, "strict", "dcs")


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: chat(client, model="gpt-9"), "model_not_found"),
        (lambda client: client.models.retrieve("gpt-9"), "model_not_found"),
    ],
)
def test_another_model_is_not_found(client, ask, code):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client)
    assert (caught.value.code, caught.value.param) == (code, "model")
    assert MODEL in caught.value.message


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"messages": [{"role": "user", "content": "a" * 200}]}, ("200", "200")),
        ({"messages": [{"role": "user", "content": "a" * 900}], "max_tokens": None}, ("900",)),
        ({"max_tokens": 200}, ("200", "1")),
        ({"max_tokens": 10**15}, ("200", str(10**15))),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(client, options, numbers):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **options)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    for number in numbers:
        assert number in caught.value.message
    assert chat(client, max_tokens=199).usage.total_tokens == 200


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [16]}, "prompt"),
        ({"prompt": ["a"] * 33, "n": 2}, "prompt"),
        ({"logit_bias": {"16": 1}}, "logit_bias"),
        ({"extra_body": {"stop_token_ids": [16]}}, "stop_token_ids"),
        ({"extra_body": {"min_tokens": 9}}, "min_tokens"),
        ({"extra_body": {"kappa": 0.3}}, "kappa"),
        ({"extra_body": {"rule": "nope"}}, "rule"),
        ({"extra_body": {"rule": "rejection", "policy": "dcs"}}, "policy"),
        ({"extra_body": {"rule": "margin:kappa=-1"}}, "rule"),
        ({"extra_body": {"rule": "margin", "kappa": 1e300, "policy": "static:0,0"}}, "policy"),
        ({"extra_body": {"bogus": 1}}, "bogus"),
    ],
)
def test_what_only_the_engine_can_tell_is_refused_by_name_too(client, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, **options)
    assert caught.value.param == param, caught.value.message
    assert caught.value.message


def test_without_a_chat_template_chats_are_refused():
    engine = counting()
    engine.tokenizer.has_chat_template = False
    with (
        serving(engine) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client,
    ):
        with pytest.raises(openai.BadRequestError, match="/v1/completions"):
            chat(client)
        assert complete(client).choices[0].text == after("a", 8)


def test_many_requests_at_once_are_each_answered_as_alone(server: Served):
    async def ask() -> list[str]:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            answers = await asyncio.gather(
                *(
                    client.completions.create(
                        model=MODEL, prompt="abcdefghij"[i], max_tokens=5 + i, temperature=0
                    )
                    for i in range(10)
                )
            )
        return [answer.choices[0].text for answer in answers]

    assert asyncio.run(ask()) == [after("abcdefghij"[i], 5 + i) for i in range(10)]


def test_the_defaults_of_the_server_are_used_and_told():
    from adaptivespec.serve.settings import Speculation

    def by_temperature(temperature: float) -> Speculation:
        return Speculation("margin:0.0" if temperature == 0.5 else "strict", "chain:2")

    with (
        serving(counting(), speculation=by_temperature, temperature=0.5) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client,
    ):
        model = client.models.retrieve(MODEL)
        assert (model.lossless, model.rule) == (False, "margin:kappa=0.0")
        assert model.policy == "chain:num_steps=2"
        default = client.completions.create(model=MODEL, prompt="a", max_tokens=4)
        assert default.metrics["speculative_decoding"]["rule"] == "margin:kappa=0.0"
        assert complete(client).metrics["speculative_decoding"]["rule"] == "strict"

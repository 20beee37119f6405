"""Fields of requests: each is honoured, or refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import completion_create_params as openai_completion
from openai.types.chat import completion_create_params as openai_chat

from adaptivespec.serve.body import parse
from adaptivespec.serve.errors import ApiError, dumps
from adaptivespec.serve.parameters import read_ask
from adaptivespec.serve.schema import Chat, Completion

MESSAGES = [{"role": "user", "content": "a"}]
BASE: dict[str, dict[str, Any]] = {"chat": {"messages": MESSAGES}, "completion": {"prompt": "a"}}
KINDS = [("chat", Chat, openai_chat), ("completion", Completion, openai_completion)]
#: A value that asks for something, of each field that is known and not honoured.
WANTED: dict[str, Any] = {"parallel_tool_calls": "yes"}


def refused(kind: str, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_ask(kind, {**BASE[kind], **fields})
    assert caught.value.status == 400
    assert caught.value.body()["error"]["type"] == "invalid_request_error"
    return caught.value


def asked(kind: str, **fields: Any) -> Any:
    return read_ask(kind, {**BASE[kind], **fields})


@pytest.mark.parametrize(("kind", "model", "theirs"), KINDS)
def test_every_parameter_of_openai_is_known(kind, model, theirs):
    names = {*theirs.CompletionCreateParamsBase.__annotations__, "stream"}
    assert names - {*model.model_fields, *model.neutral} == set()


@pytest.mark.parametrize(("kind", "model", "_"), KINDS)
def test_what_is_not_honoured_is_refused_by_name_unless_it_asks_for_nothing(kind, model, _):
    assert len(model.neutral) > 20
    for name, legal in model.neutral.items():
        error = refused(kind, **{name: WANTED.get(name, {"some": "thing"})})
        assert (error.param, error.code) == (name, "unsupported_parameter")
        assert error.message.startswith(f"{name}: ")
        for value in (*legal, None):
            assert asked(kind, **{name: value}) == asked(kind)


@pytest.mark.parametrize(("kind", "model", "_"), KINDS)
def test_null_is_not_given(kind, model, _):
    optional = {name: None for name in model.model_fields if name not in BASE[kind]}
    assert asked(kind, **optional) == asked(kind)


@pytest.mark.parametrize(("kind", "model", "_"), KINDS)
def test_a_field_of_the_wrong_type_is_refused_by_name_with_what_is_legal(kind, model, _):
    for name, info in model.model_fields.items():
        error = refused(kind, **{name: {"neither": ["text", "nor", "number"]}})
        assert (error.param, error.code) == (name, "invalid_value")
        assert str(info.description) in error.message


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        ("chat", {"temperature": -0.1}, "temperature"),
        ("chat", {"temperature": "1"}, "temperature"),
        ("chat", {"temperature": True}, "temperature"),
        ("chat", {"top_p": 0}, "top_p"),
        ("chat", {"top_p": 1.01}, "top_p"),
        ("chat", {"top_k": -2}, "top_k"),
        ("chat", {"top_k": 1.5}, "top_k"),
        ("chat", {"min_p": 2}, "min_p"),
        ("chat", {"n": 0}, "n"),
        ("chat", {"n": 17}, "n"),
        ("chat", {"n": True}, "n"),
        ("chat", {"best_of": 2}, "best_of"),
        ("chat", {"max_tokens": 0}, "max_tokens"),
        ("chat", {"max_completion_tokens": -1}, "max_completion_tokens"),
        ("chat", {"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ("chat", {"seed": 1.5}, "seed"),
        ("chat", {"stop": ""}, "stop"),
        ("chat", {"stop": ["a"] * 17}, "stop"),
        ("chat", {"stop": ["a", 1]}, "stop"),
        ("chat", {"stop": "a" * 1001}, "stop"),
        ("chat", {"stop_token_ids": [-1]}, "stop_token_ids"),
        ("chat", {"stop_token_ids": [True]}, "stop_token_ids"),
        ("chat", {"presence_penalty": 2.1}, "presence_penalty"),
        ("chat", {"frequency_penalty": -2.1}, "frequency_penalty"),
        ("chat", {"repetition_penalty": 0}, "repetition_penalty"),
        ("chat", {"logit_bias": {"1": 101}}, "logit_bias"),
        ("chat", {"logit_bias": {"a": 1}}, "logit_bias"),
        ("chat", {"logit_bias": {"-1": 1}}, "logit_bias"),
        ("chat", {"logit_bias": {"٣": 1}}, "logit_bias"),
        ("chat", {"min_tokens": -1}, "min_tokens"),
        ("chat", {"ignore_eos": 1}, "ignore_eos"),
        ("chat", {"stream": "true"}, "stream"),
        ("chat", {"stream_options": {"include_usage": True}}, "stream_options"),
        ("chat", {"stream": True, "stream_options": {"usage": True}}, "stream_options"),
        ("chat", {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options"),
        ("chat", {"stream": True, "stream_options": {"include_obfuscation": True}},
         "stream_options"),
        ("chat", {"logprobs": 1}, "logprobs"),
        ("chat", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat", {"top_logprobs": 2}, "top_logprobs"),
        ("chat", {"user": "x" * 513}, "user"),
        ("chat", {"kappa": -0.1}, "kappa"),
        ("chat", {"rule": {"name": "margin", "option": {}}}, "rule"),
        ("chat", {"rule": "x" * 501}, "rule"),
        ("chat", {"policy": 3}, "policy"),
        ("chat", {"return_trace": "yes"}, "return_trace"),
        ("chat", {"messages": []}, "messages"),
        ("chat", {"messages": "a"}, "messages"),
        ("completion", {"prompt": []}, "prompt"),
        ("completion", {"prompt": [[]]}, "prompt"),
        ("completion", {"prompt": ["a", 1]}, "prompt"),
        ("completion", {"prompt": [1, "a"]}, "prompt"),
        ("completion", {"prompt": [[1], "a"]}, "prompt"),
        ("completion", {"prompt": [1.5]}, "prompt"),
        ("completion", {"prompt": [-1]}, "prompt"),
        ("completion", {"logprobs": 21}, "logprobs"),
        ("completion", {"logprobs": True}, "logprobs"),
        ("completion", {"echo": True, "logprobs": 1}, "echo"),
    ],
)  # fmt: skip
def test_values_out_of_bounds_are_refused(kind, fields, param):
    error = refused(kind, **fields)
    assert error.param == param
    assert error.message.startswith(f"{param}: ")


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_what_is_missing_is_named(kind):
    with pytest.raises(ApiError) as caught:
        read_ask(kind, {})
    assert caught.value.code == "missing_required_parameter"
    assert caught.value.param == next(iter(BASE[kind]))


def test_an_unknown_name_is_refused_with_the_nearest():
    error = refused("chat", temprature=1)
    assert (error.param, error.code) == ("temprature", "unknown_parameter")
    assert "Did you mean 'temperature'?" in error.message
    assert "Did you mean" not in refused("chat", zzz=1).message


def test_a_chat_parameter_is_not_one_of_completions():
    assert refused("completion", messages=MESSAGES).param == "messages"
    assert refused("chat", prompt="a").param == "prompt"


def test_fields_arrive():
    ask = asked(
        "chat", model="m", temperature=0.5, top_p=0.5, top_k=3, min_p=0.1, n=2, seed=5, stop="x",
        stop_token_ids=[3], presence_penalty=1, frequency_penalty=-1, repetition_penalty=1.5,
        logit_bias={"7": -3}, min_tokens=2, ignore_eos=True, max_completion_tokens=9, stream=True,
        stream_options={"include_usage": True}, logprobs=True, top_logprobs=4, user="me",
        kappa=0.3, rule="margin", policy={"name": "chain", "options": {"num_steps": 2}},
        return_trace=True,
    )  # fmt: skip
    assert ask.sampling == {
        "top_p": 0.5, "min_p": 0.1, "seed": 5, "presence_penalty": 1, "frequency_penalty": -1,
        "repetition_penalty": 1.5, "min_tokens": 2, "ignore_eos": True, "top_k": 3,
        "stop": ("x",), "stop_token_ids": (3,), "logit_bias": {7: -3},
    }  # fmt: skip
    assert (ask.temperature, ask.n, ask.max_tokens, ask.model) == (0.5, 2, 9, "m")
    assert (ask.stream, ask.include_usage, ask.return_trace) == (True, True, True)
    assert (ask.logprobs, ask.top_logprobs, ask.client, ask.kappa) == (True, 4, "me", 0.3)
    assert (ask.rule, ask.policy.name, ask.policy.options) == ("margin", "chain", {"num_steps": 2})


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_all_four_kinds_of_prompts(prompt, prompts):
    assert asked("completion", prompt=prompt).prompts == prompts


def test_top_k_off_is_written_in_two_ways():
    assert asked("chat", top_k=-1) == asked("chat", top_k=0) == asked("chat")


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("a", "messages[1]"),
        ({"content": "a"}, "messages[1].role"),
        ({"role": 3, "content": "a"}, "messages[1].role"),
        ({"role": "tool", "content": "a"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": []}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0]"),
        ({"role": "user", "content": ["a"]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": "a", "name": "me"}, "messages[1].name"),
        ({"role": "assistant", "content": "a", "tool_calls": [1]}, "messages[1].tool_calls"),
    ],
)
def test_a_message_that_cannot_be_used_is_named(message, place):
    error = refused("chat", messages=[*MESSAGES, message])
    assert error.param == "messages"
    assert error.message.startswith(place)


def test_text_parts_and_repeated_answers_are_messages():
    answer = {"role": "assistant", "content": "b", "refusal": None, "annotations": [],
              "tool_calls": None}  # fmt: skip
    parts = [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]
    ask = asked("chat", messages=[{"role": "developer", "content": "x"}, *MESSAGES, answer,
                                  {"role": "user", "content": parts}])  # fmt: skip
    assert ask.messages == [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "cd"},
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"3", b'"a"', b"null", b"\xff", b"{'a': 1}", b'{"a": NaN}',
        b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}', b'{"a": ' + b"9" * 30 + b"}", b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 200_000, b'{"a":' * 200_000, b'{"a": "\x00"}', b'{"a": 1} x',
    ],
)  # fmt: skip
def test_json_that_is_not_sound_is_refused(body):
    with pytest.raises(ApiError) as caught:
        parse(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert len(caught.value.message) < 300


def test_many_names_twice_are_found_at_once():
    names = ", ".join(f'"{i}": 0' for i in range(100_000))
    with pytest.raises(ApiError, match="'x' is given twice"):
        parse(f'{{{names}, "x": 1, "x": 2}}'.encode())


def test_bodies_with_any_text_can_be_written():
    text = '"\\\ud800 é 🙂 \x00 '
    assert json.loads(dumps({"a": text})) == {"a": text}

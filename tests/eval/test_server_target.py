"""The server target, by the real openai client against a server that plays its part."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.base import Answer, Ask
from adaptivespec.eval.targets.server import ServerTarget
from adaptivespec.eval.tasks.base import Item
from fakes.openai_server import MODEL, Script, serving

ASK = Ask(max_tokens=16)
ITEM = Item("echo", 0, ("one two three",))


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


@pytest.fixture
def target(url: str) -> Iterator[ServerTarget]:
    made = ServerTarget(url, timeout=20.0)
    yield made
    made.close()


def ask(target: ServerTarget, item: Item = ITEM, ask: Ask = ASK) -> Answer:
    return target.answer(target.arms[0], item, ask)


def test_an_answer_has_text_usage_times_and_chunks(target: ServerTarget) -> None:
    answer = ask(target)
    assert answer.error is None
    assert (answer.text, answer.finish_reason) == ("ONE TWO THREE ", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (3, 3)
    assert answer.chunks is not None
    assert [characters for _, characters in answer.chunks] == [4, 4, 6]
    times = [seconds for seconds, _ in answer.chunks]
    assert times == sorted(times)
    assert answer.first_token_s == times[0]
    assert 0 < times[-1] <= answer.seconds
    assert answer.stats is None
    assert answer.lossless is None


def test_what_the_run_asks_for_is_sent(script: Script, target: ServerTarget) -> None:
    ask(target, ask=Ask(max_tokens=2, stop=("\n",), temperature=0.5, seed=7, ignore_eos=True))
    [body] = script.bodies
    assert body["messages"] == [{"role": "user", "content": "one two three"}]
    sent = {name: body[name] for name in ("model", "max_tokens", "stop", "temperature", "seed")}
    assert sent == {
        "model": MODEL,
        "max_tokens": 2,
        "stop": ["\n"],
        "temperature": 0.5,
        "seed": 7,
    }
    assert body["ignore_eos"] is True
    assert "logprobs" not in body


def test_arms_add_their_own_fields(script: Script, url: str) -> None:
    bodies = {"strict": {"rule": "strict"}, "lossy": {"custom_params": {"a": {"kappa": 0.2}}}}
    target = ServerTarget(url, bodies=bodies)
    assert [(arm.name, arm.role, arm.rule) for arm in target.arms] == [
        ("strict", "arm", ""),
        ("lossy", "arm", ""),
    ]
    for arm in target.arms:
        assert target.answer(arm, ITEM, ASK).error is None
    assert script.bodies[0]["rule"] == "strict"
    assert "custom_params" not in script.bodies[0]
    assert script.bodies[1]["custom_params"] == {"a": {"kappa": 0.2}}
    target.close()


def test_an_arm_cannot_ask_another_question(url: str) -> None:
    with pytest.raises(ConfigError, match="max_tokens, temperature"):
        ServerTarget(url, bodies={"hot": {"temperature": 1, "max_tokens": 9, "top_k": 3}})


def test_later_turns_follow_the_answers_to_earlier_ones(
    script: Script, target: ServerTarget
) -> None:
    script.extra = {"metrics": {"speculative_decoding": SPECULATION}}
    answer = ask(target, Item("echo", 0, ("one two", "three")))
    assert [message["content"] for message in script.bodies[1]["messages"]] == [
        "one two",
        "ONE TWO ",
        "three",
    ]
    assert answer.text == "THREE "
    assert (answer.prompt_tokens, answer.completion_tokens) == (2 + 5, 2 + 1)
    assert answer.stats is not None
    assert answer.stats["num_spec_steps"] == 8
    assert answer.stats["accept_length"] == 10 / 8 + 1


SPECULATION = {
    "mean_acceptance_length": 2.25,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [1, 2, 0, 1],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 5,
    "num_draft_tokens": 10,
}


def test_statistics_of_vllm_and_of_this_package(script: Script, target: ServerTarget) -> None:
    ours = {"num_promoted_tokens": 2, "regret_nats": 0.75, "lossless": False, "mean_tree_nodes": 9}
    script.extra = {"metrics": {"speculative_decoding": SPECULATION | ours, "time": 3}}
    answer = ask(target)
    assert answer.lossless is False
    assert answer.stats == {
        "accept_length": 2.25,
        "acceptance_rate": 0.5,
        "acceptance_histogram": {"0": 1, "1": 2, "3": 1},
        "num_spec_steps": 4,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 10,
        "num_promoted_tokens": 2,
        "regret_nats": 0.75,
        "mean_tree_nodes": 9,
    }


def test_statistics_of_llama_cpp(script: Script, target: ServerTarget) -> None:
    script.extra = {"timings": {"predicted_n": 11, "draft_n": 12, "draft_n_accepted": 6}}
    stats = ask(target).stats
    assert stats is not None
    assert (stats["num_spec_steps"], stats["accept_length"]) == (4, 10 / 4)
    script.extra = {"timings": {"predicted_n": 11}}
    assert ask(target).stats is None


def test_sglang_is_asked_for_its_statistics(script: Script, url: str) -> None:
    script.models = [{"id": "m", "owned_by": "sglang"}]
    script.extra = {
        "sglext": {
            "spec_tokens_details": {
                "spec_verify_ct": 4,
                "spec_num_correct_drafts": 5,
                "spec_num_proposed_drafts": 10,
                "spec_accept_rate": 0.1,
            }
        }
    }
    plugin = {"num_spec_steps": 4, "accept_length": 2.25, "lossless": False, "rule": "margin:0.2"}
    script.choice_extra = {"meta_info": {"id": "1", "adaptivespec": plugin | {"triples": {}}}}
    target = ServerTarget(url)
    timed, detailed = ask(target), ask(target, ask=Ask(16, detail=True))
    target.close()
    assert script.bodies[0]["return_spec_tokens_details"] is True
    assert timed.stats is not None
    assert (timed.stats["accept_length"], timed.stats["acceptance_rate"]) == (2.25, 0.5)
    assert script.bodies[1]["return_meta_info"] is True
    assert "stream" not in script.bodies[1]
    assert detailed.text == timed.text
    assert (detailed.lossless, detailed.rule) == (False, "margin:0.2")
    assert detailed.stats is not None
    assert "triples" not in detailed.stats


def test_log_probabilities_come_with_details(script: Script, target: ServerTarget) -> None:
    answer = ask(target, ask=Ask(16, detail=True))
    assert (answer.nll, answer.nll_tokens) == (1.5, 3)
    assert answer.pieces == ["ONE ", "TWO ", "THREE "]
    script.refuses_logprobs = True
    for _ in range(2):
        answer = ask(target, ask=Ask(16, detail=True))
        assert answer.error is None
        assert answer.nll is None
    assert [body.get("logprobs") for body in script.bodies] == [True, True, None, None]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"status": 500}, "http 500: "),
        ({"status": 429}, "http 429: "),
        ({"fault": "cut"}, "connection: "),
        ({"fault": "no finish"}, "answer: the stream was cut"),
        ({"fault": "no usage"}, "answer: no usage"),
        ({"fault": "bad json"}, "answer: JSONDecodeError"),
        ({"fault": "error event"}, "server: out of memory"),
        ({"finish": "content_filter"}, "answer: it ended by finish_reason 'content_filter'"),
    ],
)
def test_faults_come_back_as_errors(
    script: Script, target: ServerTarget, change: dict[str, object], error: str
) -> None:
    for name, value in change.items():
        setattr(script, name, value)
    answer = ask(target)
    assert answer.error is not None
    assert answer.error.startswith(error), answer.error
    assert "\n" not in answer.error
    assert (answer.text, answer.completion_tokens) == ("", 0)
    assert len(script.bodies) == 1, "nothing is tried twice"
    script.status, script.fault, script.finish = 200, "", "stop"
    assert ask(target).error is None, "the next request is as good as ever"


@pytest.mark.parametrize("change", [{"fault": "endless"}, {"first_s": 30.0}])
def test_what_takes_too_long_ends(script: Script, url: str, change: dict[str, object]) -> None:
    for name, value in change.items():
        setattr(script, name, value)
    target = ServerTarget(url, timeout=0.3)
    begin = time.monotonic()
    answer = ask(target)
    target.close()
    assert answer.error == "timeout: no whole answer in 0.3 s"
    assert time.monotonic() - begin < 15


def test_a_slow_first_token_shows_in_its_time(script: Script, target: ServerTarget) -> None:
    script.first_s = 0.1
    answer = ask(target)
    assert answer.first_token_s is not None
    assert answer.first_token_s >= 0.1


def test_a_server_that_cannot_be_used_is_named_with_the_remedy(script: Script, url: str) -> None:
    with pytest.raises(TargetError, match=r"no model 'other'.*It lists: echo"):
        ServerTarget(url, model="other")
    with pytest.raises(TargetError, match=r"http 404.*/v1"):
        ServerTarget(url.replace("/v1", "/v2"))
    with pytest.raises(TargetError, match="not OpenAI's interface"):
        ServerTarget(url.replace("/v1", "/page"))
    with pytest.raises(TargetError, match="no address"):
        ServerTarget("localhost:8000")
    script.key = "secret"
    with pytest.raises(TargetError, match=r"http 401.*key"):
        ServerTarget(url)
    ServerTarget(url, api_key="secret").close()
    script.models = []
    with pytest.raises(TargetError, match="lists no model"):
        ServerTarget(url, api_key="secret")


def test_a_server_that_is_not_there() -> None:
    script = Script()
    with serving(script) as url:
        target = ServerTarget(url)
    answer = ask(target)
    target.close()
    assert answer.error is not None
    assert answer.error.startswith("connection: ")
    with pytest.raises(TargetError, match="running"):
        ServerTarget(url)


def test_secrets_of_the_address_are_not_shown(url: str) -> None:
    target = ServerTarget(url.replace("http://", "http://me:secret@"), model=MODEL)
    target.close()
    assert "secret" not in target.about
    assert target.identity == {"model": MODEL, "owned_by": "tests"}
    with pytest.raises(TargetError) as refused:
        ServerTarget("http://me:secret@127.0.0.1:1")
    assert "secret" not in str(refused.value)


def test_no_request_can_meet_a_connection_that_was_closed_for_idleness(
    script: Script, target: ServerTarget
) -> None:
    for _ in range(3):
        assert ask(target).error is None
    assert script.reused == 0

"""Our engine as a model of lm-eval. What can be tested without lm-eval is tested without it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adaptivespec.core.errors import ConfigError, ContextLengthError
from adaptivespec.engine.scoring import token_logprobs
from adaptivespec.integrations.lm_eval.requests import (
    STAMP,
    continue_from,
    device_of,
    guard_cache,
    sampling_of,
)
from fakes import tiny, tiny_engine

needs_lm_eval = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm-eval is not installed"
)
GREEDY = {"stop": (), "max_tokens": 256, "temperature": 0.0}


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({}, {}),
        ({"until": "\n"}, {"stop": ("\n",)}),
        ({"until": ["a", "", "b"], "max_gen_toks": 9}, {"stop": ("a", "b"), "max_tokens": 9}),
        ({"max_new_tokens": 7, "max_tokens": 7}, {"max_tokens": 7}),
        ({"until": None, "do_sample": False, "top_p": 0.5, "num_beams": 1}, {}),
        ({"do_sample": False, "temperature": 0.8}, {}),
        ({"do_sample": True, "temperature": 0}, {}),
        ({"temperature": 0.8}, {"temperature": 0.8, "seed": 5, "top_k": 0}),
        ({"do_sample": True}, {"temperature": 1.0, "seed": 5, "top_k": 0}),
        (
            {"temperature": 1, "top_k": -1, "top_p": 0.9, "seed": 3},
            {"temperature": 1.0, "seed": 3, "top_k": 0, "top_p": 0.9},
        ),
        ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
    ],
)
def test_generation_arguments_become_our_options(
    asked: dict[str, Any], options: dict[str, Any]
) -> None:
    assert sampling_of(asked, max_tokens=256, seed=5) == GREEDY | options


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"max_gen_toks": 7, "max_tokens": 8}, "max_gen_toks"),
        ({"num_beams": 4}, "num_beams"),
        ({"length_penalty": 2.0, "typical_p": 0.1}, "length_penalty, typical_p"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sampling_of(asked, max_tokens=256, seed=0)
    assert refused.value.field == field


def test_a_message_that_goes_on_is_left_open() -> None:
    assert continue_from("<u>Hi<end><a>The answer is<end>\n", "The answer is ") == (
        "<u>Hi<end><a>The answer is"
    )
    assert continue_from("<u>is<end><a>is<end>", "is") == "<u>is<end><a>is"
    assert continue_from("<u>Hi<end>", "") == "<u>Hi<end>"


def test_a_cache_of_answers_serves_one_rule() -> None:
    answers: dict[str, Any] = {}
    strict, lossy = {"rule": "strict", "policy": "dcs"}, {"rule": "margin", "policy": "dcs"}
    guard_cache(answers, strict)
    answers["a request"] = "its answer"
    guard_cache(answers, dict(reversed(strict.items())))
    with pytest.raises(ConfigError, match="another model, rule or policy"):
        guard_cache(answers, lossy)
    del answers[STAMP]
    with pytest.raises(ConfigError, match="does not name"):
        guard_cache(answers, strict)


def test_the_command_says_what_is_missing(root: Path) -> None:
    code = (
        "import sys; sys.modules['lm_eval'] = None; sys.argv = ['lm_eval', '--tasks', 'x'];"
        "from adaptivespec.integrations.lm_eval.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 2
    assert "pip install lm-eval" in done.stderr


def request(*args: Any) -> Any:
    return SimpleNamespace(args=args)


@pytest.fixture
def lm() -> Any:
    from adaptivespec.integrations.lm_eval.model import AdaptiveSpecLM

    return AdaptiveSpecLM(engine=tiny_engine.engine(), rule="margin:0.2", policy="chain:3")


@needs_lm_eval
def test_log_likelihoods_are_the_targets(lm: Any) -> None:
    requests = [("3 4 5", " 6 7"), ("3 4 5", " 8"), ("3 4 5 ", "9"), ("", "3 4")]
    got = lm.loglikelihood([request(*texts) for texts in requests], disable_tqdm=True)
    ids = [([3, 4, 5], [6, 7]), ([3, 4, 5], [8]), ([3, 4, 5], [9]), ([0], [3, 4])]
    for (total, greedy), (context, continuation) in zip(got, ids, strict=True):
        want = token_logprobs(tiny.target(), context, continuation)
        assert total == pytest.approx(want.total, abs=1e-4)
        assert greedy is want.all_greedy


@needs_lm_eval
def test_what_greedy_decoding_writes_is_greedy(lm: Any) -> None:
    strict = tiny_engine.engine().generate([3, 4, 5], raw=True, max_tokens=3)
    [(_, greedy)] = lm.loglikelihood([request("3 4 5", " " + strict.text)], disable_tqdm=True)
    assert greedy


@needs_lm_eval
@pytest.mark.parametrize("length", [0, 1, 5, tiny.MAX_LEN, tiny.MAX_LEN + 1, 2 * tiny.MAX_LEN + 9])
def test_rolling_log_likelihoods_count_every_token_once(lm: Any, length: int) -> None:
    ids = [(7 * n) % 60 + 1 for n in range(length)]
    text = " ".join(map(str, ids))
    [total] = lm.loglikelihood_rolling([request(text)], disable_tqdm=True)
    want, size = 0.0, tiny.MAX_LEN
    if length:
        want = token_logprobs(tiny.target(), [0], ids[:size]).total
    for start in range(size, length, size):  # each window is full, and scores what is new
        end = min(start + size, length)
        context = ids[end - size - 1 : start]
        want += token_logprobs(tiny.target(), context, ids[start:end]).total
    assert total == pytest.approx(want, abs=1e-2)


@needs_lm_eval
def test_texts_that_do_not_fit_are_errors(lm: Any) -> None:
    long = " ".join(["3"] * (tiny.MAX_LEN + 1))
    with pytest.raises(ContextLengthError):
        lm.loglikelihood([request(long, " 4")], disable_tqdm=True)
    with pytest.raises(ContextLengthError):
        lm.generate_until([request(long, {"until": []})], disable_tqdm=True)


@needs_lm_eval
def test_answers_are_those_of_the_rule_and_end_as_asked(lm: Any) -> None:
    asked = {"until": ["9"], "max_gen_toks": 12}
    got = lm.generate_until([request("3 4 5", asked), request("", asked)], disable_tqdm=True)
    engine = tiny_engine.engine()
    for text, prompt in zip(got, ([3, 4, 5], [0]), strict=True):
        want = engine.generate(
            prompt, rule="margin:0.2", policy="chain:3", max_tokens=12, stop=("9",)
        )
        assert text == want.text
    info = lm.get_model_info()
    assert (info["rule"], info["policy"]) == ("margin:kappa=0.2", "chain:num_steps=3")
    assert info["lossless"] is False
    assert info["generated"]["answers"] == 2
    assert json.dumps(info)


@needs_lm_eval
def test_two_rules_cannot_share_a_cache(tmp_path: Path) -> None:
    from lm_eval.api.model import CachingLM

    from adaptivespec.integrations.lm_eval.model import AdaptiveSpecLM

    def cached(rule: str) -> Any:
        lm = AdaptiveSpecLM(engine=tiny_engine.engine(), rule=rule, policy="chain:3")
        return CachingLM(lm, str(tmp_path / "answers.db"))

    asked = [request("3 4 5", {"until": [], "max_gen_toks": 9})]
    first = cached("strict")
    want = first.generate_until(asked)
    first.dbdict.close()
    again = cached("strict")
    again.lm.generate_until = pytest.fail  # the cache answers
    assert again.generate_until(asked) == want
    again.dbdict.close()
    with pytest.raises(ConfigError, match="use_cache"):
        cached("margin:0.2")


@needs_lm_eval
def test_lm_eval_finds_the_model_once_it_is_registered() -> None:
    from lm_eval.api.registry import get_model

    from adaptivespec.integrations.lm_eval import register
    from adaptivespec.integrations.lm_eval.model import AdaptiveSpecLM

    register()
    register()
    assert get_model("adaptivespec") is AdaptiveSpecLM


@needs_lm_eval
@pytest.mark.network
@pytest.mark.slow
def test_the_example_tasks_run(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adaptivespec.integrations.lm_eval", "--model", "adaptivespec"]
    command += ["--model_args", "rule=margin:0.2,threads=1", "--include_path", "examples/lm_eval"]
    command += ["--tasks", "example_capitals,example_endings", "--apply_chat_template"]
    done = subprocess.run(
        [*command, "--limit", "4", "--output_path", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    [file] = tmp_path.rglob("results*.json")
    results = json.loads(file.read_text())
    assert results["config"]["lossless"] is False
    assert results["results"]["example_endings"]["acc,none"] >= 0.5


@pytest.mark.parametrize(
    ("asked", "backend", "there", "used"),
    [
        (None, "auto", True, "cpu"),
        ("cpu", "auto", True, "cpu"),
        ("cuda:0", "auto", False, "cpu"),
        ("cuda:0", "native", True, "cpu"),
        ("cuda:0", "auto", True, "cuda:0"),
        ("cuda:1", "auto", False, "cuda:1"),
    ],
)
def test_what_lm_eval_asks_for_by_itself_is_used_where_it_is_there(
    asked: str | None, backend: str, there: bool, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert device_of(asked, backend) == used

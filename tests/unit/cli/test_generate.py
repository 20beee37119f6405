"""`adaptivespec generate` with a fake engine: streams, JSON, traces, prompts, errors."""

from __future__ import annotations

import json

import pytest

from fakes.engine import TEXT

RECORD = ("-p", "x", "--trace", "/no/such/place/t.jsonl", "--record-width")


def test_text_on_stdout_statistics_on_stderr(run):
    result = run("generate", "-p", "Why?")
    assert result.exit_code == 0
    assert result.stdout == TEXT + "\n"
    for words in ("accept length", "per step", "time per step", "tokens/s", "lossless: yes"):
        assert words in result.stderr


def test_quiet_leaves_stderr_empty(run):
    result = run("generate", "-p", "Why?", "--quiet", "--rule", "paper")
    assert result.stdout == TEXT + "\n"
    assert result.stderr == ""


def test_json_is_one_object_and_nothing_else(run):
    result = run("generate", "-p", "Why?", "--json")
    answer = json.loads(result.stdout)
    assert answer["text"] == TEXT
    assert set(answer) >= {"text", "token_ids", "finish_reason", "usage", "lossless", "timings"}
    assert result.stdout.count("\n") == 1
    assert "accept length" not in result.stderr


def test_trace_has_one_line_per_step(run, tmp_path):
    file = tmp_path / "steps.jsonl"
    result = run("generate", "-p", "Why?", "--trace", str(file))
    assert result.exit_code == 0
    header, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert header["adaptivespec_trace"] == 1
    assert (header["model"], header["draft_model"], header["policy"]) == (
        "fake",
        "fake-head",
        "auto",
    )
    assert (header["stop_ids"], header["protected"]) == ([0], [0, 1])
    assert (header["record_width"], header["prompt_tokens"]) == (None, 3)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]


def test_a_recording_reaches_the_engine_and_the_header(run, engine, tmp_path):
    file = tmp_path / "t.jsonl"
    arguments = ("generate", "-p", "Why?", "--trace", str(file), "--record-width", "3")
    assert run(*arguments).exit_code == 0
    assert engine.calls[0].record == (3, 8)
    assert run(*arguments, "--record-depth", "5").exit_code == 0
    assert engine.calls[1].record == (3, 5)
    header = json.loads(file.read_text().partition("\n")[0])
    assert (header["record_width"], header["record_depth"]) == (3, 5)


def test_default_is_strict_and_lossless(run, engine):
    result = run("generate", "-p", "Why?")
    assert engine.calls[0].rule == "strict"
    assert engine.calls[0].policy == "auto"
    assert "lossy" not in result.stderr


@pytest.mark.parametrize("rule", [("margin", "--kappa", "0.2"), ("paper",), ("safe",)])
def test_lossy_is_disclosed_once(run, rule):
    result = run("generate", "-p", "Why?", "--rule", *rule)
    assert result.exit_code == 0
    assert result.stderr.count("is lossy") == 1
    assert "lossless: no" in result.stderr


def test_options_reach_the_engine(run, engine):
    result = run(
        *("generate", "some/model", "-p", "Why?", "--draft-model", "d", "--dtype", "float32"),
        *("--rule", "margin", "--kappa", "0.3", "--rule-option", "exact-between=true"),
        *("--policy", "dcs", "--policy-option", "alpha=0.2", "--max-tokens", "9"),
        *("--temperature", "0.5", "--top-p", "0.9", "--top-k", "7", "--min-p", "0.1"),
        *("--seed", "3", "--stop", "A", "--stop", "B", "--min-tokens", "2", "--ignore-eos"),
        *("--threads", "1", "--max-model-len", "99", "--offline", "--revision", "r", "--logprobs"),
        *("--repetition-penalty", "1.1", "--presence-penalty", "1", "--frequency-penalty", "-1"),
    )
    assert result.exit_code == 0, result.stderr
    loaded, call = engine.loaded_with, engine.calls[0]
    assert loaded["model"] == "some/model"
    assert loaded["draft_model"] == "d"
    assert loaded["dtype"] == "float32"
    assert (loaded["threads"], loaded["max_model_len"]) == (1, 99)
    assert loaded["local_files_only"] is True
    assert loaded["revision"] == "r"
    assert (call.rule, call.kappa, call.rule_options) == ("margin", 0.3, {"exact_between": True})
    assert (call.policy, call.policy_options) == ("dcs", {"alpha": 0.2})
    assert (call.max_tokens, call.min_tokens, call.ignore_eos) == (9, 2, True)
    assert (call.temperature, call.top_p, call.top_k, call.min_p) == (0.5, 0.9, 7, 0.1)
    assert (call.repetition_penalty, call.presence_penalty, call.frequency_penalty) == (1.1, 1, -1)
    assert (call.seed, call.stop) == (3, ("A", "B"))
    assert call.logprobs is True


def test_sglang_spellings_mean_static(run, engine):
    run("generate", "-p", "Why?", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1")
    assert engine.calls[0].policy == "static"
    assert engine.calls[0].policy_options == {"num_steps": 3, "topk": 1}


def test_system_message_makes_a_chat(run, engine):
    run("generate", "-p", "Why?", "--system", "Be brief.")
    assert [message["role"] for message in engine.calls[0].messages] == ["system", "user"]


def test_logprobs_table(run):
    result = run("generate", "-p", "Why?", "--logprobs")
    assert "margin" in result.stderr
    assert "promoted" in result.stderr


@pytest.mark.parametrize(
    ("argument", "given", "expected"),
    [
        ("-", "from stdin\n", "from stdin"),
        ("-", "two\n\n", "two\n"),
        ("-", "\ufeffwith a mark\n", "with a mark"),
        ("@@name", "", "@name"),
        ("plain", "ignored", "plain"),
    ],
)
def test_prompt_sources(run, engine, argument, given, expected):
    result = run("generate", "-p", argument, input=given)
    assert result.exit_code == 0, result.stderr
    assert engine.calls[0].prompt == expected


def test_prompt_from_a_file(run, engine, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("from a file\n", encoding="utf-8")
    run("generate", "-p", f"@{file}", "--raw")
    assert engine.calls[0].prompt == "from a file"
    assert engine.calls[0].raw is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["prompt", "-p TEXT"]),
        (["-p", ""], ["prompt", "empty"]),
        (["-p", " \n"], ["prompt", "empty"]),
        (["-p", "@/no/such/file"], ["prompt", "cannot read", "@@"]),
        (["-p", "x", "--rule", "margn"], ["rule", "margin"]),
        (["-p", "x", "--rule", "margin:2,3,4,5,6,7,8,9,10,11"], ["rule"]),
        (["-p", "x", "--policy", "dsc"], ["policy", "dcs"]),
        (["-p", "x", "--rule", "margin", "--kappa", "-1"], ["kappa"]),
        (["-p", "x", "--rule", "strict", "--kappa", "0.2"], ["kappa"]),
        (["-p", "x", "--rule", "margin", "--rule-option", "kapa=1"], ["kapa", "kappa"]),
        (["-p", "x", "--rule-option", "kappa"], ["NAME=VALUE"]),
        (["-p", "x", "--policy-option", "alpha=1"], ["auto", "--policy"]),
        (["-p", "x", "--policy", "dcs", "--speculative-num-steps", "3"], ["policy", "static"]),
        (["-p", "x", "--max-tokens", "0"], ["max_tokens"]),
        (["-p", "x", "--temperature", "-1"], ["temperature"]),
        (["-p", "x", "--top-p", "1.5"], ["top_p"]),
        (["-p", "x", "--dtype", "int3"], ["dtype", "bfloat16"]),
        (["-p", "x", "--raw", "--system", "y"], ["system", "--raw"]),
        (["-p", "x", "--trace", "/no/such/place/t.jsonl"], ["trace", "cannot write"]),
        (["-p", "x", "--record-width", "4"], ["trace", "--trace FILE"]),
        ([*RECORD, "0"], ["record_width", "[1, 16]"]),
        ([*RECORD, "17"], ["record_width", "[1, 16]"]),
        ([*RECORD, "4", "--record-depth", "65"], ["record_depth", "[1, 64]"]),
        (["-p", "x", "--trace", "t", "--record-depth", "4"], ["record_depth", "--record-width"]),
        ([*RECORD, "4", "--rule", "paper"], ["rule", "replay --rules"]),
        ([*RECORD, "4", "--temperature", "1"], ["temperature", "--record-width"]),
        ([*RECORD, "4", "--policy", "dcs"], ["policy", "replay --policies"]),
        (["m1", "-p", "x", "--model", "m2"], ["m1", "m2"]),
        (["-p", "x" * 2000], ["prompt", "do not fit", "Shorten"]),
    ],
)
@pytest.mark.parametrize("json_too", [False, True])
def test_bad_input_exits_2_with_a_remedy(run, arguments, words, json_too):
    result = run("generate", *arguments, *(["--json"] if json_too else []))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_input_is_checked_before_the_model_is_loaded(run, engine):
    run("generate", "-p", "x", "--rule", "nope")
    run("generate", "-p", "x", "--policy", "nope")
    run("generate", "-p", "x", "--max-tokens", "0")
    assert engine.loaded_with == {}


def test_stdin_that_is_not_text(run):
    result = run("generate", "-p", "-", input=b"\xff\xfe\x00")
    assert result.exit_code == 2
    assert "UTF-8" in result.stderr


def test_unexpected_errors_are_one_line_unless_debugged(run, engine, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(engine, "stream", broken)
    result = run("generate", "-p", "x")
    assert result.exit_code == 1
    assert "out of luck" in result.stderr
    assert "--debug" in result.stderr
    result = run("generate", "-p", "x", "--debug")
    assert isinstance(result.exception, RuntimeError)


def test_zero_steps_show_no_number(run, engine):
    engine.words = []
    result = run("generate", "-p", "x")
    assert result.exit_code == 0
    assert "nan" not in result.stderr.lower()

"""`adaptivespec generate` and `chat` with the embedded model."""

from __future__ import annotations

import json
import signal

import pytest

pytestmark = pytest.mark.network

PROMPT = "Why is the sky blue?"
SPECULATIVE = {
    "accept_length",
    "num_spec_steps",
    "num_draft_tokens",
    "num_accepted_draft_tokens",
    "num_promoted_tokens",
    "regret_nats",
    "mean_tree_nodes",
    "accepted_per_pos",
}


def answer(cli, *options: str) -> dict:
    done = cli("generate", "-p", PROMPT, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_has_the_documented_schema(cli, tmp_path):
    trace = tmp_path / "steps.jsonl"
    options = ("--rule", "margin", "--kappa", "0.2", "--policy", "dcs", "--max-tokens", "24")
    result = answer(cli, *options, "--trace", str(trace))
    assert set(result) == {
        *("text", "token_ids", "finish_reason", "usage", "lossless", "rule", "policy"),
        *("speculative", "timings"),
    }
    assert set(result["usage"]) == {"prompt_tokens", "completion_tokens"}
    assert set(result["speculative"]) == SPECULATIVE
    assert set(result["timings"]) == {"prefill_s", "draft_s", "verify_s", "host_s", "total_s"}
    assert result["finish_reason"] == "length"
    assert result["usage"]["completion_tokens"] == len(result["token_ids"]) == 24
    assert result["lossless"] is False
    assert result["text"].strip()

    lines = trace.read_text(encoding="utf-8").splitlines()
    header, *steps = [json.loads(line) for line in lines]
    assert (header["rule"], header["policy"]) == (result["rule"], result["policy"])
    numbers = result["speculative"]
    assert len(steps) == numbers["num_spec_steps"]
    for total, part in (
        ("num_draft_tokens", "num_verified"),
        ("num_accepted_draft_tokens", "num_accepted"),
        ("num_promoted_tokens", "num_promoted"),
    ):
        assert numbers[total] == sum(step[part] for step in steps)
    assert numbers["regret_nats"] == pytest.approx(sum(step["regret"] for step in steps))
    assert all({"plan", "path", "nodes", "kinds", "seconds"} <= set(step) for step in steps)


def test_strict_speculation_is_plain_decoding(cli):
    options = ("--dtype", "float32", "--max-tokens", "32")
    plain = answer(cli, *options, "--policy", "none")
    tree = answer(cli, *options, "--policy", "static:3,2,6")
    assert tree["token_ids"] == plain["token_ids"]
    assert tree["lossless"] is plain["lossless"] is True
    assert tree["speculative"]["num_promoted_tokens"] == 0
    assert tree["speculative"]["accept_length"] > plain["speculative"]["accept_length"] == 1


def test_a_seed_repeats_the_answer(cli):
    options = ("--temperature", "0.8", "--seed", "7", "--max-tokens", "16", "--rule", "paper")
    assert answer(cli, *options)["token_ids"] == answer(cli, *options)["token_ids"]


def test_prompt_from_standard_input_and_text_on_standard_output(cli):
    done = cli("generate", "-p", "-", "--max-tokens", "8", input=PROMPT + "\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "accept length" in done.stderr
    assert "lossless: yes" in done.stderr


def test_one_token_needs_no_draft(cli):
    done = cli("generate", "-p", PROMPT, "--max-tokens", "1")
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stderr.lower()


def test_text_streams_and_ctrl_c_keeps_it(start):
    process = start("generate", "-p", PROMPT, "--max-tokens", "4000", "--ignore-eos")
    first = process.stdout.read(1)
    assert first
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert (first + out).decode().strip()
    assert b"cancelled" in err
    assert b"accept length" in err
    assert b"Traceback" not in err


def test_chat_takes_a_turn_per_line(cli):
    lines = "Hello!\n/rule paper\nWhat is the capital of France?\n/stats\n"
    done = cli("chat", "--max-tokens", "12", input=lines)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2
    assert "lossless: no" in done.stderr
    assert "time per step" in done.stderr

"""`train-head` as a user runs it: from questions to a head that drafts, in two goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adaptivespec.cli.main import app

pytestmark = pytest.mark.network


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_from_questions_to_a_head(tmp_path: Path) -> None:
    asked = tmp_path / "questions.jsonl"
    things = ("apple", "chair", "river", "stone", "train", "horse")
    lines = [{"prompt": f"Write one sentence about a {thing}.", "kind": "chat"} for thing in things]
    lines.append({"turns": ["Name a colour.", "Name another one."]})
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    head = tmp_path / "head"
    common = ("train-head", "--data", asked, "--output", head, "--max-len", "96", "--threads", "1")
    more = ("--held-out", "2", "--epochs", "1", "--check-prompts", "1", "--unroll-steps", "2")

    run(*common, *more, "--data-only")
    answers = (head / "corpus" / "00000.jsonl").read_text(encoding="utf-8")
    assert len(answers.splitlines()) >= 6
    assert not (head / "model.safetensors").exists()

    run(*common, *more)
    assert (head / "corpus" / "00000.jsonl").read_text(encoding="utf-8") == answers
    log = [json.loads(line) for line in (head / "log.jsonl").read_text("utf-8").splitlines()]
    assert log[-1]["step"] > log[0]["step"]
    assert set(log[-1]["accuracy"]) >= {"all", "chat"}
    assert "response tokens" in (head / "README.md").read_text(encoding="utf-8")

    printed = run("generate", "-p", "Say hello.", "--draft-model", head, "--max-tokens", "8")
    assert printed.strip()


def test_nothing_to_train_on_says_what_to_give(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train-head", "--output", str(tmp_path / "head")])
    assert result.exit_code == 2
    assert "--make-data" in result.output

"""`adaptivespec train-judge` on the tiny model, from prompts to a head in use."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from adaptivespec.cli import options
from adaptivespec.cli.main import app
from adaptivespec.verify.probe import Probe
from fakes import tiny_engine

MINING = [
    "--flips=12",
    "--flips-per-prompt=3",
    "--max-tokens=12",
    "--min-margin=0.001",
    "--policy=static:2,3,7",
    "--held-out=0.5",
]
Run = Callable[..., Result]


@pytest.fixture
def tiny_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Runs `train-judge` on twenty prompts; the handler of SIGTERM is put back afterwards."""
    engine = tiny_engine.engine(range(0, 61, 7), 2)
    monkeypatch.setattr(options, "create_engine", lambda *a, **k: engine)
    rows = [{"prompt": f"{a} {b}"} for a in range(1, 11) for b in (7, 25, 43)]
    data = tmp_path / "prompts.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))

    def run(output: str, *extra: str) -> Result:
        words = ["train-judge", f"--data={data}", f"--output={tmp_path / output}", *MINING, *extra]
        return CliRunner().invoke(app, words)

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


def test_a_head_from_prompts(tiny_run: Run, tmp_path: Path) -> None:
    result = tiny_run("out")
    assert result.exit_code == 0, result.output
    assert "harmless: " in result.stderr
    assert "AUC" in result.stderr
    assert "that of the margin" in result.stderr
    assert f"--rule judge --rule-option head={tmp_path / 'out'}" in result.stderr
    assert Probe.load(tmp_path / "out", "judge").target == "tiny"
    again = tiny_run("out", "--quiet")
    assert (again.exit_code, again.output) == (0, "")


def test_semantic(tiny_run: Run, tmp_path: Path) -> None:
    assert tiny_run("out", "--kind=semantic", "--quiet").exit_code == 0
    assert Probe.load(tmp_path / "out", "semantic").draft_hidden_size == 32


def test_a_terminated_run_goes_on(
    tiny_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = options.create_engine()
    generate, calls = engine.generate, []

    def counted(*arguments: object, **keywords: object) -> object:
        calls.append(arguments)
        if len(calls) == 9:
            os.kill(os.getpid(), signal.SIGTERM)
        return generate(*arguments, **keywords)

    assert tiny_run("whole", "--quiet").exit_code == 0
    monkeypatch.setattr(engine, "generate", counted)
    assert tiny_run("parts", "--quiet").exit_code == 130
    mined = (tmp_path / "parts" / "flips.jsonl").read_text()
    assert not (tmp_path / "parts" / "config.json").exists()
    assert tiny_run("parts", "--quiet").exit_code == 0
    flips = (tmp_path / "parts" / "flips.jsonl").read_text()
    assert flips.startswith(mined)
    assert flips == (tmp_path / "whole" / "flips.jsonl").read_text()
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "parts")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("--kind=jury", "Use judge or semantic"),
        ("--flips=0", "flips: must be at least 1"),
        ("--held-out=2", "held_out: must lie in (0, 1)"),
        ("--answer-regex=(", "answer_regex"),
        ("--answer-regex=x", "gave no flip"),
        ("--policy=nope", "unknown policy"),
    ],
)
def test_errors(tiny_run: Run, extra: str, words: str) -> None:
    result = tiny_run("out", "--max-minutes=0.000001", extra)
    assert result.exit_code == 2
    assert words in result.stderr


def test_help() -> None:
    result = CliRunner().invoke(app, ["train-judge", "--help"])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "Examples" in text
    assert "adaptivespec train-judge" in text

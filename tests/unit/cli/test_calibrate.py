"""`adaptivespec calibrate` with answers from a script."""

from __future__ import annotations

import json

import pytest

from adaptivespec.calibrate.certificate import Certificate
from adaptivespec.cli.calibrate_options import parse_numbers, parse_share
from adaptivespec.core.errors import ConfigError
from adaptivespec.eval import worker
from fakes.answering import AnsweringPool


def right_or_lost(rule, item):
    _, answer = item.reference
    lost = rule == "margin:0.1" and item.index % 2
    return "?" if lost else str(answer)


@pytest.fixture
def pool(monkeypatch):
    made = AnsweringPool(right_or_lost)

    def make(spec, workers=1):
        made.spec, made.workers = spec, workers
        return made

    monkeypatch.setattr(worker, "Pool", make)
    monkeypatch.setattr("os.fsync", lambda file: None)
    return made


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"prompt": f"{i} + 1", "answer": i + 1}) for i in range(80)]
    file.write_text("\n".join(lines), encoding="utf-8")
    return str(file)


@pytest.fixture
def calibrate(run, pool, prompts, tmp_path):
    folder = tmp_path / "out"

    def calibrate(*arguments):
        given = ("--prompts", prompts, "--grade", "number", "--kappas", "0.5,0.3,0.1")
        given += ("--max-drop", "5%", "--output", str(folder))
        return run("calibrate", *given, *arguments)

    calibrate.folder = folder
    return calibrate


def test_it_writes_a_certificate_a_report_and_a_plot(calibrate, pool):
    result = calibrate()
    assert result.exit_code == 0, result.stderr
    assert "at kappa 0.3, with 95% confidence, at most 5% of prompts lose" in result.stdout
    made = Certificate.read(calibrate.folder / "certificate.json")
    assert (made.kappa, made.n) == (0.3, 80)
    assert made.data.options[0] == "--prompts"
    for name in ("report.md", "loss.svg", "rows.jsonl", "settings.json"):
        assert (calibrate.folder / name).is_file()
    assert "--rule-config" in result.stderr
    assert pool.spec.place == "adaptivespec.eval.targets.engine:EngineTarget"


def test_what_it_writes_is_what_generate_reads(calibrate, run, engine):
    calibrate()
    run("generate", "-p", "x", "--rule-config", str(calibrate.folder / "certificate.json"))
    assert (engine.calls[-1].rule, engine.calls[-1].policy) == ("margin:0.3", "dcs")


def test_quiet_leaves_stderr_empty(calibrate):
    assert calibrate("--quiet").stderr == ""


def test_too_few_prompts_say_how_many_it_takes(calibrate):
    result = calibrate("--max-drop", "0.01")
    assert result.exit_code == 0
    assert "stay strict" in result.stdout
    assert "299 prompts certify a kappa without any loss; there were 80" in result.stderr


def test_options_reach_the_run(calibrate, pool):
    arguments = ("--loss", "drop", "--test", "hoeffding-bentkus", "--confidence", "0.9")
    calibrate(*arguments, "--policy", "static:2,2,4", "--rule", "margin:protect_digits=true",
              "--limit", "20", "--workers", "2", "-n", "9", "--dtype", "exact")  # fmt: skip
    made = Certificate.read(calibrate.folder / "certificate.json")
    assert (made.loss, made.test, made.confidence, made.n) == ("drop", "hoeffding-bentkus", 0.9, 20)
    assert (made.base, made.lossless) == ("margin:protect_digits=true", True)
    assert made.settings.max_tokens == {"prompts": 9}
    assert pool.asked[0][0] == "strict/static:2,2,4"
    assert pool.workers == 2
    assert pool.spec.options["dtype"] == "exact"
    assert pool.spec.options["threads"] >= 1


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        (("--max-drop", "lots"), "max_drop", "Write it like 1% or 0.01"),
        (("--max-drop", "0"), "max_drop", "between 0 and 1"),
        (("--confidence", "95"), "confidence", "between 0 and 1"),
        (("--kappas", "0.3,0.5"), "kappas", "must fall"),
        (("--kappas", "a"), "kappas", "no list of numbers"),
        (("--policy", "bogus"), "policy", "unknown policy"),
        (("--policy", "none"), "policy", "nothing is drafted"),
        (("--rule", "fly"), "rule", "not a margin rule"),
        (("--grade", "vibes"), "grade", "exact, contains"),
        (("--task", "gsm8k"), "prompts", "exactly one of --task and --prompts"),
        (("--workers", "0"), "workers", "at least 1"),
        (("--limit", "0"), "limit", "at least 1"),
        (("--loss", "drop", "--test", "clopper-pearson"), "test", "third value"),
    ],
)
def test_mistakes_end_with_2_before_anything_runs(calibrate, pool, arguments, field, words):
    result = calibrate(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {field}: ")
    assert words in result.stderr
    assert pool.asked == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "exactly one of --task and --prompts"),
        (("--task", "nothing"), "unknown tasks 'nothing'"),
        (("--task", "builtin", "--grade", "exact"), "a task has its own grader"),
        (("--prompts", "/no/such/file"), "cannot read"),
    ],
)
def test_mistakes_in_naming_prompts(run, pool, arguments, words):
    result = run("calibrate", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_ungraded_prompts_need_another_loss(run, pool, prompts, tmp_path):
    result = run("calibrate", "--prompts", prompts, "-o", str(tmp_path / "o"))
    assert result.exit_code == 2
    assert "Use --loss disagreement; prompts of your own are graded with --grade" in result.stderr


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.01", 0.01), (" 2.5 % ", 0.025), (".5", 0.5)]
)
def test_shares(text, share):
    assert parse_share(text, "x") == pytest.approx(share)


def test_lists_of_numbers():
    assert parse_numbers("0.9, 0.7,") == (0.9, 0.7)
    with pytest.raises(ConfigError):
        parse_numbers("0.9;0.7")

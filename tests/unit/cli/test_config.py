"""Flags beat the environment, which beats the file; unknown keys are errors."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def toml(tmp_path):
    def write(text: str, name: str = "options.toml") -> str:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


def test_file_gives_defaults(run, engine, toml):
    file = toml(
        'rule = "margin"\nkappa = 0.3\nmax-tokens = 2\nstop = ["#"]\n[generate]\nraw = true\n'
        "[chat]\nsystem = 'unused'\n"
    )
    result = run("generate", "-p", "x", "--config", file)
    assert result.exit_code == 0, result.stderr
    call = engine.calls[0]
    assert (call.rule, call.kappa, call.max_tokens, call.stop) == ("margin", 0.3, 2, ("#",))
    assert call.raw is True


def test_environment_beats_file_and_flag_beats_both(run, engine, toml, monkeypatch):
    file = toml("max_tokens = 2\ntemperature = 0.1\nseed = 1")
    monkeypatch.setenv("ADAPTIVESPEC_TEMPERATURE", "0.2")
    monkeypatch.setenv("ADAPTIVESPEC_SEED", "2")
    run("generate", "-p", "x", "--config", file, "--seed", "3")
    call = engine.calls[0]
    assert (call.max_tokens, call.temperature, call.seed) == (2, 0.2, 3)


def test_json_and_option_tables(run, engine, toml):
    content = {
        "rule": "margin",
        "rule_option": {"exact_between": True},
        "stop": "one",
        "seed": None,
    }
    run("generate", "-p", "x", "--config", toml(json.dumps(content), "options.json"))
    assert engine.calls[0].rule_options == {"exact_between": True}
    assert engine.calls[0].stop == ("one",)


@pytest.mark.parametrize("name", ["options.yaml", "options.yml"])
def test_yaml(run, engine, toml, name):
    text = "rule: margin\nkappa: 0.3\nstop: [one, 'two']\ngenerate:\n  max-tokens: 3\n  seed:\n"
    run("generate", "-p", "x", "--config", toml(text, name))
    call = engine.calls[0]
    assert (call.kappa, call.stop, call.max_tokens) == (0.3, ("one", "two"), 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kappa: [1", ["not valid YAML", "line 1", ".yaml or .yml as YAML"]),
        ("!!python/object/apply:os.system ['true']", ["not valid YAML"]),
        ("- kappa", ["table of options"]),
        ("just text", ["table of options"]),
        ("", ["table of options"]),
        ("1: 2", ["unknown key 1"]),
        ("kapa: 1", ["'kappa'"]),
        ("stop: 2024-01-01", ["stop takes text or a number", "quotes"]),
        ("max_tokens: 2024-01-01", ["max_tokens takes text or a number"]),
        ("raw: 'yes'", ["true or false"]),
        ("stop: &a [*a]", ["stop takes text or a number"]),
    ],
)
def test_mistakes_in_yaml(run, engine, toml, text, words):
    result = run("generate", "-p", "x", "--config", toml(text, "options.yaml"))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    assert engine.loaded_with == {}


def test_the_environment_may_name_the_file(run, engine, toml, monkeypatch):
    monkeypatch.setenv("ADAPTIVESPEC_CONFIG", toml("max_tokens = 3"))
    run("generate", "-p", "x")
    assert engine.calls[0].max_tokens == 3


def test_model_of_the_file_gives_way_to_the_argument(run, engine, toml):
    file = toml('model = "of-the-file"')
    run("generate", "-p", "x", "--config", file)
    assert engine.loaded_with["model"] == "of-the-file"
    run("generate", "named", "-p", "x", "--config", file)
    assert engine.loaded_with["model"] == "named"


def test_chat_reads_it_too(run, engine, toml):
    run("chat", "--config", toml('[chat]\nsystem = "S"\n[generate]\nraw = true'), input="hello\n")
    assert engine.calls[0].messages[0] == {"role": "system", "content": "S"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kapa = 1", ["unknown key 'kapa'", "'kappa'", "Legal keys:"]),
        ("prompt = 'x'", ["unknown key 'prompt'"]),
        ("config = 'x'", ["unknown key 'config'"]),
        ("max_tokens = [1]", ["max_tokens", "one value"]),
        ("max_tokens = true", ["max_tokens"]),
        ("stop = [2024-01-01]", ["stop takes text or a number"]),
        ("max_tokens = 'many'", ["--max-tokens"]),
        ("raw = 'yes'", ["raw", "true or false"]),
        ("generate = 1", ["[generate]", "table"]),
        ("[generate]\nkapa = 1", ["kapa"]),
        ("= broken", ["TOML"]),
        ("max_tokens = 0", ["max_tokens"]),
    ],
)
def test_mistakes_exit_2(run, engine, toml, text, words):
    result = run("generate", "-p", "x", "--config", toml(text))
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in result.stderr
    assert engine.loaded_with == {}


def test_no_such_file(run):
    result = run("generate", "-p", "x", "--config", "/no/such/file.toml")
    assert result.exit_code == 2
    assert "cannot read" in result.stderr

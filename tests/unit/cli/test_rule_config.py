"""--rule-config: the certificate's rule where it holds, strict with a warning where it does not."""

from __future__ import annotations

import json

import pytest

from adaptivespec.calibrate.identity import Weights
from fakes.certificates import certificate
from fakes.engine import TEXT


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "c.json"
    certificate().write(file)
    return str(file)


@pytest.fixture
def foreign(tmp_path):
    file = tmp_path / "foreign.json"
    certificate(model=Weights(name="another")).write(file)
    return str(file)


def test_its_rule_and_policy_reach_the_engine(run, engine, path):
    result = run("generate", "-p", "x", "--rule-config", path, "--json")
    assert result.exit_code == 0
    assert (engine.calls[0].rule, engine.calls[0].policy) == ("margin:0.3", "dcs")
    assert engine.prepared[0][0] == "dcs"
    answer = json.loads(result.stdout)
    assert (answer["rule"], answer["lossless"]) == ("margin:0.3", False)
    assert "rule margin:0.3 is lossy" in result.stderr


def test_the_environment_and_a_file_may_name_it(run, engine, path, tmp_path):
    run("generate", "-p", "x", env={"ADAPTIVESPEC_RULE_CONFIG": path})
    config = tmp_path / "config.toml"
    config.write_text(f'rule-config = "{path}"\n')
    run("generate", "-p", "x", "--config", str(config))
    assert [call.rule for call in engine.calls] == ["margin:0.3", "margin:0.3"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "static"), "policy is static, the certificate's dcs"),
        (("--speculative-num-steps", "3"), "policy is static:num_steps=3"),
        (("--temperature", "0.7"), "temperature is 0.7, the certificate's 0"),
    ],
)
def test_where_it_does_not_hold_strict_serves_and_says_why(run, engine, path, arguments, words):
    result = run("generate", "-p", "x", "--rule-config", path, "--json", *arguments)
    assert result.exit_code == 0
    assert engine.calls[0].rule == "strict"
    assert words in result.stderr
    assert "strict serves" in result.stderr
    assert json.loads(result.stdout)["lossless"] is True


def test_another_model_is_refused_with_the_command_for_a_new_one(run, engine, foreign):
    result = run("generate", "-p", "x", "--rule-config", foreign)
    assert (result.exit_code, result.stdout) == (0, TEXT + "\n")
    assert (engine.calls[0].rule, engine.calls[0].policy) == ("strict", "auto")
    assert "model is fake, the certificate's another" in result.stderr
    assert "adaptivespec calibrate" in result.stderr


@pytest.mark.parametrize("words", [("--policy", "dcs"), ("--policy", "dcs:alpha=0.3")])
def test_the_same_policy_in_other_words_is_the_same(run, engine, path, words):
    run("generate", "-p", "x", "--rule-config", path, *words)
    assert (engine.calls[0].rule, engine.calls[0].policy) == ("margin:0.3", words[1])


@pytest.mark.parametrize(
    ("arguments", "environment", "name"),
    [
        (("--rule", "strict"), {}, "--rule"),
        (("--rule", "paper"), {}, "--rule"),
        (("--kappa", "0.5"), {}, "--kappa"),
        (("--rule-option", "max_regret=4"), {}, "--rule-option"),
        ((), {"ADAPTIVESPEC_RULE": "paper"}, "--rule"),
    ],
)
def test_a_rule_beside_it_is_a_mistake(run, engine, path, arguments, environment, name):
    result = run("generate", "-p", "x", "--rule-config", path, *arguments, env=environment)
    assert result.exit_code == 2
    assert f"{name} is given as well" in result.stderr
    assert engine.loaded_with == {}


@pytest.mark.parametrize("command", [("generate", "-p", "x"), ("chat",)])
def test_a_bad_file_ends_before_the_model_is_loaded(run, engine, path, tmp_path, command):
    changed = tmp_path / "changed.json"
    with open(path, encoding="utf-8") as file:
        changed.write_text(file.read().replace('"kappa": 0.3,', '"kappa": 0.2,'))
    for file, words in ((changed, "no sound certificate"), (tmp_path / "none.json", "cannot read")):
        result = run(*command, "--rule-config", str(file), input="Hello\n")
        assert result.exit_code == 2
        assert "rule_config: " in result.stderr
        assert words in result.stderr
    assert engine.loaded_with == {}


def test_quiet_keeps_the_warning_back(run, engine, foreign):
    result = run("generate", "-p", "x", "--rule-config", foreign, "--quiet")
    assert result.stderr == ""
    assert engine.calls[0].rule == "strict"


def test_a_chat_keeps_to_it(run, engine, path):
    lines = "one\n/policy static\ntwo\n/policy dcs\nthree\n/rule paper\nfour\n"
    result = run("chat", "--rule-config", path, input=lines)
    assert [(call.rule, call.policy) for call in engine.calls] == [
        ("margin:0.3", "dcs"),
        ("strict", "static"),
        ("margin:0.3", "dcs"),
        ("paper", "dcs"),
    ]
    assert "policy is static, the certificate's dcs" in result.stderr


def test_a_chat_lets_no_kappa_in_beside_it(run, engine, path):
    result = run("chat", "--rule-config", path, input="/kappa 0.1\none\n")
    assert "--kappa is given as well" in result.stderr
    assert engine.calls[0].rule == "margin:0.3"

"""`adaptivespec chat` with a fake engine and standard input from a pipe."""

from __future__ import annotations

import pytest

from fakes.engine import TEXT


def test_every_line_is_a_turn(run, engine):
    result = run("chat", input="one\n\ntwo\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{TEXT}\n{TEXT}\n"
    assert [len(call.messages) for call in engine.calls] == [1, 3]
    assert [message["role"] for message in engine.calls[1].messages] == [
        "user",
        "assistant",
        "user",
    ]


def test_summary_goes_to_stderr_and_quiet_hides_it(run):
    assert "accept" not in run("chat", input="one\n").stdout
    assert "tokens/s" in run("chat", input="one\n").stderr
    assert run("chat", "--quiet", input="one\n").stderr == ""


def test_reset_forgets(run, engine):
    run("chat", input="one\n/reset\ntwo\n")
    assert len(engine.calls[1].messages) == 1


def test_exit_ends(run, engine):
    run("chat", input="/exit\none\n")
    assert engine.calls == []


def test_commands_change_the_next_turn(run, engine):
    result = run("chat", input="/rule margin\n/kappa 0.4\n/policy chain:2\n/system Be brief.\nhi\n")
    assert result.exit_code == 0, result.stderr
    call = engine.calls[0]
    assert (call.rule, call.kappa, call.policy) == ("margin", 0.4, "chain:2")
    assert call.messages[0] == {"role": "system", "content": "Be brief."}
    assert "lossless: no" in result.stderr


def test_a_new_rule_drops_the_old_kappa(run, engine):
    run("chat", "--rule", "margin", "--kappa", "0.4", input="/rule strict\nhi\n")
    assert (engine.calls[0].rule, engine.calls[0].kappa) == ("strict", None)


def test_stats_and_help(run):
    result = run("chat", input="/stats\nhi\n/stats\n/help\n/rule\n")
    assert "no answer yet" in result.stderr
    assert "time per step" in result.stderr
    assert "/kappa" in result.stderr
    assert "rule strict, policy auto" in result.stderr


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("/nope", "/reset"),
        ("/rule nope", "margin"),
        ("/policy nope", "dcs"),
        ("/kappa x", "/kappa 0.2"),
        ("/kappa 0.2", "kappa"),
        ("x" * 2000, "do not fit"),
    ],
)
def test_a_mistake_changes_nothing_and_the_chat_goes_on(run, engine, line, word):
    result = run("chat", input=f"{line}\nhi\n")
    assert result.exit_code == 2
    assert word in result.stderr
    assert result.stdout == TEXT + "\n"
    assert (engine.calls[0].rule, engine.calls[0].kappa) == ("strict", None)
    assert len(engine.calls[0].messages) == 1


def test_lossy_is_disclosed(run):
    assert "is lossy" in run("chat", "--rule", "paper", input="hi\n").stderr


def test_bad_options_exit_before_loading(run, engine):
    assert run("chat", "--rule", "nope", input="hi\n").exit_code == 2
    assert engine.loaded_with == {}

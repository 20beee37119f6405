"""`adaptivespec rules` and `adaptivespec policies`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from adaptivespec.policy import POLICIES
from adaptivespec.verify import PRESETS, RULES, rule_names

WITHOUT_TORCH = """
import sys
from adaptivespec.cli.main import app
try:
    app(sys.argv[1:], prog_name="adaptivespec")
finally:
    print("TORCH", "torch" in sys.modules)
"""
REGISTRIES = [("rules", rule_names()), ("policies", POLICIES.names())]


def on_terminal(run, columns, *arguments):
    """What a terminal of that width shows, without its colours."""
    env = {"FORCE_COLOR": "1", "COLUMNS": str(columns), "TERM": "xterm"}
    result = run(*arguments, env=env)
    assert result.exit_code == 0, result.output
    return re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(("command", "names"), REGISTRIES)
def test_a_pipe_gets_one_entry_a_line(run, command, names):
    result = run(command)
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert [line for line in (head, *lines) if line != line.rstrip()] == []
    for column in ("training-free", "tree", "T > 0", "lossless", "formula", "source", "options"):
        assert column in head


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(("command", "names"), REGISTRIES)
def test_a_terminal_cuts_nothing_off(run, command, names, columns):
    shown = on_terminal(run, columns, command)
    assert max(len(line) for line in shown.splitlines()) <= columns
    registry = RULES if command == "rules" else POLICIES
    for entry in registry.describe():
        assert words(entry.formula) in words(shown)
        assert words(entry.source) in words(shown)
        for option in entry.options:
            assert f"{option.name}=" in shown


def test_traits_of_rules(run):
    rows = {row["name"]: row for row in json.loads(run("rules", "--json").stdout)}
    assert list(rows) == rule_names()
    traits = ("training_free", "tree", "sampling", "lossless", "preset_of")
    assert [rows["strict"][key] for key in traits] == [True, True, True, True, None]
    assert [rows["margin"][key] for key in traits] == [True, True, True, False, None]
    assert [rows["safe"][key] for key in traits] == [True, True, True, False, "margin"]
    assert rows["margin"]["presets"]["paper"] == {"kappa": 0.2}
    assert rows["margin"]["reads"] == "margins"
    kappa = {"name": "kappa", "default": 0.2, "legal": "number in [0, inf)"}
    assert kappa.items() <= rows["margin"]["options"][0].items()


def test_traits_of_policies(run):
    rows = {row["name"]: row for row in json.loads(run("policies", "--json").stdout)}
    assert list(rows) == POLICIES.names()
    traits = ("training_free", "tree", "sampling", "lossless", "needs_costs")
    assert [rows["chain"][key] for key in traits] == [True, False, True, True, False]
    assert [rows["dcs"][key] for key in traits] == [True, True, True, True, False]
    assert {row["lossless"] for row in rows.values()} == {True}
    for name, row in rows.items():
        assert row["needs_costs"] is POLICIES.create(name).needs_costs


def test_presets_are_listed_as_such(run):
    for preset, rule in PRESETS.items():
        line = next(x for x in run("rules").stdout.splitlines() if x.startswith(preset))
        assert f"{rule} with " in line
    safe = json.loads(run("rules", "safe", "--json").stdout)
    defaults = {option["name"]: option["default"] for option in safe["options"]}
    assert safe["preset_of"] == "margin"
    assert (defaults["kappa"], defaults["exact_between"], defaults["skip_tokens"]) == (0.3, True, 0)


@pytest.mark.parametrize("columns", [80, 120])
def test_detail_tells_everything(run, columns):
    shown = words(on_terminal(run, columns, "rules", "margin"))
    entry = RULES.describe_one("margin")
    for paragraph in entry.doc.split("\n\n"):
        assert words(paragraph) in shown
    for option in entry.options:
        assert option.name in shown
        assert option.default in shown
    for part in ("preset paper kappa=0.2", "preset safe kappa=0.3", "reads margins"):
        assert part in shown
    shown = words(on_terminal(run, columns, "policies", "dcs"))
    for part in ("RAR", "needs costs no", "weight of the last step", "per_step | per_node | any"):
        assert part in shown


def test_an_unknown_name_exits_2_and_names_the_nearest(run):
    typed = [("rules", "saffe", "safe"), ("rules", "margin:0.3", "margin")]
    for command, name, near in [*typed, ("policies", "static2", "static")]:
        result = run(command, name)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert f"Did you mean '{near}'?" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["rules", "--help"], ["policies", "--help"], ["policies", "dcs"]]
)
def test_torch_is_not_loaded(arguments):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("TORCH False\n")


@pytest.mark.parametrize("command", ["rules", "policies"])
def test_help_has_examples(run, command):
    result = run(command, "--help")
    assert "Examples" in result.stdout
    assert f"adaptivespec {command}" in result.stdout


def test_help_of_generate_points_to_the_tables(run):
    text = " ".join(run("generate", "--help").stdout.replace("│", " ").split())
    for part in ("see `adaptivespec rules`", "see `adaptivespec policies`", "fly:window=6"):
        assert part in text

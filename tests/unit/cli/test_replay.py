"""`adaptivespec replay` on traces written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.traces import STEPS, header

COST = "box:verify=[[1,10],[3,14]],draft=1,overhead=0.5"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "t.jsonl"
    rows = [header().model_dump_json(), *(json.dumps(step.to_json()) for step in STEPS)]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_a_table_on_stdout_and_the_rest_on_stderr(run, file):
    result = run("replay", file, file, "--policies", "none; chain:2")
    assert result.exit_code == 0, result.output
    head, first, second = result.stdout.splitlines()
    assert head.split()[2:6] == ["tau", "nodes", "levels", "prom/100"]
    assert first.split() == ["strict", "chain:num_steps=2", "2.00", "3.0", "2.0", "0.0", "exact"]
    assert second.split() == ["strict", "none", "1.00", "1.0", "0.0", "0.0", "exact"]
    assert "traces: 2, recorded steps: 8" in result.stderr
    assert "--cost" in result.stderr


def test_costs_add_time(run, file):
    result = run("replay", file, "--policies", "none;chain:2", "--cost", COST)
    title, head, first, second = result.stdout.splitlines()
    assert title == "box"
    assert "ms/token" in head
    assert "7.75" in first
    assert "1.35x" in first  # 42 / 31
    assert "1.00x" in second
    assert "--cost" not in result.stderr


def test_several_costs_make_several_tables(run, file, tmp_path):
    profile = {"name": "from a file", "verify": [[0, [[1, 0.01]]]], "draft": [[1, 0.001]]}
    (tmp_path / "cpu.json").write_text(json.dumps(profile))
    costs = ("--cost", COST, "--cost", str(tmp_path / "cpu.json"))
    result = run("replay", file, "--policies", "chain:2", *costs)
    assert [line for line in result.stdout.splitlines() if "strict" not in line][::2] == [
        *("box", "from a file"),
    ]


def test_json_is_one_object_and_nothing_else(run, file):
    result = run("replay", file, "--json", "--rules", "strict;margin:0.2", "--policies", "chain:1")
    rows = json.loads(result.stdout)["rows"]
    assert [row["rule"] for row in rows] == ["margin:kappa=0.2", "strict"]  # longer steps
    assert [row["exactness"] for row in rows] == [
        "approximate: promotions change the text",
        "exact",
    ]
    assert rows[0]["cost"] is rows[0]["ms_per_token"] is None


def test_approximations_say_so(run, file):
    result = run("replay", file, "--policies", "chain:3")
    _, row, note = result.stdout.splitlines()
    assert row.endswith("approx. (1)")
    assert note == "(1) approximate: 100 % of steps asked for nodes that were not recorded"


def test_every_policy_by_default(run, file):
    result = run("replay", file, "--quiet", "--cost", COST)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for name in ("none", "chain", "static", "eagle2", "dcs", "priced"):
        assert f" {name} " in result.stdout


def test_a_line_that_was_cut_short_is_a_notice(run, file):
    path = Path(file)
    path.write_text(path.read_text()[:-50])
    result = run("replay", file, "--policies", "none")
    assert result.exit_code == 0
    assert "cut short" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["TRACE"]),
        (["/no/such/file"], ["/no/such/file", "cannot be read", "--record-width"]),
        (["FILE", "--policies", "dsc"], ["policy", "dcs"]),
        (["FILE", "--policies", ";"], ["policies", "semicolons"]),
        (["FILE", "--policies", "priced"], ["policies", "--cost FILE"]),
        (["FILE", "--rules", "margn"], ["rule", "margin"]),
        (["FILE", "--rules", "typical"], ["rules", "adaptivespec generate"]),
        (["FILE", "--cost", "nothing.json"], ["cost", "JSON file"]),
        (["FILE", "--cost", "x:draft=1"], ["cost", "milliseconds"]),
    ],
)
def test_bad_input_exits_2_with_a_remedy(run, file, arguments, words):
    result = run("replay", *[file if word == "FILE" else word for word in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_a_malformed_trace_is_named_by_line(run, file):
    path = Path(file)
    path.write_text(path.read_text().replace('"position": 3', '"position": 7'))
    result = run("replay", file)
    assert result.exit_code == 2
    assert f"{file}, line 4" in result.stderr.replace("\n", "")


def test_help_teaches(run):
    text = " ".join(run("replay", "--help").stdout.replace("│", " ").split())
    for word in ("Examples", "--record-width 4", 'adaptivespec replay t.jsonl --policies "static'):
        assert word in text
    assert "verify=[[1,18],[64,20]],draft=0.6" in text

"""The benchmark of draft heads: its arithmetic, its tables, and short runs of it."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from adaptivespec.core.errors import ConfigError

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def row(policy="static:5,1,6", *, head="a", task="gsm8k", index=0, rule="strict", **more):
    """A row as head_runs.py writes it."""
    place = {"head": head, "task": task, "index": index, "rule": rule, "policy": policy}
    counts = {"seconds": 1.0, "tokens": 10, "steps": 5, "step_tokens": 10, "verified": 20}
    rest = {"accepted_per_pos": [4, 1], "dtype": "A8", "max_tokens": 48, "repeat": 0}
    return {**place, **counts, **rest, **more}


def plain(**more):
    return row("none", head="", **more)


# Heads and their names.


def test_heads_are_named_by_their_folder_or_as_told():
    from head_runs import head_paths

    assert head_paths([]) == {"shipped": None}
    paths = ["shipped", "new=runs/7", "runs/8", "old=shipped", "./a=b"]
    assert head_paths(paths) == {
        "shipped": None,
        "new": "runs/7",
        "8": "runs/8",
        "old": None,
        "a=b": "./a=b",
    }
    with pytest.raises(ConfigError, match="two heads are called '8'"):
        head_paths(["a/8", "b/8"])


# Accept length.


def test_accept_length_is_pooled_over_prompts():
    from head_report import tau_cells

    rows = [row(step_tokens=30, steps=10, accepted_per_pos=[9, 6, 5]), row(index=1)]
    (cell,) = tau_cells(rows)
    assert cell["tau"] == pytest.approx(40 / 15)
    assert cell["low"] <= cell["tau"] <= cell["high"]
    # 9 + 4 of 15 steps reached depth 1, 6 + 1 depth 2, 5 depth 3
    assert cell["depths"] == pytest.approx([13 / 15, 7 / 15, 5 / 15, 0, 0])
    assert cell["nodes"] == pytest.approx(1 + 40 / 15)
    assert cell["gain"] is None


def test_heads_are_paired_by_prompt():
    from head_report import tau, tau_cells

    rows = [row(index=i, step_tokens=10 + i) for i in range(4)]
    rows += [row(head="b", index=i, step_tokens=11 + 1.1 * i) for i in range(4)]
    rows += [row(head="b", index=9, step_tokens=1000)]  # what the first head did not run
    gain = next(cell["gain"] for cell in tau_cells(rows) if cell["head"] == "b")
    assert gain == pytest.approx((10, 10, 10))
    text = tau(rows)
    assert "5 maths prompts, 48 tokens at most, A8." in text
    assert "+10.0 %" in text


def test_tasks_stand_in_one_order_with_all_last():
    from head_report import tau_cells

    rows = [row(task=task) for task in ("mt_bench", "gsm8k", "humaneval")]
    assert [c["task"] for c in tau_cells(rows)] == ["gsm8k", "humaneval", "mt_bench", "all"]


# Speed.


def arms(best_even, best_odd):
    """Two shapes and thrift on six prompts; each shape is best on one half."""
    rows = []
    for index in range(6):
        best = best_odd if index % 2 else best_even
        rows += [plain(index=index, seconds=4.0), plain(index=index, seconds=9.0)]
        for policy in ("static:1,1,2", "static:2,1,3", "thrift"):
            rows.append(row(policy, index=index, seconds=1.0 if policy == best else 2.0))
    return rows


def test_the_shape_is_chosen_on_even_prompts_and_shown_on_odd():
    from head_report import chosen, quickest

    runs = quickest(arms("static:2,1,3", "static:1,1,2"))
    baseline = {key[3]: run for key, run in runs.items() if key[2] == "none"}
    assert {run["seconds"] for run in baseline.values()} == {4.0}  # the quicker of two
    policies = ("static:1,1,2", "static:2,1,3", "thrift")
    by_policy = {p: {key[3]: run for key, run in runs.items() if key[2] == p} for p in policies}
    choice, shown = chosen(by_policy, baseline)
    assert choice == "static:2,1,3"
    assert set(shown) == {"static:2,1,3", "thrift"}
    assert {index for runs in shown.values() for _, index in runs} == {1, 3, 5}


def test_speed_tables():
    from head_report import speed

    text = speed(arms("static:2,1,3", "static:1,1,2"))
    (line,) = [line for line in text.splitlines() if "(chosen)" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    # 4 s of plain decoding / 2 s on the odd prompts: request, token and sum
    assert cells[:5] == ["maths", "strict", "2,1,3 (chosen)", "3", "2.00"]
    assert cells[5::2] == ["2.00"] * 3
    assert "Plain decoding takes 400.00 ms a token" in text


def test_a_longer_answer_counts_by_token():
    from head_report import speed

    rows = [plain(index=i) for i in range(4)]
    rows += [row("thrift", index=i, rule="margin:0.2", tokens=20) for i in range(4)]
    (line,) = [line for line in speed(rows).splitlines() if "| thrift" in line and "maths" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert (cells[5], cells[7], cells[9]) == ("1.00", "2.00", "1.00")


def test_one_prompt_is_too_few_to_choose_on():
    from head_report import speed

    assert "Too few prompts." in speed([plain(), row()])


def test_heads_at_their_own_best_are_compared():
    from head_report import speed

    rows = [plain(index=i) for i in range(4)]
    rows += [row(head="a", index=i, seconds=0.5) for i in range(4)]
    rows += [row(head="b", index=i, seconds=0.4) for i in range(4)]
    assert "| maths | strict | b    | 2       | 1.250 | 1.250 to 1.250 |" in speed(rows)


# Confidence.


def step(parent, path, committed=None, logq=None):
    size = len(parent)
    depth = [0] * size
    for node in range(1, size):
        depth[node] = depth[parent[node]] + 1
    nodes = {"parent": parent, "depth": depth, "rank": [0] * size, "logq": logq or [-1.0] * size}
    kept = len(path) if committed is None else committed
    return SimpleNamespace(nodes=nodes, path=path, committed=kept)


def test_nodes_under_the_path_are_judged():
    from head_confidence import judged_nodes

    #   0 - 1 - 3      path 0, 2, 4: children of 0, 2 and 4 are judged, 3 is not
    #     \ 2 - 4 - 5
    found = judged_nodes([step([-1, 0, 0, 1, 2, 4], [0, 2, 4])])
    assert found["followed"] == [0, 1, 1, 0]
    assert found["depth"] == [1, 1, 2, 3]
    assert found["family"] == [0, 0, 1, 2]


def test_what_comes_after_the_end_is_not_judged():
    from head_confidence import judged_nodes

    ended = step([-1, 0, 1], [0, 1], committed=1)  # node 1 was the end of the text
    found = judged_nodes([ended, step([-1, 0, 0], [0], logq=[0.0, -1.0, None])])
    assert found["followed"] == [1, 0]
    assert found["family"] == [0, 1]


def test_calibration_error():
    from head_confidence import calibration_error, tenths

    predicted = np.array([0.15, 0.15, 0.85, 0.85, 1.0])
    followed = np.array([False, True, True, True, True])
    assert [t.count for t in tenths(predicted, followed)] == [2, 2, 1]
    # (2 |0.5 - 0.15| + 2 |1 - 0.85| + 0) / 5
    assert calibration_error(predicted, followed) == pytest.approx(0.2)
    assert calibration_error(predicted[:0], followed[:0]) == 0


def test_the_error_by_chance_is_that_of_a_right_predictor():
    from head_confidence import calibration_error, error_by_chance

    rng = np.random.default_rng(0)
    predicted = rng.random(500)
    errors = [calibration_error(predicted, rng.random(500) < predicted) for _ in range(200)]
    assert error_by_chance(predicted) == pytest.approx(np.mean(errors), rel=0.05)


def node_row(index, logq, followed, **more):
    """One node a family."""
    size = len(logq)
    columns = {"depth": [1] * size, "rank": [0] * size, "family": list(range(size))}
    lists = {"logq": logq, "followed": [int(x) for x in followed], **columns, **more}
    return {**row(index=index), **lists}


def test_calibration_comes_from_the_other_half():
    from head_confidence import Nodes, calibrated

    logq = [math.log(0.3)] * 100
    nodes = Nodes.of([node_row(0, logq, [True] * 100), node_row(1, logq, [False] * 100)])
    c = calibrated(nodes)
    # c = (s + 20 q) / (n + 20) of the other half: 6 / 120 for the even, 106 / 120 for the odd
    assert c[:100] == pytest.approx(6 / 120)
    assert c[100:] == pytest.approx(106 / 120)


def test_siblings_sum_to_one_at_most():
    from head_confidence import Nodes, calibrated

    place = {"rank": [0, 1], "family": [0, 0]}
    rows = [node_row(i, [math.log(0.5)] * 2, [True, True], **place) for i in (0, 2, 4, 6, 1)]
    c = calibrated(Nodes.of(rows))
    # (4 + 20 q) / 24 for either, before they are scaled down to a sum of 1
    assert c[-2:] == pytest.approx([0.5, 0.5])


def test_families_of_different_prompts_stay_apart():
    from head_confidence import Nodes

    rows = [node_row(0, [-1.0, -1.0], [0, 1]), node_row(2, [-1.0], [1])]
    assert Nodes.of(rows).family.tolist() == [0, 1, 2]


def test_tables_of_confidence():
    from head_confidence import tables

    rows = [node_row(i, [math.log(0.5)] * 4, [1, 0, 1, 0], depth=[1, 2, 4, 7]) for i in range(6)]
    text = tables(rows)
    for depth in ("1", "2", "3-4", "5+"):
        assert f"| all  | {depth:5} | all  | 6     |" in text


# Plots.


def test_points_of_a_curve(tmp_path):
    from head_plots import read_points

    rows = [row(index=i) for i in range(3)] + [row(head="b", index=i) for i in range(3)]
    (tmp_path / "tau.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    flat = {"tokens": 2e6, "head": "c", "task": "gsm8k", "shape": "5,1,6", "tau": 2.5}
    entries = [{"tokens": 1e6, "head": "b", "rows": "tau.jsonl"}, flat]
    file = tmp_path / "points.json"
    file.write_text(json.dumps(entries))
    points = read_points(file)
    assert [(p["tokens"], p["head"], p["tau"]) for p in points] == [(1e6, "b", 2), (2e6, "c", 2.5)]
    assert {p["shape"] for p in points} == {"5,1,6"}
    for entry, message in (
        ({"tokens": 1e6, "head": "z", "rows": "tau.jsonl"}, "has no head 'z'"),
        ({"tokens": 0, "head": "b", "rows": "tau.jsonl"}, "must be positive"),
        ({"tokens": 1e6, "head": "b", "tau": 2}, "entry 0 has no 'shape'"),
    ):
        file.write_text(json.dumps([entry]))
        with pytest.raises(ConfigError, match=message):
            read_points(file)


@pytest.mark.parametrize(("tokens", "text"), [(5e4, "50 k"), (5e5, "0.5 M"), (4e6, "4 M")])
def test_tokens_in_millions(tokens, text):
    from head_plots import in_millions

    assert in_millions(tokens) == text


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    from head_plots import pyplot

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        pyplot()


def test_plots_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from head_plots import plot_curve, plot_reliability

    rng = np.random.default_rng(0)
    rows = []
    for index in range(4):
        q = rng.uniform(0.01, 1, 300)
        rows.append(node_row(index, np.log(q).tolist(), rng.random(300) < q))
    plot_reliability(rows, tmp_path / "reliability.svg")
    common = {"head": "a", "task": "gsm8k", "shape": "5,1,6", "series": "", "low": 2, "high": 4}
    plot_curve([{"tokens": t, "tau": 3, **common} for t in (1e6, 4e6)], tmp_path / "curve.svg")
    for name in ("reliability", "curve"):
        assert "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")


# The script itself.


def write_tasks(folder):
    questions = [{"question": f"What is {n} + 1?"} for n in range(2)]
    turns = [{"turns": [f"Name {n + 1} rivers."]} for n in range(2)]
    for name, lines in (("gsm8k_test.jsonl", questions), ("mt_bench.jsonl", turns)):
        (folder / name).write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")
    with gzip.open(folder / "HumanEval.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": f"def f{n}():\n"}) + "\n" for n in range(2))


def run_head(*arguments):
    script = [sys.executable, str(BENCHMARKS / "head.py"), *map(str, arguments)]
    return subprocess.run(script, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tau"], "--data is needed"),
        (["tau", "--data", ".", "--tasks", "nope"], "no task 'nope'"),
        (["confidence", "--data", ".", "--shapes", "1,1,2;2,1,3"], "one shape and one rule"),
    ],
)
def test_unusable_options(arguments, message, monkeypatch, capsys):
    from head import main

    monkeypatch.setattr(sys, "argv", ["head.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert message in capsys.readouterr().err


@pytest.mark.network
@pytest.mark.slow
def test_short_runs(tmp_path):
    write_tasks(tmp_path)
    common = ["--data", tmp_path, "--max-tokens", "8", "--shapes", "2,2,4"]
    heads = ["--draft-model", "shipped", "--draft-model", "again=shipped"]
    more = {"tau": [*heads, "--workers", "2"], "speed": [*heads, "--threads", "1"]}
    for command in ("tau", "speed", "confidence"):
        rows, tables = tmp_path / f"{command}.jsonl", tmp_path / f"{command}.md"
        options = [*common, *more.get(command, ()), "--json", rows, "--markdown", tables]
        done = run_head(command, *options)
        assert done.returncode == 0, done.stderr
        again = run_head(command, "--report", rows)
        assert again.stdout == done.stdout == tables.read_text(encoding="utf-8")
        assert "2 maths, 2 code, 2 chat prompts" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "tau.jsonl").read_text().splitlines()]
    counts = [(r["task"], r["index"], r["steps"], r["step_tokens"]) for r in rows]
    assert counts[::2] == counts[1::2]  # the same head twice

"""The table of rules and policies: measured, stopped, gone on with, and read."""

from __future__ import annotations

import gzip
import json
import math
import random
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RULES, POLICIES = ("strict", "margin:0.2"), ("chain:3", "static:2,2,4")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def row(rule, policy, seconds, *, task="gsm8k", index=0, start="a", tokens=10, **more):
    """A row as grid.py writes it, as far as the report reads it."""
    plain = more.pop("plain", False)
    defaults = {"steps": 5, "step_tokens": 10, "promoted": 0, "drafted": 20, "verified": 15}
    texts = {"finish": "stop", "text": "It is 18."}
    place = {"task": task, "index": index, "start": start, "plain": plain}
    times = {"rule": rule, "policy": policy, "seconds": seconds, "tokens": tokens}
    return {**place, **times, **defaults, **texts, **more}


def plain(seconds, **more):
    return row("strict", "none", seconds, plain=True, **more)


# The order of a block.


def test_plain_decoding_begins_and_ends_a_block():
    from grid import PLAIN, Cell, block_order

    cells = [Cell("strict", f"chain:{steps}") for steps in range(1, 7)]
    order = block_order(cells, 3, random.Random(0))
    assert [place for place, cell in enumerate(order) if cell == PLAIN] == [0, 4, 8]
    assert sorted(cell for cell in order if cell != PLAIN) == cells
    assert order == block_order(cells, 3, random.Random(0))


def test_prompts_interleave_and_shards_part_them(tmp_path):
    from grid import prompt_order

    write_tasks(tmp_path, gsm8k=4, mt_bench=2)
    counts = {"gsm8k": 4, "mt_bench": 2}
    order = prompt_order(tmp_path, counts, (1, 1))
    # Places (i + 1/2) / n: gsm8k .125 .375 .625 .875, mt_bench .25 .75
    assert [prompt.task[0] for prompt in order] == ["g", "m", "g", "g", "m", "g"]
    parts = [prompt_order(tmp_path, counts, (part, 2)) for part in (1, 2)]
    assert [[(p.task, p.number) for p in part] for part in parts] == [
        [("gsm8k", 0), ("mt_bench", 0), ("gsm8k", 2)],
        [("gsm8k", 1), ("mt_bench", 1), ("gsm8k", 3)],
    ]


# What the report computes.


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 3 eggs, so $1,234.50.", "1234.5"),
        ("7 - 12 = -5", "-5"),
        ("10-5", "5"),
        ("#### 18.00", "18"),
        ("**42**", "42"),
    ],
)
def test_last_number(text, number):
    from grid_rows import last_number

    assert last_number(text) == Decimal(number)


def test_no_number():
    from grid_rows import last_number

    assert last_number("none") is None


def test_a_cell_is_measured_against_the_median_plain_run_of_its_block():
    from grid_rows import paired

    # The cell takes 2 s for 20 tokens; plain takes 1, 4 and 9 s for 10: ratio 4 / 2, per token 4.
    rows = [plain(1), row("strict", "dcs", 2, tokens=20), plain(9), plain(4), plain(7, start="b")]
    (run,) = paired(rows)
    assert (run.request_ratio, run.token_ratio) == (2, 4)


def test_agreement_with_plain():
    from grid_rows import Run

    texts = [("so 18", "stop", "18.00!", True), ("so 18", "stop", "19", False)]
    texts += [("so 18", "length", "18", None), ("none", "stop", "18", None)]
    for expected, finish, text, same in texts:
        run = Run(row("margin", "dcs", 1, text=text), [plain(1, text=expected, finish=finish)])
        assert run.same_answer is same
    for text, share in [("abcd", 1), ("abxyz", 2 / 5), ("", 0), ("ab", 2 / 4)]:
        run = Run(row("margin", "dcs", 1, text=text), [plain(1, text="abcd")])
        assert run.prefix == share


def test_report_marks_the_best_policy_of_a_rule():
    from grid_report import report

    rows = [plain(4), row("strict", "dcs", 1, step_tokens=20), row("strict", "chain:3", 2)]
    rows += [{**row("rejection", "dcs", 1), "error": "ConfigError: policy: no"}]
    text = report(rows)
    assert "1 prompts (1 gsm8k), plain decoding takes 400.0 ms a token" in text
    assert "| strict | 2.00    | **4.00** |" in text  # both tau (20 / 5) and speed (4 / 1)
    assert "* rejection dcs: ConfigError: policy: no" in text
    assert "| strict | 1/1     | 1/1 |" in text


def test_comparison_is_paired_and_taken_against_each_block():
    from grid_compare import compare, comparisons
    from grid_rows import paired

    rows = []
    for index, (ours, theirs) in enumerate([(1, 2), (2, 4), (4, 8)]):
        rows += [plain(9, index=index), row("strict", "priced", ours, index=index)]
        rows += [row("strict", "dcs", theirs, index=index)]
    # The same prompt in a block that ran at half the speed: 3 / 18 against 8 / 24 of plain.
    rows += [plain(18, index=3), row("strict", "priced", 3, index=3)]
    rows += [plain(24, index=3, start="b"), row("strict", "dcs", 8, index=3, start="b")]
    found = comparisons(paired(rows), "priced", ["dcs"])
    assert [(c.rule, c.task, c.rival, c.prompts) for c in found] == [
        ("strict", "all", "dcs", 4),
        ("strict", "gsm8k", "dcs", 4),
    ]
    assert found[0].request == pytest.approx((-math.log(2),) * 3)
    text = compare(rows, "priced", ["dcs"])
    assert "-50.0 % (-50.0 to -50.0)" in text
    assert "of 1 intervals (rule x task) 1 lie wholly below 0, 0 reach above +1 %" in text


def test_comparison_with_an_unknown_policy():
    from grid_compare import comparisons
    from grid_rows import paired

    with pytest.raises(ValueError, match=r"no rows of policy 'nope'\. Have: dcs"):
        comparisons(paired([plain(1), row("strict", "dcs", 1)]), "dcs", ["nope"])


def test_the_interval_of_the_mean():
    import numpy as np
    from grid_rows import Interval

    values = np.random.default_rng(1).normal(3, 1, 400)
    interval = Interval.of(values, np.mean)
    # 1.96 / sqrt(400) = 0.098 on each side, of a sample whose deviation is near 1
    assert interval.high - interval.low == pytest.approx(0.196, rel=0.15)
    assert interval.low < interval.value < interval.high
    assert Interval.of([1.0], np.mean) == (1, -math.inf, math.inf)


# The script itself.


def test_other_settings_need_another_file(tmp_path):
    from grid import finished

    out = tmp_path / "rows.jsonl"
    rows = [row("strict", "dcs", 1), {**row("strict", "priced", 1), "error": "OSError: full"}]
    assert finished(out, {}) == set()
    out.write_text("".join(json.dumps({**r, "settings": {"threads": 1}}) + "\n" for r in rows))
    assert finished(out, {"gsm8k": {"threads": 1}}) == {("gsm8k", 0, "strict", "dcs")}
    with pytest.raises(ValueError, match="Write to another file"):
        finished(out, {"gsm8k": {"threads": 2}})


def write_tasks(folder, **counts):
    """The first prompts of each task, in the formats that tasks.py reads."""
    counts = {"gsm8k": 1, "humaneval": 1, "mt_bench": 1, **counts}
    questions = [{"question": f"What is {n} + 1?"} for n in range(counts["gsm8k"])]
    stubs = [{"prompt": f"def f{n}():\n"} for n in range(counts["humaneval"])]
    turns = [{"turns": [f"Name {n + 1} rivers."]} for n in range(counts["mt_bench"])]
    texts = ["".join(json.dumps(line) + "\n" for line in lines) for lines in (questions, turns)]
    (folder / "gsm8k_test.jsonl").write_text(texts[0], encoding="utf-8")
    (folder / "mt_bench.jsonl").write_text(texts[1], encoding="utf-8")
    with gzip.open(folder / "HumanEval.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in stubs)


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.network
def test_a_stopped_run_is_gone_on_with(tmp_path):
    write_tasks(tmp_path)
    out, tables = tmp_path / "rows.jsonl", tmp_path / "grid.md"
    script = [sys.executable, str(BENCHMARKS / "grid.py")]
    measuring = [*script, "--data", str(tmp_path), "--out", str(out), "--threads", "1"]
    measuring += ["--rules", ";".join(RULES), "--policies", ";".join(POLICIES)]
    measuring += ["--prompts", "gsm8k=1,humaneval=1,mt_bench=1"]
    measuring += ["--max-tokens", "gsm8k=8,humaneval=8,mt_bench=8"]
    with subprocess.Popen(measuring, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (out.exists() and out.stat().st_size):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        message = process.communicate()[1]
    assert process.returncode == 130, message
    assert "goes on after" in message
    before = rows_of(out)
    assert 1 <= len(before) < 21
    with out.open("a", encoding="utf-8") as file:
        file.write('{"task": "gsm8k", "ind')  # a kill in the middle of a line

    def run(*arguments):
        return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=240)

    done = run(*measuring)
    assert done.returncode == 0, done.stderr
    after = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    assert after[: len(before)] == before
    cells = [(r["task"], r["rule"], r["policy"]) for r in after if not r["plain"]]
    tasks = ("gsm8k", "humaneval", "mt_bench")
    assert sorted(cells) == sorted((t, r, p) for t in tasks for r in RULES for p in POLICIES)
    assert all(r["seconds"] > 0 and 1 <= r["tokens"] <= 8 for r in after)

    size = out.stat().st_size
    assert run(*measuring).returncode == 0
    assert out.stat().st_size == size

    shown = run(*script, "--report", str(out), "--markdown", str(tables))
    assert shown.returncode == 0, shown.stderr
    assert tables.read_text(encoding="utf-8") == shown.stdout
    assert "3 prompts" in shown.stdout
    assert "| rule       | chain:3" in shown.stdout

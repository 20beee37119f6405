"""`adaptivespec bench` with the embedded model: few items, all stages, the reports, Ctrl-C."""

from __future__ import annotations

import csv
import json
import signal
import time

import pytest

pytestmark = pytest.mark.network

OPTIONS = [
    *("--tasks", "capitals,lists", "--limit", "3", "--timed", "1", "--dev", "1"),
    *("--restarts", "1", "--workers", "1", "--threads", "1", "--max-tokens", "24"),
    *("--rules", "strict; margin:0.2", "--policies", "static:3,1,4", "--controls"),
]


@pytest.fixture(scope="module")
def folder(cli, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "run"
    done = cli("bench", *OPTIONS, "-o", str(folder))
    assert done.returncode == 0, done.stderr
    for arm in ("plain", "strict/static:3,1,4", "margin:0.2/static:3,1,4", "coin:auto"):
        assert arm in done.stdout
    return folder


def test_every_output_is_there_and_strict_equals_plain(folder):
    names = {path.name for path in folder.iterdir()}
    wanted = {"settings.json", "rows.jsonl", "summary.csv", "report.md", "report.html"}
    assert wanted <= names
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    texts = {
        (row["arm"], row["task"], row["index"]): row["token_ids"]
        for row in rows
        if row["phase"] == "quality"
    }
    plain = {key[1:]: ids for key, ids in texts.items() if key[0] == "plain"}
    strict = {key[1:]: ids for key, ids in texts.items() if key[0].startswith("strict")}
    assert plain == strict
    assert any(row["stats"]["num_promoted_tokens"] for row in rows if "margin" in row["arm"])
    said = {(row["arm"].partition(":")[0].partition("/")[0], row["lossless"]) for row in rows}
    assert {("plain", True), ("strict", True), ("margin", False)} <= said
    assert not {("plain", False), ("strict", False), ("margin", True)} & said


def test_the_summary_has_a_line_for_each_arm_and_task(folder):
    with (folder / "summary.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["task"] for line in lines} >= {"capitals", "lists"}
    assert len(lines) == 5 * 3
    assert "nan" not in (folder / "summary.csv").read_text().lower().split(",")


def test_the_same_command_goes_on_and_another_one_is_refused(cli, folder):
    rows = (folder / "rows.jsonl").read_bytes()
    again = cli("bench", *OPTIONS, "-o", str(folder), "--json")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["arms"]) == 5
    assert (folder / "rows.jsonl").read_bytes() == rows
    other = cli("bench", *OPTIONS, "--limit", "2", "-o", str(folder))
    assert other.returncode == 2
    assert "other settings" in other.stderr
    assert "Traceback" not in other.stderr


def test_report_and_compare_need_no_model(cli, folder, tmp_path):
    assert cli("bench", "report", str(folder)).returncode == 0
    same = cli("bench", "compare", str(folder), str(folder))
    assert same.returncode == 0, same.stderr
    assert "margin:0.2/static:3,1,4" in same.stdout
    other = tmp_path / "other"
    other.mkdir()
    settings = json.loads((folder / "settings.json").read_text())
    settings["tasks"][0]["max_tokens"] += 1
    (other / "settings.json").write_text(json.dumps(settings))
    (other / "rows.jsonl").write_bytes((folder / "rows.jsonl").read_bytes())
    refused = cli("bench", "compare", str(folder), str(other))
    assert refused.returncode == 2
    assert "max_tokens" in refused.stderr


def test_ctrl_c_ends_it_and_the_same_command_goes_on(cli, start, tmp_path):
    command = ["bench", "--tasks", "capitals", "--limit", "3", "--timed", "1", "--dev", "1"]
    command += ["--restarts", "0", "--workers", "1", "--threads", "1", "--max-tokens", "24"]
    command += ["--rules", "strict", "--policies", "static:3,1,4", "-o", str(tmp_path / "run")]
    process = start(*command)
    rows = tmp_path / "run" / "rows.jsonl"
    for _ in range(600):
        if rows.exists() and rows.read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    before = rows.read_bytes()
    assert before.endswith(b"\n")
    done = cli(*command)
    assert done.returncode == 0, done.stderr
    assert rows.read_bytes().startswith(before)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--tasks", "gsm9k"], "gsm8k"),
        (["--limit", "some"], "limit"),
        (["--limit", "gsm8k=3"], "capitals"),
        (["--rules", "margn"], "margin"),
        (["--policies", "dsc"], "dcs"),
        (["--kappas", "x"], "kappas"),
        (["--restarts", "-1"], "restarts"),
        (["--peers", "vllm"], "transformers"),
        (["--base-url", "http://127.0.0.1:9", "--kappas", "1"], "server-arm"),
        (["--base-url", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (["--base-url", "http://127.0.0.1:9", "--server-arm", "a"], "NAME=JSON"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(cli, tmp_path, options, word):
    done = cli("bench", "--tasks", "capitals", *options, "-o", str(tmp_path / "run"))
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr

"""The GPU check as it is run, with a stand-in for SGLang: no GPU is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ["plain", "static", "dcs", "stock"]

FAKE = '''
"""Stands in for SGLang: a model whose next token is a function of the last."""
import os, sys, time

class Engine:
    def __init__(self, **arguments):
        self.algorithm = arguments.get("speculative_algorithm")
        if self.algorithm == os.environ.get("FAKE_FAILS", "none"):
            raise RuntimeError("no memory for " + str(self.algorithm))
        if self.algorithm == "ADAPTIVESPEC":
            print("  (6, 1, 7)      0.75 s    0.06 GB")
        self.tokenizer_manager = self
        self.tokenizer = self
        self.chat_template = None

    def encode(self, text):
        return [ord(letter) for letter in text[:8]]

    def get_server_info(self):
        return {"disable_overlap_schedule": True, "internal_states": [{"memory_usage": {}}]}

    def generate(self, input_ids, sampling_params, return_logprob=False, top_logprobs_num=0):
        rows = []
        for ids, params in zip(input_ids, sampling_params):
            if params["temperature"] > 0 and os.environ.get("FAKE_HANGS"):
                time.sleep(600)
            kappa = params.get("custom_params", {}).get("adaptivespec", {}).get("kappa", 1)
            tokens = [(sum(ids) + place) % 50 for place in range(params["max_new_tokens"])]
            if self.algorithm == os.environ.get("FAKE_LIES", "none") and kappa == 1:
                tokens[-1] += 1
            about = {"completion_tokens": len(tokens), "finish_reason": {"type": "length"}}
            if self.algorithm:
                about["spec_verify_ct"] = len(tokens) // (3 if kappa < 1 else 2)
            if self.algorithm == "ADAPTIVESPEC":
                about["adaptivespec"] = {
                    "lossless": kappa >= 1,
                    "num_promoted_tokens": kappa < 1,
                    "triples": {"6,1,7": 2, "3,4,4": 1},
                }
            if return_logprob:
                regret = 1.0 if kappa < 0.3 else 0.0
                about["output_token_logprobs"] = [(-1.0 - regret, t, None) for t in tokens]
                about["output_top_logprobs"] = [[(-1.0, t, None), (-3.0, 0, None)] for t in tokens]
            rows.append({"output_ids": tokens, "meta_info": about})
        return rows

    def shutdown(self):
        pass
'''

#: Runs the check without asking whether the stand-in has the seams of SGLang.
START = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import gpu_check
from gpu import machine
machine.checks = lambda *_: []
machine._cuda = lambda: None  # importing torch takes seconds
sys.exit(gpu_check.main())
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The folder of the stand-in, which every Python started from here finds."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text(FAKE)
    (tmp_path / "start.py").write_text(START)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT / "src")]))
    return tmp_path


@pytest.fixture
def start(fake):
    """start(*arguments, **environment) -> the running check; its report is FAKE/report.json."""

    def run(*arguments, **environment):
        command = [sys.executable, str(fake / "start.py"), str(ROOT / "benchmarks")]
        command += ["target", "head", "--device", "cpu", "--logs", str(fake / "logs")]
        command += ["--engines", ",".join(ENGINES)]
        return subprocess.Popen(
            [*command, "--json", str(fake / "report.json"), *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.fixture
def check(start, fake):
    """check(*arguments, **environment) -> (exit status, standard output, report)."""

    def run(*arguments, **environment):
        process = start(*arguments, **environment)
        text, _ = process.communicate(timeout=200)
        return process.returncode, text, json.loads((fake / "report.json").read_text())

    return run


def test_everything_passes_and_the_report_holds_it(check):
    status, text, found = check()
    assert status == 0, text
    assert found["models"]["why"] == "as asked for"
    assert list(found["engines"]) == ENGINES
    statuses = {row["name"]: row["status"] for row in found["checks"]}
    assert set(statuses.values()) == {"pass", "skipped"}
    skipped = [name for name, status in statuses.items() if status == "skipped"]
    assert [name for name in skipped if not name.startswith("our engine: ")] == [
        "overlap scheduling is on"
    ]
    assert {(row["engine"], row["kappa"]) for row in found["speed"]} == {
        ("plain", None), ("stock", None), *((e, k) for e in ("static", "dcs") for k in (1, 0.2))
    }  # fmt: skip
    assert "(6, 1, 7): 0.75 s, 0.06 GB" in text


def test_a_wrong_token_fails_the_check(check):
    status, text, _ = check(FAKE_LIES="ADAPTIVESPEC")
    assert status == 1
    assert "FAIL  strict, dcs, gives the tokens of no speculation" in text


def test_an_engine_that_does_not_start_is_told_and_the_others_go_on(check):
    status, text, found = check(FAKE_FAILS="EAGLE3")
    assert status == 1
    assert "RuntimeError: no memory for EAGLE3" in text
    assert [name for name, result in found["engines"].items() if result["error"]] == ["stock"]


def test_without_time_everything_is_skipped_and_said_to_be(check):
    status, text, found = check("--seconds", "0")
    assert status == 1
    assert "no speculation: skipped, 0 s are left and a start takes 30" in text
    assert {row["status"] for row in found["checks"]} == {"skipped"}


def script_in(folder):
    """The script in a folder that looks like a checkout: it writes beside itself."""
    script = folder / "scripts" / "gpu_check.sh"
    script.parent.mkdir()
    script.write_text((ROOT / "scripts" / "gpu_check.sh").read_text())
    for name in ("src", "benchmarks", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    return script


@pytest.mark.network
def test_our_own_engine_is_checked_without_sglang(tmp_path):
    """The real one, on the embedded model."""
    script, report = script_in(tmp_path), tmp_path / "report.json"
    command = ["bash", str(script), "--device", "cpu", "--engines", "embedded"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ADAPTIVESPEC_GPU_")}
    done = subprocess.run(
        [*command, "--json", str(report), "--logs", str(tmp_path)],
        env={**kept, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    statuses = {row["name"]: row["status"] for row in found["checks"]}
    ours = {name: status for name, status in statuses.items() if name.startswith("our engine: ")}
    assert ours.pop("our engine: graphs give what uncaptured passes give") == "skipped"
    assert set(ours.values()) == {"pass"}
    assert len(ours) == 6
    assert not [name for name in statuses if "SGLang" in name and statuses[name] != "skipped"]
    assert {(row["kappa"], row["batch"]) for row in found["speed"]} == {(None, 1), (1, 1), (0.2, 1)}
    assert "our engine, strict: draft " in done.stdout


def test_what_was_done_before_an_interruption_is_in_the_report(start, fake):
    process = start("--engines", "dcs", FAKE_HANGS="1")
    lines = fake / "logs" / "dcs.jsonl"
    for _ in range(1200):
        if lines.exists() and '"name": "margin"' in lines.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads((fake / "report.json").read_text())["engines"]["dcs"]
    assert found["error"] == "interrupted"
    assert list(found["passes"]) == ["warm-up", "strict", "margin"]


def test_an_engine_that_hangs_is_stopped_and_what_it_did_is_kept(fake, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from gpu import engines, plan

    monkeypatch.setenv("FAKE_HANGS", "1")
    work = [
        plan.Pass(name, [{"prompt": 0, "sampling_params": {**drawn, "max_new_tokens": 2}}], 1)
        for name, drawn in [("first", {"temperature": 0}), ("second", {"temperature": 1})]
    ]
    result = engines.run("static", {}, "{}", ["abc"], work, 5.0, 5.0, fake)
    assert result["error"].startswith("stopped after 5 s")
    assert list(result["passes"]) == ["first"]
    assert result["passes"]["first"]["answers"][0]["tokens"] == 2


def test_the_script_gives_the_checkout_its_metadata_and_installs_nothing(fake):
    """The stand-in lacks every seam, so that no engine is started."""
    script = script_in(fake)
    command = ["bash", str(script), "target", "head", "--device", "cpu"]
    done = subprocess.run(
        [*command, "--logs", str(fake / "logs"), "--engines", ",".join(ENGINES)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "ok    SGLang finds the plugin: adaptivespec = adaptivespec." in done.stdout, done.stderr
    assert "FAIL  SGLang has every seam" in done.stdout
    assert "no engine of SGLang is started" in done.stdout
    assert done.returncode == 1
    (metadata,) = fake.glob(".venv-gpu-check/adaptivespec-*.dist-info/entry_points.txt")
    assert "[sglang.srt.plugins]" in metadata.read_text()

"""The comparison with other engines: its order, its files, its report, and a run of it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def row(engine, arm, seconds, *, task="gsm8k", index=0, repeat=0, tokens=(1, 2, 3), **more):
    """A row as peers.py writes it, two tokens of which took `seconds`."""
    place = {"kind": "row", "task": task, "index": index, "repeat": repeat, "prompt": 10}
    times = {"prefill_s": 0.1, "prefill_cpu_s": 0.2, "decode_s": seconds, "decode_cpu_s": 1.0}
    counts = {"decoded": 2, "steps": 2, "tokens": list(tokens), "turn": 0}
    return {**place, "engine": engine, "arm": arm, **times, **counts, **more}


def head():
    """What comes before the rows."""
    names = ("processor", "instructions", "processors", "system", "python", "date", "load")
    settings = {"threads": 1, "tokens": 3}
    machine = dict.fromkeys(names, "?")
    rows = [{"kind": "run", "settings": settings, "options": "--limit 1", "machine": machine}]
    for name, arms in {"native": ["plain", "strict/auto"], "other": ["plain"], "gone": []}.items():
        skipped = "" if arms else "ImportError: no"
        entry = {"name": name, "arms": arms, "about": f"{name} 1.0", "skipped": skipped}
        rows.append({"kind": "engine", **entry, "lost": {}})
    return rows


# The order of a block.


def test_our_plain_decoding_begins_and_ends_a_block():
    from peers import Run, block_order

    arms = [Run("native", "plain"), *(Run("other", f"arm {n}") for n in range(6))]
    order = block_order(arms, random.Random(0))
    plain = [(place, run.turn) for place, run in enumerate(order) if run.engine == "native"]
    assert plain == [(0, 0), (4, 1), (8, 2)]
    assert sorted(run for run in order if run.engine == "other") == arms[1:]
    assert order == block_order(arms, random.Random(0))


def test_a_cut_off_line_and_errors_are_measured_again(tmp_path):
    from peers import finished

    out = tmp_path / "rows.jsonl"
    assert finished(out, {"threads": 1}) == set()
    rows = [{"kind": "run", "settings": {"threads": 1}}, row("native", "plain", 1)]
    rows += [row("other", "plain", 1, error="RuntimeError: no")]
    out.write_text("".join(json.dumps(line) + "\n" for line in rows) + '{"kind": "ro')
    assert finished(out, {"threads": 1}) == {("gsm8k", 0, 0, "native", "plain", 0)}
    assert out.read_text().endswith("\n")
    with pytest.raises(ValueError, match="Write to another file"):
        finished(out, {"threads": 2})


# The report.


def test_ratios_pair_runs_of_the_same_block():
    from peers_report import report

    rows = head()
    # Ours takes 1 s, then 10 s while the machine is busy; the other twice as long each time.
    for index, seconds in enumerate([1.0, 10.0]):
        rows += [row("native", "plain", seconds, index=index)]
        rows += [row("other", "plain", 2 * seconds, index=index)]
        rows += [row("native", "strict/auto", seconds / 4, index=index, steps=1, policy="dcs")]
    text = report(rows)
    compared, drafting = text.split("## Our plain")[1].split("## Drafting")
    assert "| other  | `plain` | 2.00 (2.00 to 2.00)" in compared
    assert "| native | `strict/auto` (`dcs`) | 2.00            | 4.00 (4.00 to 4.00)" in drafting
    assert "* **gone**: skipped, ImportError: no" in text


def test_only_what_stayed_broken_is_reported_as_failed():
    from peers_report import report

    rows = [*head(), row("native", "plain", 1)]
    rows += [{**row("other", "plain", 1), "error": "RuntimeError: no"}]
    assert "* other, `plain`: RuntimeError: no" in report(rows)
    assert "Failed" not in report([*rows, row("other", "plain", 1)])
    assert report(head()) == "no finished run"


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [], None)],
)
def test_first_difference(one, other, place):
    from peers_report import first_difference

    assert first_difference(one, other) == place


# What the peers are given.


def test_rows_for_llama_cpp_are_what_the_loader_undoes():
    from peers_files import permute_rope

    from adaptivespec.engine.weights.gguf_file import unpermute_rope

    weight = np.arange(2 * 8 * 3, dtype=np.float32).reshape(16, 3)
    permuted = permute_rope(weight, 2)
    assert permuted[1].tolist() == weight[4].tolist()  # i and i + head_dim / 2 lie side by side
    assert unpermute_rope(permuted, 2).tolist() == weight.tolist()


def test_weights_in_q8_0_are_those_in_q4_1(tmp_path):
    import gguf
    from gguf.quants import dequantize, quantize
    from peers_files import write_q8_0

    kinds = gguf.GGMLQuantizationType
    source, out = tmp_path / "q4_1.gguf", tmp_path / "q8_0.gguf"
    matrix = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_block_count(3)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("matrix", quantize(matrix, kinds.Q4_1), raw_dtype=kinds.Q4_1)
    writer.add_tensor("norm", matrix[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_q8_0(source, out)
    old, new = gguf.GGUFReader(source), gguf.GGUFReader(out)
    assert {name: field.contents() for name, field in new.fields.items()} == {
        name: field.contents() for name, field in old.fields.items()
    }
    kept = [tensor.tensor_type for tensor in new.tensors]
    assert kept == [kinds.Q8_0, kinds.F32]
    before, after = (dequantize(f.tensors[0].data, f.tensors[0].tensor_type) for f in (old, new))
    # Half a step of 8 bits, the scale of which is rounded to half precision.
    assert np.abs(after - before).max() <= np.abs(before).max() / 127 * 0.51
    assert new.tensors[1].data.tolist() == matrix[0].tolist()


def test_what_llama_cpp_has_switched_on():
    from peers_llama import features

    assert features("CPU : AVX2 = 1 | FMA = 0 | REPACK = 1 | ") == "AVX2 REPACK"


def test_what_is_handed_over_first_is_the_prompts():
    from peers_engines import measure

    class Peer:
        arms, about = ("plain",), "none"

        def generate(self, arm, ids, tokens, emit):
            for part in ([], [5], [6, 7], [8]):
                emit(part)
            return {"promoted": 1}

    result = measure(Peer(), "plain", [1], 4)
    assert result["tokens"] == [5, 6, 7, 8]
    assert (result["decoded"], result["steps"], result["promoted"]) == (3, 2, 1)


# The processes, and the script itself.


def test_an_engine_that_is_not_here_is_skipped():
    from peers_process import Worker

    options = {"threads": 1, "cpus": [], "warm_up": [1], "arms": {}, "kernels": ""}
    with Worker("nonesuch", options) as worker:
        assert worker.arms == ()
        assert "nonesuch" in worker.skipped


@pytest.mark.network
def test_a_run_of_our_own_engine(tmp_path):
    (tmp_path / "gsm8k_test.jsonl").write_text(json.dumps({"question": "What is 1 + 1?"}) + "\n")
    out, markdown = tmp_path / "rows.jsonl", tmp_path / "peers.md"
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--data", str(tmp_path)]
    command += ["--out", str(out), "--markdown", str(markdown), "--tasks", "gsm8k"]
    command += ["--limit", "1", "--tokens", "6", "--policies", "chain:2", "--cpus", ""]

    def run(engines):
        return subprocess.run(
            [*command, "--engines", engines], capture_output=True, text=True, check=False
        )

    done = run("torch")
    assert done.returncode == 2
    assert "'native' is missing" in done.stderr
    done = run("native")
    if "skipped native: NativeBuildError" in done.stderr:
        pytest.skip(done.stderr)  # no engine for this machine, or no compiler
    assert done.returncode == 0, done.stderr
    assert markdown.read_text(encoding="utf-8") == done.stdout
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["kind"] == "row"]
    arms = ["plain", "plain", "plain", "strict/chain:2", "margin:0.2/chain:2"]
    assert sorted(row["arm"] for row in rows) == sorted(2 * arms)
    assert all(len(row["tokens"]) == 6 for row in rows)
    strict = [row["tokens"] for row in rows if row["arm"] in ("plain", "strict/chain:2")]
    assert all(tokens == strict[0] for tokens in strict)

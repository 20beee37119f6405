"""Trace files: what is written comes back, and everything else is refused by file and line."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.replay.trace_file import TraceError, TraceWriter, read_trace
from fakes import tiny_engine
from fakes.traces import STEPS, header


@pytest.fixture
def lines() -> list[str]:
    return [header().model_dump_json(), *(json.dumps(step.to_json()) for step in STEPS)]


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def test_a_generation_comes_back_as_it_was_written(tmp_path: Path) -> None:
    engine = tiny_engine.engine()
    options: dict[str, Any] = {"max_tokens": 6, "stop_token_ids": (5,), "top_k": 1}
    stream = engine.stream([3, 9], policy="static:2,2,5", trace=True, **options)
    file = tmp_path / "t.jsonl"
    with TraceWriter(file) as writer:
        writer.begin(engine, stream.result, SamplingParams(**options))
        for chunk in stream:
            if chunk.step is not None:
                writer.write(chunk.step)
    trace = read_trace(file)
    assert [asdict(step) for step in trace.steps] == [asdict(s) for s in stream.result.trace or ()]
    head = trace.header
    assert (head.model, head.draft_model, head.dtype) == ("tiny", None, "float32")
    assert head.policy == "static:num_steps=2,topk=2,num_draft_tokens=5"
    assert (head.rule, head.lossless, head.temperature) == ("strict", True, 0.0)
    assert (head.prompt_tokens, head.max_tokens, head.max_model_len) == (2, 6, 128)
    assert (head.stop_ids, head.protected) == ([0, 5], [0, 5])
    assert head.created.endswith("+00:00")
    assert not trace.recording
    assert trace.truncated == 0


def test_drawn_drafts_come_back_even_where_the_law_excludes_them(tmp_path: Path) -> None:
    """Three children are drawn from a law that top_k = 2 leaves two: the third has no log q."""
    engine = tiny_engine.engine()
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "top_k": 2, "seed": 1}
    drawn = "medusa:positions=[[0],[1],[2],[0,0]]"
    stream = engine.stream([3, 9], rule="rejection", policy=drawn, trace=True, **options)
    file = tmp_path / "t.jsonl"
    with TraceWriter(file) as writer:
        writer.begin(engine, stream.result, SamplingParams(**options))
        for chunk in stream:
            if chunk.step is not None:
                writer.write(chunk.step)
    assert "Infinity" not in file.read_text()
    trace = read_trace(file)
    assert any(None in (step.nodes or {})["logq"] for step in trace.steps)


def test_a_generation_without_steps_leaves_a_header(tmp_path: Path) -> None:
    engine = tiny_engine.engine()
    stream = engine.stream([3], max_tokens=1, trace=True, record=(2, 3))
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        writer.begin(engine, stream.result, SamplingParams(max_tokens=1), (2, 3))
        stream.finish()
    trace = read_trace(tmp_path / "t.jsonl")
    assert trace.steps == []
    assert trace.recording


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        TraceWriter(tmp_path / "nowhere" / "t.jsonl")
    assert caught.value.field == "trace"


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path, lines: Any, cut: int) -> None:
    lines[-1] = lines[-1][:-cut]
    trace = read_trace(write(tmp_path / "t.jsonl", lines, end=""))
    assert trace.truncated == 1
    assert trace.steps == STEPS[:-1]


def test_a_last_line_without_a_line_break_counts(tmp_path: Path, lines: list[str]) -> None:
    trace = read_trace(write(tmp_path / "t.jsonl", lines, end=""))
    assert trace.truncated == 0
    assert trace.steps == STEPS


def test_the_same_damage_elsewhere_is_an_error(tmp_path: Path, lines: list[str]) -> None:
    lines[2] = lines[2][:-30]
    file = write(tmp_path / "t.jsonl", lines)
    with pytest.raises(TraceError) as caught:
        read_trace(file)
    assert caught.value.field == f"{file}, line 3"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("", ["line 1", "no header", "--record-width"]),
        ("{}", ["line 1", "no header"]),
        (json.dumps(STEPS[0].to_json()), ["line 1", "no header"]),
        ('{"adaptivespec_trace": 2}', ["line 1", "adaptivespec_trace"]),
        ('{"adaptivespec_trace": 1}', ["line 1", "model"]),
    ],
)
def test_headers(tmp_path: Path, lines: list[str], first: str, words: list[str]) -> None:
    file = write(tmp_path / "t.jsonl", [first, *lines[1:]])
    with pytest.raises(TraceError) as caught:
        read_trace(file)
    for word in [str(file), *words]:
        assert word in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere.*cannot be read"):
        read_trace(tmp_path / "nowhere")
    (tmp_path / "t").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "t")


def nodes(**changes: Any) -> dict[str, Any]:
    return {**(STEPS[0].nodes or {}), **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position": 9}, ["position is 9, and 2"]),
        ({"position": "2"}, ["position"]),
        ({"plan": [1, 2]}, ["plan"]),
        ({"kinds": ["wrong"]}, ["kinds"]),
        ({"committed": 2}, ["commits 1 token, not 2"]),
        ({"root_confidence": float("nan")}, ["root_confidence"]),
        ({"nodes": None}, ["no nodes"]),
        ({"nodes": {}}, ["nodes has no token"]),
        ({"nodes": nodes(token=[10, 11])}, ["nodes.parent has 7 entries, token 2"]),
        ({"nodes": nodes(target=[1.5] * 7)}, ["nodes.target.0"]),
        ({"nodes": nodes(margin=[None] * 7)}, ["nodes.margin.0"]),
        ({"nodes": nodes(margin=[2.0] * 7)}, ["nodes.margin", "[0, 1]"]),
        ({"nodes": nodes(margin=[float("nan")] * 7)}, ["nodes.margin"]),
        ({"nodes": nodes(target=[-1] * 7)}, ["nodes.target"]),
        ({"nodes": nodes(rank=[0] * 7)}, ["nodes.rank"]),
        ({"nodes": nodes(depth=[0] * 7)}, ["nodes.depth"]),
        ({"nodes": nodes(parent=[-1, 5, 0, 1, 1, 2, 2])}, ["nodes", "node 1 has parent 5"]),
        ({"nodes": nodes(token=[10, 12, 12, 12, 13, 13, 11])}, ["sibling holds the same token"]),
        ({"nodes": nodes(logq=[0.5] * 7)}, ["logq must be <= 0"]),
    ],
)
def test_malformed_steps(
    tmp_path: Path, lines: list[str], changes: dict[str, Any], words: list[str]
) -> None:
    row = {**STEPS[1].to_json(), **changes}
    file = write(tmp_path / "t.jsonl", [*lines[:2], json.dumps(row), *lines[3:]])
    with pytest.raises(TraceError) as caught:
        read_trace(file)
    assert caught.value.field == f"{file}, line 3"
    for word in words:
        assert word in str(caught.value)


def test_the_first_position_is_the_token_after_the_prompt(tmp_path: Path, lines: Any) -> None:
    row = replace(STEPS[0], position=0).to_json()
    file = write(tmp_path / "t.jsonl", [lines[0], json.dumps(row)])
    with pytest.raises(TraceError, match="at least 1"):
        read_trace(file)


def test_unknown_keys_are_passed_over(tmp_path: Path, lines: list[str]) -> None:
    newer = {**json.loads(lines[0]), "colour": "red"}
    row = {**json.loads(lines[1]), "weather": 1}
    trace = read_trace(write(tmp_path / "t.jsonl", [json.dumps(newer), json.dumps(row)]))
    assert trace.steps == STEPS[:1]

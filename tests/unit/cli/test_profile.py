"""`adaptivespec profile`: what it prints, writes and refuses."""

from __future__ import annotations

import json

import pytest

from adaptivespec.engine import costs
from adaptivespec.native.floor import Floor, Rates, Work
from adaptivespec.policy import make_policy
from adaptivespec.policy.costs import CostProfile
from adaptivespec.replay import shapes
from adaptivespec.replay.ranking import ranked
from fakes.traces import trace


def test_a_table_of_passes(run):
    result = run("profile", "-q")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "fake, 1 thread" in words
    assert "verify at context 128 verify at context 512" in words
    assert "16 30.00 ms 1.50x 36.00 ms 1.50x" in words
    assert "drafter pass: 1 rows 1.50 ms 8 rows 2.00 ms" in words
    assert "reading the root: 2.50 ms a round" in words


def test_the_floor_stands_beside_what_was_measured(run, monkeypatch, tmp_path):
    rates, work = Rates(4e9, 5e11, 1e11), Work(40_000_000, 250_000_000, 20_000, 1_000_000)
    monkeypatch.setattr(costs, "floor", lambda target: Floor(rates, work))
    path = tmp_path / "cpu.json"
    result = run("profile", "-q", "--backend", "native", "--json", str(path))
    words = " ".join(result.stdout.split())
    assert "verify at context 128 floor verify at context 512 floor" in words
    assert "1 20.00 ms 1.00x 10.64 ms 53 % 24.00 ms 1.00x 12.56 ms 52 %" in words
    assert "reads 4.0 GB/s, 500 G multiply-adds/s of bytes, 100 G/s of floats" in words
    assert "40.0 MB of weights, 250 M multiply-adds a row; 20.0 kB a token" in words
    assert json.loads(path.read_text())["floor"]["rates"]["bytes"] == 4e9
    assert CostProfile.parse(str(path)).verify_s(16, 128) == 0.03


def test_the_profile_is_written_for_replay(run, tmp_path):
    path = tmp_path / "cpu.json"
    assert run("profile", "-q", "--json", str(path)).exit_code == 0
    profile = CostProfile.parse(str(path))
    assert profile.verify_s(16, 128) == 0.03
    assert json.loads(path.read_text())["name"] == "fake, 1 thread"


def test_options_reach_the_engine(run, engine):
    run("profile", "-q", "--full")
    run("profile", "-q", "--fresh")
    assert [(call["full"], call["fresh"]) for call in engine.measured] == [
        (True, False),
        (False, True),
    ]


def test_a_file_that_cannot_be_written(run, tmp_path):
    result = run("profile", "-q", "--json", str(tmp_path / "no" / "cpu.json"))
    assert result.exit_code == 2
    assert "json: cannot write" in result.stderr


def test_what_a_policy_needs_is_measured_before_the_first_prompt(run, engine):
    run("generate", "-p", "hi", "--policy", "priced", "-q")
    (prepared,) = engine.prepared
    assert prepared[:2] == ("priced", None)


@pytest.fixture
def recorded(monkeypatch) -> list[tuple[str, ...]]:
    """Prompts that shapes are asked for on; the answer is that of a fixed trace."""
    asked = []

    def fixed_shapes(engine, costs, prompts, progress):
        asked.append(tuple(prompts))
        return ranked([trace()], ["strict"], ["none", "static:1,1,2", "static:2,1,3"], [costs])

    monkeypatch.setattr(shapes, "fixed_shapes", fixed_shapes)
    return asked


def test_the_quickest_shape_is_said_with_its_spelling(run, recorded, tmp_path):
    path = tmp_path / "cpu.json"
    result = run("profile", "-q", "--suggest", "--json", str(path))
    assert result.exit_code == 0
    assert recorded == [shapes.PROMPTS]
    (advice,) = [line for line in result.stdout.splitlines() if "fixed shape" in line]
    assert advice.startswith("quickest fixed shape: --policy static:2,1,3, 1.")
    rows = json.loads(path.read_text())["shapes"]
    assert rows[0]["policy"] == make_policy("static:2,1,3").label
    assert CostProfile.parse(str(path)).verify_s(16, 128) == 0.03


def test_own_prompts_are_recorded(run, recorded):
    run("profile", "-q", "-p", "one", "-p", "two")
    assert recorded == [("one", "two")]


def test_where_drafting_loses_plain_decoding_is_advised(run, engine, recorded, monkeypatch):
    dear = CostProfile.parse("dear:verify=[[1,10],[2,90]],draft=5")
    monkeypatch.setattr(engine, "costs", lambda **arguments: dear, raising=False)
    words = run("profile", "-q", "--suggest").stdout
    assert "no fixed shape is quicker than plain decoding: --policy none" in words


def test_unasked_nothing_is_recorded(run, recorded):
    assert "fixed shape" not in run("profile", "-q").stdout
    assert recorded == []

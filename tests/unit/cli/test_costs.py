"""`adaptivespec costs`: what it prints, writes and refuses."""

from __future__ import annotations

import json

from adaptivespec.policy.costs import CostProfile


def test_a_table_of_passes(run):
    result = run("costs", "-q")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "fake, 1 thread" in words
    assert "verify at context 128 verify at context 512" in words
    assert "16 30.00 ms 1.50x 36.00 ms 1.50x" in words
    assert "drafter pass: 1 rows 1.50 ms 8 rows 2.00 ms" in words
    assert "reading the root: 2.50 ms a round" in words


def test_the_profile_is_written_for_replay(run, tmp_path):
    path = tmp_path / "cpu.json"
    assert run("costs", "-q", "--json", str(path)).exit_code == 0
    profile = CostProfile.parse(str(path))
    assert profile.verify_s(16, 128) == 0.03
    assert json.loads(path.read_text())["name"] == "fake, 1 thread"


def test_options_reach_the_engine(run, engine):
    run("costs", "-q", "--full")
    run("costs", "-q", "--fresh")
    assert [(call["full"], call["fresh"]) for call in engine.measured] == [
        (True, False),
        (False, True),
    ]


def test_a_file_that_cannot_be_written(run, tmp_path):
    result = run("costs", "-q", "--json", str(tmp_path / "no" / "cpu.json"))
    assert result.exit_code == 2
    assert "json: cannot write" in result.stderr


def test_what_a_policy_needs_is_measured_before_the_first_prompt(run, engine):
    run("generate", "-p", "hi", "--policy", "priced", "-q")
    (prepared,) = engine.prepared
    assert prepared[:2] == ("priced", None)

"""Measuring costs, keeping them, and the engine's use of them."""

import json

import pytest
import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine import costs
from adaptivespec.policy.costs import CostProfile
from fakes import scripted, tiny

SMALL = costs.Effort((1, 2, 5), (4, 9), 2)
PROFILE = CostProfile("kept", ((0, ((1, 0.01), (64, 0.02))),), ((1, 0.001),), 0.001)


def test_measured_costs_are_positive_and_rise():
    target = tiny.target()
    events = []
    profile = costs.measure(target, tiny.drafter(target), "tiny", SMALL, events.append)
    assert [context for context, _ in profile.verify] == [4, 9]
    for _, table in profile.verify:
        assert [size for size, _ in table] == [1, 2, 5]
        seconds = [value for _, value in table]
        assert seconds == sorted(seconds)
        assert seconds[0] > 0
    assert [rows for rows, _ in profile.draft] == list(costs.DRAFT_ROWS)
    assert profile.overhead > 0
    assert events[-1].done == events[-1].total


def test_a_slow_model_is_measured_once_per_size():
    target = scripted.ScriptedTarget(lambda prefix: scripted.prefer(1))
    profile = costs.measure(target, None, "slow", costs.Effort((1, 2, 3), (4,), 50, seconds=0.0))
    assert target.passes == 1 + 3  # one to warm up
    assert [size for size, _ in profile.verify[0][1]] == [1, 2, 3]


def test_without_a_drafter_only_verify_passes_are_timed():
    profile = costs.measure(tiny.target(), None, "tiny", SMALL)
    assert profile.draft == ((1, 0.0),)
    assert profile.overhead == 0


def test_contexts_that_do_not_fit_are_cut():
    target = scripted.ScriptedTarget(lambda prefix: scripted.prefer(1), max_model_len=20)
    profile = costs.measure(target, None, "short", costs.Effort((1, 8), (4, 500), 1))
    assert [context for context, _ in profile.verify] == [4, 11]
    target = scripted.ScriptedTarget(lambda prefix: scripted.prefer(1), max_model_len=5)
    with pytest.raises(ConfigError, match="too short"):
        costs.measure(target, None, "short", costs.Effort((1, 8), (4,), 1))


def test_a_profile_is_kept_and_a_damaged_one_replaced(tmp_path):
    made = []

    def make():
        made.append(1)
        return PROFILE

    for _ in range(2):
        assert costs.cached(tmp_path, ["a"], make) == PROFILE
    assert len(made) == 1
    costs.cached(tmp_path, ["b"], make)
    costs.cached(tmp_path, ["a"], make, fresh=True)
    assert len(made) == 3
    for path in (tmp_path / "costs").iterdir():
        path.write_text("{")
    assert costs.cached(tmp_path, ["a"], make) == PROFILE
    assert len(made) == 4
    assert len(list((tmp_path / "costs").iterdir())) == 2  # nothing half-written is left


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert costs.cached(blocked, ["a"], lambda: PROFILE) == PROFILE


def test_a_profile_depends_on_threads_and_precision():
    target = tiny.target()
    key = costs.machine_key(target, "model", "head")
    assert costs.machine_key(target, "model", "other") != key
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert costs.machine_key(target, "model", "head") != key
    finally:
        torch.set_num_threads(before)


def test_the_engine_measures_for_a_policy_that_needs_it(tmp_path, monkeypatch):
    engine = scripted.engine(lambda prefix: scripted.prefer(5), lambda prefix: scripted.chain(5, 5))
    engine._costs, engine._cache_dir = None, tmp_path
    monkeypatch.setattr("adaptivespec.engine.engine.measure", lambda *arguments: PROFILE)
    plain = engine.generate([1], policy="none", max_tokens=12)
    assert not (tmp_path / "costs").exists()
    priced = engine.generate([1], policy="priced", max_tokens=12, trace=True)
    assert priced.token_ids == plain.token_ids
    (kept,) = (tmp_path / "costs").iterdir()
    assert json.loads(kept.read_text())["name"] == "kept"
    assert engine.costs() == PROFILE


def test_what_a_policy_learns_outlives_the_request_but_not_the_rule(tmp_path, monkeypatch):
    engine = scripted.engine(lambda prefix: scripted.prefer(5), lambda prefix: scripted.chain(5, 5))
    engine._costs = PROFILE
    for _ in range(2):
        engine.generate([1], policy="priced", max_tokens=12)
        engine.generate([1], policy="priced", rule="margin:0.5", max_tokens=12)
    memories = list(engine._memories.values())
    assert len(memories) == 2
    assert memories[0] is not memories[1]
    assert memories[0].clock.seconds > 0


def test_memories_are_kept_of_the_pairs_used_last():
    engine = scripted.engine(lambda prefix: scripted.prefer(5), lambda prefix: scripted.chain(5, 5))
    engine._costs = PROFILE
    first = engine.job([1], policy="priced").request.policy.memory
    for step in range(200):
        engine.job([1], policy="priced", rule=f"margin:{0.001 * step}")
        engine.job([1], policy="priced")
        engine.job([1], policy="dcs", rule=f"margin:{0.001 * step}")
    assert len(engine._memories) <= 64
    assert engine.job([1], policy="priced").request.policy.memory is first


def test_preparing_measures_what_the_first_request_would_wait_for(tmp_path, monkeypatch):
    engine = scripted.engine(lambda prefix: scripted.prefer(5), lambda prefix: scripted.chain(5, 5))
    engine._costs, engine._cache_dir = None, tmp_path
    asked = []
    monkeypatch.setattr("adaptivespec.engine.engine.measure", lambda *a: asked.append(a) or PROFILE)
    engine.prepare("dcs")
    assert asked == []
    engine.prepare("priced", {"topk": 2})
    engine.generate([1], policy="priced", max_tokens=4)
    assert len(asked) == 1

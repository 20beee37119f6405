"""Thrift: drafts while that pays, rests while it does not, and repeats itself."""

from __future__ import annotations

import pytest

from adaptivespec.policy import make_policy
from adaptivespec.policy.base import NOTHING, Outcome, Signals
from adaptivespec.policy.thrift import ThriftPolicy

SIGNALS = Signals(0.5)


def step(policy: ThriftPolicy, accepted: int, verified: int = 2) -> bool:
    """One step; whether it drafted."""
    plan = policy.plan(SIGNALS)
    if plan.draft_nothing:
        policy.observe(plan, Outcome(0, 0, 0, committed=1))
        return False
    outcome = Outcome(accepted, 0, verified, committed=accepted + 1, root_confidence=0.5)
    policy.observe(plan, outcome)
    return True


def thrift(**options: float) -> ThriftPolicy:
    policy = make_policy("thrift", options)
    assert isinstance(policy, ThriftPolicy)
    return policy


def rests(policy: ThriftPolicy, accepted: int, steps: int) -> list[int]:
    """Lengths of the runs without drafts."""
    drafted = "".join("d" if step(policy, accepted) else "-" for _ in range(steps))
    return [len(run) for run in drafted.split("d") if run]


def test_what_pays_is_drafted_for_ever() -> None:
    assert rests(thrift(), accepted=1, steps=300) == []


def test_what_does_not_pay_is_drafted_less_and_less() -> None:
    lengths = rests(thrift(), accepted=0, steps=400)
    assert lengths[:4] == [8, 16, 32, 64]
    assert set(lengths[3:-1]) == {64}
    assert rests(thrift(rest=3, longest=5), accepted=0, steps=60)[:3] == [3, 5, 5]


def test_the_price_decides() -> None:
    """One of two drafts accepted earns 1 token and costs first + more."""
    assert rests(thrift(first=0.5, more=0.4), accepted=1, steps=200) == []
    assert rests(thrift(first=0.5, more=0.6), accepted=1, steps=200) != []


def test_a_rest_is_short_again_after_a_good_run() -> None:
    policy = thrift()
    assert rests(policy, accepted=0, steps=60)[:2] == [8, 16]
    while not step(policy, accepted=2):
        pass
    for _ in range(20):
        assert step(policy, accepted=2)
    assert rests(policy, accepted=0, steps=100)[0] == 8


def test_a_rest_asks_for_nothing_and_ends() -> None:
    policy = thrift(rest=2)
    while not policy.resting:
        step(policy, accepted=0)
    for _ in range(2):
        assert policy.resting
        assert policy.plan(SIGNALS) == NOTHING
        policy.observe(NOTHING, Outcome(0, 0, 0, committed=1))
    assert not policy.resting
    assert policy.plan(SIGNALS).num_steps == 6


def test_steps_that_drafted_nothing_say_nothing() -> None:
    policy = thrift()
    before = policy.balance
    policy.observe(policy.plan(SIGNALS), Outcome(0, 0, 0, committed=1))
    assert policy.balance == before


def test_a_new_request_starts_anew() -> None:
    policy = thrift()
    rests(policy, accepted=0, steps=50)
    policy.begin()
    assert not policy.resting
    assert policy.balance == pytest.approx(0.6)
    assert rests(policy, accepted=0, steps=30)[0] == 8

"""One rule and one policy replayed on traces written by hand; every figure can be checked."""

from __future__ import annotations

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, TreePlan
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.static import StaticPolicy
from adaptivespec.replay.arm import Arm, check_trace
from adaptivespec.replay.records import Records
from adaptivespec.replay.trace_file import Trace, TraceError
from adaptivespec.verify import make_rule
from fakes.traces import STEPS, step, trace, tree

COST = CostProfile.parse("box:verify=[[1,10],[3,14]],draft=1,overhead=0.5")


def replay(rule: str, policy: str, *traces: Trace, cost: CostProfile | None = None) -> Arm:
    arm = Arm(make_rule(rule), make_policy(policy), cost)
    for each in traces or (trace(),):
        arm.take(Records(each))
    return arm


@pytest.mark.parametrize(
    ("policy", "lengths"),
    [
        ("none", [1, 1, 1, 1]),
        ("chain:1", [2, 1, 1]),  # 11 and bonus 12; 14 is wrong, bonus 13; EOS
        ("chain:2", [3, 1]),  # 11 12 and bonus 13, then EOS ends the text
        ("static:2,2,7", [3, 1]),
        ("static:1,2,3", [2, 1, 1]),
    ],
)
def test_strict_steps_from_record_to_record(policy: str, lengths: list[int]) -> None:
    arm = replay("strict", policy)
    assert arm.committed == [lengths]
    assert arm.stats.accept_length == pytest.approx(4 / len(lengths))
    assert arm.exactness == "exact"


def test_what_is_counted() -> None:
    arm = replay("strict", "chain:2", trace(), trace())
    stats = arm.stats
    assert arm.committed == [[3, 1], [3, 1]]
    assert (stats.num_spec_steps, stats.num_draft_tokens) == (4, 8)
    # EOS was drafted right and ends the text: no bonus comes after it.
    assert (stats.num_accepted_draft_tokens, stats.accepted_per_pos) == (6, [4, 2])
    assert arm.num_levels == 8


def test_signals_are_those_of_the_record() -> None:
    seen: list[Signals] = []

    class Spy(StaticPolicy):
        def propose(self, signals: Signals) -> TreePlan:
            seen.append(signals)
            return TreePlan(1, 1, 2)

    arm = Arm(make_rule("strict"), Spy())
    arm.take(Records(trace(max_tokens=6, max_model_len=9)))
    assert [s.root_confidence for s in seen] == pytest.approx([0.5, 0.4, 0.9])
    assert [s.output_len for s in seen] == [1, 3, 4]
    assert [s.context_len for s in seen] == [5, 7, 8]  # five of the prompt
    # At the end one token is left, as max_model_len says, and the plan is capped.
    assert [s.remaining for s in seen] == [4, 2, 1]
    assert arm.committed == [[2, 1, 1]]
    assert arm.stats.num_draft_tokens == 2


def test_outcomes_are_those_of_the_walk_and_costs_are_predicted() -> None:
    seen: list[Outcome] = []

    class Spy(StaticPolicy):
        def observe(self, plan: TreePlan, outcome: Outcome) -> None:
            seen.append(outcome)

    policy = Spy(StaticPolicy.Options.model_validate({"num_steps": 2, "topk": 1}))
    arm = Arm(make_rule("strict"), policy, COST)
    arm.take(Records(trace()))
    first, last = seen
    assert (first.num_accepted, first.num_verified, first.committed) == (2, 2, 3)
    assert list(first.path) == [0, 1, 2]
    assert (last.num_accepted, last.committed) == (1, 1)
    assert (first.context_len, first.root_confidence) == (5, pytest.approx(0.5))
    # A pass of the drafter for the second level, the root's row, and a pass over three nodes.
    assert first.seconds == pytest.approx({"draft": 0.0015, "verify": 0.014, "host": 0.0})
    assert arm.seconds == pytest.approx(2 * 0.0155)
    assert arm.plain_seconds == pytest.approx(4 * 0.0105)
    assert arm.ms_per_token == pytest.approx(31 / 4)
    assert arm.speedup == pytest.approx(42 / 31)


def test_without_costs_nothing_is_timed() -> None:
    arm = replay("strict", "chain:2")
    assert (arm.ms_per_token, arm.speedup) == (None, None)
    with pytest.raises(ConfigError, match="--cost"):
        replay("strict", "priced")
    assert replay("strict", "priced:online=false", cost=COST).committed == [[3, 1]]


def test_nodes_that_were_not_recorded_are_counted() -> None:
    arm = replay("strict", "chain:3")
    assert arm.committed == [[3, 1]]
    assert arm.exactness == "approximate: 100 % of steps asked for nodes that were not recorded"
    # At 12 nothing was recorded below the first level.
    sparse = replay("strict", "chain:2", trace(STEPS[2:]))
    assert sparse.committed == [[1, 1]]
    assert sparse.exactness == "approximate: 50 % of steps asked for nodes that were not recorded"


def test_coarse_weights_are_named() -> None:
    arm = replay("strict", "chain:2", trace(), trace(dtype="bfloat16"))
    assert arm.exactness == "exact up to bfloat16 rounding"


def test_promotions_change_the_text() -> None:
    # From the second position on: 13 in place of 12, then the bonus 14, two tokens; then EOS.
    arm = replay("margin:0.2", "chain:1", trace(STEPS[1:]))
    assert arm.committed == [[2, 1]]
    assert arm.stats.num_promoted_tokens == 1
    assert arm.stats.regret_nats == pytest.approx(0.6931, abs=1e-4)
    assert arm.exactness == "approximate: promotions change the text"
    strict = replay("margin:0.6", "chain:1", trace(STEPS[1:]))  # 0.5 does not exceed 0.6
    assert strict.committed == [[1, 1, 1]]
    assert strict.exactness == "exact"


def test_limits_and_memory_hold_over_the_steps_of_a_text() -> None:
    steps = [step(i, tree(9 + i, 10 + i, (30, 0, 0.5, 0, 40, 0.5))) for i in range(1, 6)]
    assert replay("margin:0.2", "chain:1", trace(steps)).committed == [[2, 2, 1]]
    # 0.69 nats each: a second one within the window would exceed 1 nat.
    limited = replay("margin:kappa=0.2,max_regret=1.0", "chain:1", trace(steps), trace(steps))
    assert limited.committed == [[2, 1, 1, 1]] * 2


def test_protected_tokens_are_neither_promoted_nor_overridden() -> None:
    assert replay("margin:0", "chain:1", trace(STEPS[1:])).committed == [[2, 1]]
    # 13 would be promoted at the second position, and is the target's own at the third.
    arm = replay("margin:0", "chain:1", trace(STEPS[1:], protected=[2, 13]))
    assert arm.committed == [[1, 1, 1]]


def test_a_text_that_stops_by_itself_ends_the_step() -> None:
    # Recorded as one step of a run, whose tree goes on below EOS.
    steps = [step(1, tree(10, 2, (2, 0, 0.9, 0, 11, 1.0), (11, 1, 0.9, 0, 12, 1.0)), 3)]
    alone = {"record_width": None, "record_depth": None}
    assert replay("strict", "chain:2", trace(steps, **alone)).committed == [[1]]
    assert replay("strict", "chain:2", trace(steps, stop_ids=[], **alone)).committed == [[3]]


def test_without_a_recording_each_step_is_judged_alone() -> None:
    alone = trace(STEPS, record_width=None, record_depth=None)
    arm = replay("strict", "chain:2", alone)
    assert arm.committed == [[3, 1, 1, 1]]
    assert arm.exactness == (
        "approximate: trees at the steps of one run only; "
        "25 % of steps asked for nodes that were not recorded"
    )


def test_a_policy_begins_anew_with_every_trace() -> None:
    policy = make_policy("dcs:patience=99")
    arm = Arm(make_rule("strict"), policy)
    arm.take(Records(trace()))
    assert policy.rar != 0.5
    arm.take(Records(trace([])))
    assert policy.rar == 0.5
    assert arm.committed[1] == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("typical", ["reads more of the model", "adaptivespec generate"]),
        ("rejection", ["'rejection'", "reads more"]),
        ("margin:protect_digits=true", ["digits"]),
        ("margin:think_only=true", ["think_only"]),
    ],
)
def test_rules_that_need_more_than_a_trace(rule: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        replay(rule, "none")
    for word in words:
        assert word in str(caught.value)


def test_traces_that_cannot_be_replayed() -> None:
    check_trace(trace())
    check_trace(trace([]))
    with pytest.raises(TraceError, match=r"temperature 0\.7"):
        check_trace(trace(temperature=0.7))
    roots = [step(1, tree(10, 11)), step(2, tree(11, 12))]
    check_trace(trace(roots))  # the end of a recording
    with pytest.raises(TraceError, match="no drafts"):
        check_trace(trace(roots, record_width=None, record_depth=None))

"""dcs and ema for batches: against the embedded engine, and against numbers by hand."""

import math
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.integrations.sglang.policies import make_batch_policy
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.dcs import interpolate

LOW, HIGH = (3, 4, 4), (7, 1, 8)
PRICED = "priced:arms=[[1,1,2],[2,2,4],[3,1,4],[5,4,16]]"
#: 10 ms a pass up to 4 nodes, then 1 ms a node; a draft pass 1 ms; 0.5 ms of overhead.
LINEAR = CostProfile("linear", ((0, ((1, 0.010), (4, 0.010), (64, 0.070))),), ((1, 0.001),), 0.0005)
confidences = st.floats(0, 1)
rounds_of_one = st.lists(st.tuples(confidences, st.integers(0, 8)), max_size=120)

FAST = settings(deadline=None, derandomize=True, max_examples=80)


@FAST
@given(
    rounds_of_one,
    st.sampled_from(
        [
            "dcs",
            "dcs:alpha=1,d=0.8,seed=0.9,patience=1",
            "dcs:acceptance=per_node,low=(2,4,8),high=(6,2,8)",
            "dcs:acceptance=any,patience=3",
            "ema",
            "ema:candidates=[1,2,4,6],alpha=0.6,down=0",
            "chain:4",
            "static:3,2,6",
        ]
    ),
    st.sampled_from(["mean", "median", "min"]),
)
def test_a_batch_of_one_equals_the_embedded_policy(rounds, spec, how):
    batch, embedded = make_batch_policy(spec, combine=how), make_policy(spec)
    for confidence, most in rounds:
        plan = embedded.plan(Signals(confidence))
        triple = batch.choose(["a"], [confidence])
        assert triple == plan.triple
        accepted = min(most, triple[0])
        embedded.observe(plan, Outcome(accepted, 0, triple[2] - 1, accepted + 1))
        batch.observe(["a"], triple, [accepted], [confidence], None)


COMBINE = {"mean": fmean, "median": median, "min": min}


@FAST
@given(
    st.sampled_from(sorted(COMBINE)),
    st.lists(
        st.lists(st.tuples(confidences, st.integers(0, 8)), min_size=1, max_size=5), max_size=20
    ),
)
def test_a_batch_goes_by_its_requests_scores(how, rounds):
    """Against RAR by hand: 0.5 at first, 0.3 of the way to accepted / num_steps every round."""
    policy = make_batch_policy("dcs:patience=1000", combine=how)
    rar = {}
    for round_ in rounds:
        names = [f"r{i}" for i in range(len(round_))]
        given_confidence = [confidence for confidence, _ in round_]
        scores = [
            min(1.0, confidence * rar.get(name, 0.5) / 0.5)
            for name, confidence in zip(names, given_confidence, strict=True)
        ]
        expected = COMBINE[how](scores)
        triple = policy.choose(names, given_confidence)
        near = {interpolate(min(1.0, expected * x), LOW, HIGH) for x in (1 - 1e-9, 1, 1 + 1e-9)}
        assert triple in near
        accepted = [min(most, triple[0]) for _, most in round_]
        policy.observe(names, triple, accepted, given_confidence, None)
        for name, count in zip(names, accepted, strict=True):
            before = rar.get(name, 0.5)
            rar[name] = before + 0.3 * (count / triple[0] - before)


def test_mean_median_and_min_differ():
    scores = [0.0, 0.1, 0.9]  # of requests at the seed: s is the confidence
    chosen = {
        how: make_batch_policy("dcs", combine=how).choose(["a", "b", "c"], scores)
        for how in COMBINE
    }
    assert chosen == {"mean": (4, 3, 5), "median": (3, 4, 4), "min": (3, 4, 4)}
    assert make_batch_policy("dcs", combine="median").choose(["a", "b", "c"], [0, 0.7, 1]) == (
        6,
        2,
        7,
    )


def test_scores_that_round_across_an_edge_stay_among_the_triples():
    """Two numbers change at 1/4; just below it only one of them is rounded up."""
    policy = make_batch_policy("dcs:low=(8,11,7),high=(10,17,17),d=1,seed=1")
    below = math.nextafter(0.25, 0)
    assert interpolate(below, (8, 11, 7), (10, 17, 17)) not in policy.triples
    assert policy.choose(["a"], [below]) in policy.triples


@pytest.mark.parametrize("spec", ["dcs", PRICED])
def test_without_confidence_acceptance_alone_decides(spec):
    def after(accept):
        policy = make_batch_policy(spec, costs=LINEAR)
        for _ in range(40):
            triple = policy.choose(["a"], None)
            policy.observe(["a"], triple, [triple[0] if accept else 0], None, None)
        return policy.choose(["a"], None)

    assert after(accept=True)[0] > after(accept=False)[0]


def test_how_often_the_first_draft_is_followed_stands_in_for_the_confidence():
    policy = make_batch_policy("dcs:d=1,acceptance=any")  # the score is confidence * RAR
    for _ in range(40):
        policy.observe(["a"], policy.choose(["a"], None), [1], None, None)
    assert policy.choose(["a"], None) == HIGH
    assert policy.choose(["a"], [math.nan]) == HIGH
    assert policy.choose(["a"], [0.45]) == interpolate(0.45, LOW, HIGH)


@pytest.mark.parametrize("spec", ["dcs", PRICED])
def test_one_unknown_confidence_is_filled_in_by_the_past_of_its_request(spec):
    policy, blind = make_batch_policy(spec, costs=LINEAR), make_batch_policy(spec, costs=LINEAR)
    # Unknown and without a past is 0.5.
    assert policy.choose(["a", "b"], [0.9, math.nan]) == blind.choose(["a", "b"], [0.9, 0.5])


def test_the_lengths_of_a_batch_are_combined_to_one_of_them():
    def length(how, joined):
        policy = make_batch_policy("ema", combine=how)
        for _ in range(30):  # "a" follows whole chains, "b" none
            triple = policy.choose(["a", "b"], None)
            policy.observe(["a", "b"], triple, [triple[0], 0], None, None)
        return policy.choose(joined, None)

    assert length("mean", ["b"]) == (1, 1, 2)
    assert length("min", ["a", "b"]) == (1, 1, 2)
    assert length("mean", ["a"]) == (7, 1, 8)
    assert length("mean", ["a", "b"]) == (3, 1, 4)  # the longest within (7 + 1) / 2


def test_a_chain_shorter_than_a_request_wants_counts_where_it_fails():
    policy = make_batch_policy("ema:alpha=1")
    policy.choose(["a"], None)
    policy.observe(["a"], (1, 1, 2), [1], None, None)  # followed to its end: at least 1
    assert policy.choose(["a"], None) == (3, 1, 4)
    policy.observe(["a"], (3, 1, 4), [3], None, None)
    assert policy.choose(["a"], None) == (7, 1, 8)
    policy.observe(["a"], (1, 1, 2), [1], None, None)
    assert policy.choose(["a"], None) == (7, 1, 8)
    policy.observe(["a"], (1, 1, 2), [0], None, None)
    assert policy.choose(["a"], None) == (1, 1, 2)

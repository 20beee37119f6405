"""Which policies work inside SGLang, and what all of them promise."""

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang.policies import check_triple, make_batch_policy
from adaptivespec.policy import POLICIES, make_policy

PRICED = "priced:arms=[[1,1,2],[2,2,4],[3,1,4],[5,4,16]]"

SPECS = [
    "static:5,4,16",
    "chain:3",
    "dcs",
    "dcs:d=0.9,alpha=0.7,patience=2,acceptance=any",
    "ema",
    PRICED,
    "priced",
]
confidences = st.floats(0, 1)

FAST = settings(deadline=None, derandomize=True, max_examples=80)


def test_every_registered_policy_works_or_is_refused_with_a_reason():
    works = {"static", "chain", "ema", "dcs", "priced"}
    for name in POLICIES.names():
        if name in works:
            assert make_batch_policy(name).triples
            continue
        with pytest.raises(ConfigError, match=r"does not work inside SGLang: .{20}") as caught:
            make_batch_policy(name)
        assert caught.value.field == "policy"
        for legal in works:
            assert legal in str(caught.value)


def test_an_unknown_policy_is_named():
    with pytest.raises(ConfigError, match=r"unknown policy 'dsc'.*dcs"):
        make_batch_policy("dsc")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("static:3,1,8", "policy_options.num_draft_tokens"),
        ("static:0,1,1", "policy_options.num_steps"),
        ("chain:3,min_confidence=0.4", "policy_options.min_confidence"),
        ("dcs:low=(2,4,8),high=(7,1,8)", "policy_options.low..high.num_draft_tokens"),
        ("dcs:d=2", "policy_options.d"),
        ("priced:mode=tree", "policy_options.mode"),
        ("priced:prior=10", "policy_options.prior"),
        ("priced:arms=[[3,4,8],[1,1,1],[3,1,9]]", "policy_options.arms"),
    ],
)
def test_what_sglang_cannot_do_is_refused(spec, field):
    with pytest.raises(ConfigError) as caught:
        make_batch_policy(spec)
    assert caught.value.field == field


def test_every_illegal_arm_is_named_and_no_legal_one():
    with pytest.raises(ConfigError) as caught:
        make_batch_policy("priced:arms=[[3,4,8],[1,1,1],[3,1,9]]")
    assert "(1, 1, 1)" in str(caught.value)
    assert "(3, 1, 9)" in str(caught.value)
    assert "(3, 4, 8)" not in str(caught.value)


def test_of_the_default_arms_the_legal_ones_are_used():
    default = make_policy("priced").options.arms
    assert (1, 1, 1) in default
    assert make_batch_policy("priced").triples == tuple(arm for arm in default if arm[2] > 1)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"combine": "max"}, "combine"),
        ({"draft_share": -0.1}, "draft_share"),
        ({"draft_share": math.nan}, "draft_share"),
        ({"max_batch": 0}, "max_batch"),
        ({"hold": 0}, "hold"),
        ({"large_batch": (1, 1, 2)}, "large_batch"),
        ({"max_batch": 8, "large_batch": (2, 1, 2)}, "large_batch.num_draft_tokens"),
    ],
)
def test_numbers_are_checked(options, field):
    with pytest.raises(ConfigError) as caught:
        make_batch_policy("dcs", **options)
    assert caught.value.field == field


def test_constant_policies_are_their_triple():
    for spec, triple in [
        ("static:5,4,16", (5, 4, 16)),
        ("static", (5, 4, 8)),
        ("chain:3", (3, 1, 4)),
    ]:
        policy = make_batch_policy(spec)
        assert policy.triples == (triple,)
        assert policy.choose(["a", "b"], None) == triple
        assert not policy.needs_confidence


def test_only_policies_that_look_at_the_confidence_ask_for_it():
    asks = {spec: make_batch_policy(spec, max_batch=4, hold=2).needs_confidence for spec in SPECS}
    assert asks == {spec: spec.startswith(("dcs", "priced")) for spec in SPECS}


def test_labels_are_those_of_the_policies():
    assert make_batch_policy("dcs:d=0.6", max_batch=4, hold=3).label == "dcs:d=0.6"


def test_a_request_that_joins_starts_afresh():
    policy = make_batch_policy("dcs", combine="min")
    for _ in range(4):
        policy.observe(["a"], policy.choose(["a"], [0.9]), [0])
    assert policy.choose(["a"], [0.9]) < policy.choose(["b"], [0.9])
    assert policy.choose(["a", "b"], [0.9, 0.9]) == policy.choose(["a"], [0.9])


def test_a_forgotten_request_starts_afresh():
    policy = make_batch_policy("dcs")
    fresh = policy.choose(["a"], [0.9])
    for _ in range(4):
        policy.observe(["a"], policy.choose(["a"], [0.9]), [0])
    assert policy.choose(["a"], [0.9]) != fresh
    policy.forget(["a", "nobody"])
    assert policy.choose(["a"], [0.9]) == fresh


@pytest.mark.parametrize("spec", SPECS)
def test_results_of_requests_that_are_gone_or_unknown_do_no_harm(spec):
    policy = make_batch_policy(spec)
    triple = policy.choose(["a", "b"], [0.5, 0.5])
    policy.forget(["a"])
    policy.observe(["a", "b", "c"], triple, [1, 1, 1], [0.5, 0.5, 0.5], None)
    assert policy.choose(["b", "d"], [0.5, 0.5]) in policy.triples


@pytest.mark.parametrize("spec", SPECS)
def test_memory_does_not_grow_with_the_requests_served(spec):
    policy = make_batch_policy(spec, hold=2, max_batch=2, large_batch=(1, 1, 2))
    sizes = []
    for wave in range(40):
        names = [f"{wave:03}-{i}" for i in range(1 + wave % 4)]
        for _ in range(5):
            triple = policy.choose(names, [0.7] * len(names))
            policy.observe(names, triple, [1] * len(names), [0.7] * len(names), 0.01)
        policy.forget(names)
        policy.observe(names, triple, [1] * len(names), [0.7] * len(names), 0.01)
        sizes.append(len(pickle.dumps(policy)))
    # The survival curves of every arm fill up at first; a request would take 50 bytes or more.
    assert max(sizes[20:]) - min(sizes[20:]) < 50


operations = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True),
        st.lists(st.one_of(confidences, st.just(math.nan)), min_size=8, max_size=8),
        st.lists(st.integers(0, 7), min_size=8, max_size=8),
        st.sampled_from([None, 0.0, math.nan, math.inf, 0.01, 0.02, 5.0]),
        st.lists(st.sampled_from("abcdefghz"), max_size=3),
        st.booleans(),
    ),
    max_size=30,
)


@FAST
@given(
    st.sampled_from(SPECS),
    operations,
    st.sampled_from(["mean", "median", "min"]),
    st.integers(1, 4),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
def test_any_history_gives_known_triples_and_two_instances_agree(
    spec, history, how, hold, limit, late
):
    """Results may come a round late, of requests that are gone; confidences may be missing."""
    large = None if limit is None else (1, 1, 2)
    both = [
        make_batch_policy(spec, combine=how, hold=hold, max_batch=limit, large_batch=large)
        for _ in range(2)
    ]
    pending = []
    for names, values, counts, seconds, gone, blind in history:
        size = len(names)
        confidence = None if blind else values[:size]
        chosen = [policy.choose(names, confidence) for policy in both]
        assert chosen[0] == chosen[1]
        assert chosen[0] in both[0].triples
        triple = chosen[0]
        accepted = [min(count, triple[0]) for count in counts[:size]]
        pending.append((names, triple, accepted, confidence, seconds))
        if len(pending) > late:
            result = pending.pop(0)
            for policy in both:
                policy.observe(*result)
        for policy in both:
            policy.forget(gone)
    for triple in both[0].triples:
        check_triple(triple)

"""One triple for a batch: against the embedded engine's policies, and against numbers by hand."""

import math
import pickle
import random
from itertools import pairwise
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang.policies import (
    Held,
    LargeBatch,
    check_triple,
    largest,
    make_batch_policy,
)
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.policy.base import Outcome, Signals
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.dcs import interpolate
from adaptivespec.policy.rate import Clock, Correction, Round

LOW, HIGH = (3, 4, 4), (7, 1, 8)
ARMS = ((1, 1, 2), (2, 2, 4), (3, 1, 4), (5, 4, 16))
PRICED = "priced:arms=[[1,1,2],[2,2,4],[3,1,4],[5,4,16]]"
#: 10 ms a pass up to 4 nodes, then 1 ms a node; a draft pass 1 ms; 0.5 ms of overhead.
LINEAR = CostProfile("cpu", ((0, ((1, 0.010), (4, 0.010), (64, 0.070))),), ((1, 0.001),), 0.0005)
#: Nothing depends on the size, and drafting is nearly free.
FLAT = CostProfile("gpu", ((0, ((1, 0.010),)),), ((1, 0.0001),))

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
SLOW = settings(deadline=None, derandomize=True, max_examples=15)


def field_of(caught):
    return caught.value.field


# --- SGLang's law -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("triple", "field"),
    [
        ((0, 1, 1), "num_steps"),
        ((0, 4, 4), "num_steps"),
        ((2, 0, 3), "topk"),
        ((3, 1, 3), "num_draft_tokens"),
        ((3, 1, 8), "num_draft_tokens"),
        ((1, 1, 1), "num_draft_tokens"),
        ((3, 4, 1), "num_draft_tokens"),
        ((1, 4, 6), "num_draft_tokens"),
        ((2, 2, 8), "num_draft_tokens"),
    ],
)
def test_an_illegal_triple_is_refused_by_the_number_that_is_wrong(triple, field):
    with pytest.raises(ConfigError) as caught:
        check_triple(triple)
    assert field_of(caught) == field
    assert str(triple) in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        check_triple(triple, "large_batch")
    assert field_of(caught) == f"large_batch.{field}"


@FAST
@given(st.tuples(st.integers(-1, 5), st.integers(-1, 4), st.integers(-1, 70)))
def test_the_law_is_that_of_the_nodes_a_tree_can_have(triple):
    steps, topk, tokens = triple
    nodes = 1  # grown level by level: topk nodes under the root, then topk under each of topk
    for level in range(steps):
        nodes += topk if level == 0 else topk * topk
    legal = steps >= 1 and topk >= 1 and 2 <= tokens <= nodes and (topk > 1 or tokens == steps + 1)
    try:
        check_triple(triple)
    except ConfigError:
        assert not legal
    else:
        assert legal


def test_largest_is_element_wise():
    assert largest([(3, 4, 4), (7, 1, 8), (5, 4, 16)]) == (7, 4, 16)


# --- which policies there are -------------------------------------------------------------------


def test_every_registered_policy_works_or_is_refused_with_a_reason():
    works = {"static", "chain", "ema", "dcs", "priced"}
    for name in POLICIES.names():
        if name in works:
            assert make_batch_policy(name).triples
            continue
        with pytest.raises(ConfigError, match=r"does not work inside SGLang: .{20}") as caught:
            make_batch_policy(name)
        assert field_of(caught) == "policy"
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
    assert field_of(caught) == field


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
    assert field_of(caught) == field


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


# --- a batch of one is the embedded engine ------------------------------------------------------

rounds_of_one = st.lists(st.tuples(confidences, st.integers(0, 8)), max_size=120)


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


@FAST
@given(rounds_of_one, st.sampled_from([LINEAR, FLAT]), st.sampled_from(["", ",half_life=3"]))
def test_a_priced_batch_of_one_equals_the_embedded_triple_mode(rounds, costs, options):
    batch = make_batch_policy(PRICED + options, costs=costs)
    embedded = make_policy(f"{PRICED},mode=triple{options}")
    embedded.costs = costs
    for confidence, most in rounds:
        plan = embedded.plan(Signals(confidence))
        triple = batch.choose(["a"], [confidence])
        assert triple == plan.triple
        accepted = min(most, triple[0])
        embedded.observe(
            plan,
            Outcome(accepted, 0, triple[2] - 1, accepted + 1, root_confidence=confidence),
        )
        batch.observe(["a"], triple, [accepted], [confidence], None)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_priced_run_equals_the_embedded_triple_mode(seed):
    """Long enough for explorations and for every arm."""
    rng, costs = random.Random(seed), [LINEAR, FLAT][seed % 2]
    batch = make_batch_policy(PRICED, costs=costs)
    embedded = make_policy(f"{PRICED},mode=triple")
    embedded.costs = costs
    seen = set()
    for round_ in range(400):
        confidence = rng.betavariate(1, 1) if round_ % 100 < 50 else rng.betavariate(9, 1)
        plan, triple = embedded.plan(Signals(confidence)), batch.choose(["a"], [confidence])
        assert triple == plan.triple
        seen.add(triple)
        accepted = sum(rng.random() < confidence for _ in range(triple[0]))
        outcome = Outcome(accepted, 0, triple[2] - 1, accepted + 1, root_confidence=confidence)
        embedded.observe(plan, outcome)
        batch.observe(["a"], triple, [accepted], [confidence], None)
    assert len(seen) >= 3


# --- dcs: many requests -------------------------------------------------------------------------

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


# --- requests come and go -----------------------------------------------------------------------


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


# --- without the drafter's confidence -----------------------------------------------------------


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


# --- ema ----------------------------------------------------------------------------------------


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


# --- priced -------------------------------------------------------------------------------------


class Reference:
    """The rule once more, request by request: G and the rate from the whole history."""

    def __init__(self, costs):
        self.costs, self.history, self.arm, self.rounds = costs, [], ARMS[0], 0

    def survival(self, topk, confidence, depth):
        followed = tried = 0.0
        for triple, known, accepted in self.history:
            steps, width, tokens = triple
            same = width == topk and min(int(known * 5), 4) == min(int(confidence * 5), 4)
            if same and depth <= min(steps, tokens - 1):
                followed, tried = followed * 0.999 + (accepted >= depth), tried * 0.999 + 1
        return (followed + 10 * confidence**depth) / (tried + 10)

    def plain_s(self, batch):
        return self.costs.verify_s(batch) + self.costs.overhead

    def choose(self, batch, speed_up):
        """The arm for these confidences, and how near the decision was, in tokens."""
        rate = speed_up * len(batch) / self.plain_s(len(batch))
        gains, worths = {}, {}
        for steps, topk, tokens in ARMS:
            levels = range(1, min(steps, tokens - 1) + 1)
            gain = sum(1 + sum(self.survival(topk, c, d) for d in levels) for c in batch)
            verify = self.costs.verify_s(len(batch) * tokens)
            drafting = (steps - 1) * self.costs.draft_s(len(batch) * topk)
            gains[steps, topk, tokens] = gain
            worths[steps, topk, tokens] = gain - rate * (verify + drafting)
        ranked = sorted(worths, key=worths.get, reverse=True)
        excess = worths[ranked[0]] - worths[self.arm] - 0.01 * gains[self.arm]
        best = ranked[0] if excess > 0 else self.arm
        near = min(abs(excess), worths[ranked[0]] - worths[ranked[1]])
        self.rounds += 1
        if self.rounds % 50 == 0:
            return min((arm for arm in ARMS if arm[0] > best[0]), default=best), near
        self.arm = best
        return best, near


#: Nodes cost beyond 32 in a pass of the target, beyond 8 in one of the drafter.
STEP = CostProfile(
    "gpu", ((0, ((32, 0.01), (512, 0.05))),), ((1, 0.0005), (8, 0.0005), (64, 0.003)), 0.001
)


@SLOW
@given(st.randoms(use_true_random=False), st.sampled_from([LINEAR, FLAT, STEP]))
def test_a_batch_gets_the_arm_of_largest_worth(rng, costs):
    """Batches of any size, one after the other; the speed-up is over plain decoding of each."""
    policy, reference = make_batch_policy(PRICED, costs=costs), Reference(costs)
    decay = 0.5 ** (1 / 200)
    gained, spent = 10.0, 10.0  # in rounds of plain decoding
    for _ in range(25):
        batch = [rng.choice([0.1, 0.3, 0.5, 0.75, 0.95]) for _ in range(rng.randint(1, 12))]
        names = [str(i) for i in range(len(batch))]
        triple = policy.choose(names, batch)
        expected, near = reference.choose(batch, gained / spent)
        assert triple == expected or near < 1e-9
        steps, topk, tokens = triple
        accepted = [sum(rng.random() < c for _ in range(steps)) for c in batch]
        policy.observe(names, triple, accepted, batch, None)
        reference.history += [(triple, *pair) for pair in zip(batch, accepted, strict=True)]
        rows, nodes = len(batch) * topk, len(batch) * tokens
        plain = reference.plain_s(len(batch))
        # Tokens of the batch, over what it would have made without drafts in the same time.
        solo = reference.plain_s(1)
        gained = gained * decay + (sum(accepted) + len(batch)) * plain / solo / len(batch)
        spent = spent * decay + costs.round_s([rows] * (steps - 1), nodes) / solo


def test_larger_batches_draft_fewer_nodes_where_nodes_cost():
    sizes = [
        make_batch_policy(
            PRICED, costs=CostProfile("x", ((0, ((1, 1), (64, 1), (128, 2))),), ((1, 0),))
        ).choose([str(i) for i in range(size)], [0.9] * size)[2]
        for size in (1, 4, 16, 64)
    ]
    assert sizes[0] == 16
    assert sizes[-1] < 16
    assert sizes == sorted(sizes, reverse=True)


def test_the_rate_learnt_in_one_batch_size_serves_another():
    """Three tokens a round each, in 16 requests; alone the same gain is expected, not 16 times."""
    clock = Clock()
    for _ in range(2000):
        clock.add(FLAT, Round.of((3, 1, 4), batch=16), 48, {})
    alone = 3 / (0.010 + 2 * 0.0001)
    assert clock.rate(FLAT, 1) == pytest.approx(alone, rel=0.01)
    assert clock.rate(FLAT, 16) == pytest.approx(16 * alone, rel=0.01)


def run(policy, names, rounds, accept, seconds):
    """Rounds with ``accept(triple)`` drafts followed in each request, of ``seconds(triple)``."""
    chosen = []
    for _ in range(rounds):
        triple = policy.choose(names, [0.7] * len(names))
        chosen.append(triple)
        policy.observe(
            names, triple, [accept(triple)] * len(names), [0.7] * len(names), seconds(triple)
        )
    return chosen


def test_acceptance_is_learnt_by_all_requests_together():
    policy = make_batch_policy(PRICED, costs=LINEAR)
    assert policy.choose(["a"], [0.7]) == (3, 1, 4)
    for name in "abcdefgh":
        run(policy, [name], 40, lambda triple: 0, lambda triple: None)
        policy.forget([name])
    assert policy.choose(["new"], [0.7]) == (1, 1, 2)
    assert policy.choose(["new"], [0.95])[0] > 1  # another bin, of which nothing is known


def test_measured_rounds_correct_the_costs():
    """The profile says that nodes are free; here 16 nodes take eight times as long as 4."""
    policy = make_batch_policy(PRICED, costs=FLAT)

    def seconds(triple):
        return 0.01 * {2: 1, 4: 1, 16: 8}[triple[2]]

    run(policy, ["a"], 30, lambda triple: min(triple[0], 1), lambda triple: 0.01)
    chosen = run(policy, ["a"], 400, lambda triple: min(triple[0], 1), seconds)
    assert chosen[-1][2] < 16


def test_offline_nothing_is_learnt_of_seconds():
    def chosen(spec, seconds):
        return run(make_batch_policy(spec, costs=FLAT), ["a"], 200, lambda triple: 1, seconds)

    def steep(triple):
        return 0.01 * triple[2] ** 2

    unmeasured = chosen(PRICED, lambda triple: None)
    assert chosen(f"{PRICED},online=false", steep) == unmeasured
    assert chosen(PRICED, steep) != unmeasured


@pytest.mark.parametrize("size", [1, 6, 32])
def test_measured_costs_end_as_if_they_had_been_known(size):
    """The profile is far off, in nodes and in passes; every arm is seen."""
    truth = CostProfile("truth", ((0, ((1, 0.02), (8, 0.02), (512, 0.3))),), ((1, 0.004),), 0.002)
    wrong = CostProfile("wrong", ((0, ((1, 0.05),)),), ((1, 0.001),), 0.005)
    measuring = make_batch_policy(f"{PRICED},half_life=50", costs=wrong)
    knowing = make_batch_policy(f"{PRICED},half_life=50,online=false", costs=truth)
    names = [str(i) for i in range(size)]
    for round_ in range(1000):
        triple = ARMS[round_ % len(ARMS)]
        work = Round.of(triple, batch=size)
        seconds = truth.round_s([work.rows] * work.passes, work.nodes)
        accepted = [(round_ + i) % (triple[0] + 1) for i in range(size)]
        for policy in (measuring, knowing):
            policy.join(names)
            policy.observe(names, triple, accepted, [0.5] * size, seconds)
    known = [knowing.choose(names, [value] * size) for value in (0.1, 0.3, 0.7, 0.9)]
    assert [measuring.choose(names, [value] * size) for value in (0.1, 0.3, 0.7, 0.9)] == known
    assert len(set(known)) > 1


def test_without_a_profile_a_gpu_is_assumed():
    def chosen(size, share=0.06):
        policy = make_batch_policy(PRICED, draft_share=share)
        return policy.choose([str(i) for i in range(size)], [0.8] * size)

    assert chosen(1) == chosen(16) == (5, 4, 16)  # up to 256 nodes a pass costs the same
    assert chosen(64)[2] == 4
    assert chosen(1, share=2.0) == (1, 1, 2)


@pytest.mark.parametrize("costs", [None, LINEAR])
def test_the_unit_of_the_costs_does_not_matter(costs):
    def chosen(unit):
        policy = make_batch_policy(PRICED, costs=costs)
        return run(
            policy,
            ["a", "b"],
            300,
            lambda triple: triple[0] // 2,
            lambda triple: unit * (1 + 0.1 * triple[2] + 0.05 * triple[0]),
        )

    assert chosen(1.0) == chosen(1024.0) == chosen(1 / 1024)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0])
def test_seconds_that_are_none_are_not_learnt_from(seconds):
    def chosen(value):
        policy = make_batch_policy(PRICED, costs=LINEAR)
        return run(policy, ["a"], 120, lambda triple: triple[0] // 2, lambda triple: value)

    assert chosen(seconds) == chosen(None)


def test_a_round_that_was_interrupted_changes_nothing_for_long():
    """Of a steady run, one round takes a thousand times as long."""

    def chosen(interruption):
        policy = make_batch_policy(PRICED, costs=LINEAR)
        slow = iter([False] * 60 + [interruption] + [False] * 300)

        def seconds(triple):
            work = Round.of(triple)
            spent = LINEAR.round_s([work.rows] * work.passes, work.nodes)
            return spent * (1000 if next(slow) else 1)

        return run(policy, ["a"], 200, lambda triple: triple[0] // 2, seconds)

    assert chosen(True)[100:] == chosen(False)[100:]


def test_every_fiftieth_round_looks_at_the_next_deeper_arm():
    dear = CostProfile("x", ((0, ((1, 0.01), (2, 0.01), (16, 0.16))),), ((1, 0.005),))
    chosen = run(make_batch_policy(PRICED, costs=dear), ["a"], 200, lambda t: 0, lambda t: None)
    settled = chosen[100:]
    assert set(settled) == {(1, 1, 2), (2, 2, 4)}
    assert [i for i, triple in enumerate(settled) if triple[0] == 2] == [49, 99]


def test_a_look_at_a_deeper_arm_leaves_the_arm_in_force():
    def after(confidence, rounds, last):
        """The choice at ``last`` after rounds at 0.05 and one more at ``confidence``."""
        policy = make_batch_policy(PRICED, costs=LINEAR)
        for _ in range(rounds):
            policy.choose(["a"], [0.05])
        policy.choose(["a"], [confidence])
        return policy.choose(["a"], [last])

    # Where the best arm is less than 1 % ahead, what was chosen last decides.
    close = next(
        value / 1000
        for value in range(1000)
        if after(0.05, 10, value / 1000) != after(0.8, 10, value / 1000)
    )
    assert after(0.05, 49, close) == after(0.8, 49, close)  # the fiftieth round is a look


def test_a_round_is_shared_out_between_its_passes():
    """A pass of the drafter takes as long as one of the target, and nothing denies it."""
    costs = CostProfile("x", ((0, ((1, 0.02),)),), ((1, 0.02),), 0.001)
    policy = make_batch_policy("priced:arms=[[2,4,8],[7,4,8]]", costs=costs)
    assert policy.choose(["a"], [0.7]) == (2, 4, 8)
    for round_ in range(600):
        triple = policy.triples[round_ % 2]
        seconds = costs.round_s([4] * (triple[0] - 1), 8)
        policy.observe(["a"], triple, [min(triple[0], round_ // 2 % 5)], [0.7], seconds)
    assert policy.choose(["a"], [0.7]) == (2, 4, 8)


def test_sizes_beyond_64_nodes_are_corrected_apart():
    correction = Correction(128)
    for _ in range(400):
        correction.add(128, 1.0)
        correction.add(2048, 3.0)
    assert correction(2048) == pytest.approx(3.0, rel=0.15)
    assert correction(128) == pytest.approx(1.0, rel=0.15)
    assert correction(10**6) > 0
    embedded = Correction()
    embedded.add(2048, 3.0)
    assert embedded(64) == embedded(2048)


# --- wrappers -----------------------------------------------------------------------------------


@FAST
@given(st.integers(1, 6), st.lists(confidences, max_size=60))
def test_a_held_triple_never_leaves_before_its_time(rounds, values):
    policy = Held(make_batch_policy("dcs"), rounds)
    chosen = [policy.choose(["a"], [value]) for value in values]
    changes = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(chosen)) if a != b)]
    assert all(after - before >= rounds for before, after in pairwise(changes))


@FAST
@given(st.lists(confidences, max_size=60))
def test_held_for_one_round_is_not_held(values):
    held, free = Held(make_batch_policy("dcs"), 1), make_batch_policy("dcs")
    for value in values:
        assert held.choose(["a"], [value]) == free.choose(["a"], [value])


@pytest.mark.parametrize("hold", [1, 2, 3])
def test_a_held_triple_moves_once_it_may(hold):
    policy = make_batch_policy("dcs", hold=hold)
    assert policy.choose(["a"], [0.0]) == LOW
    chosen = [policy.choose(["a"], [1.0]) for _ in range(5)]
    assert chosen == [LOW] * (hold - 1) + [HIGH] * (6 - hold)


def test_the_cheap_triple_begins_above_the_limit():
    policy = make_batch_policy("dcs", max_batch=2, large_batch=(1, 1, 2))
    assert policy.choose(["a", "b"], [1.0, 1.0]) == HIGH
    assert policy.choose(["a", "b", "c"], [1.0] * 3) == (1, 1, 2)
    assert policy.choose(["a"], [1.0]) == HIGH
    assert policy.triples == (*make_batch_policy("dcs").triples, (1, 1, 2))


def test_a_cheap_triple_of_its_own_is_no_further_one():
    policy = make_batch_policy("dcs", max_batch=2)
    assert policy.triples == make_batch_policy("dcs").triples
    assert policy.choose(["a", "b", "c"], [1.0] * 3) == LOW  # its triple of fewest nodes


def test_the_limit_goes_before_holding():
    policy = make_batch_policy("dcs", max_batch=1, large_batch=(1, 1, 2), hold=10)
    assert policy.choose(["a"], [1.0]) == HIGH
    assert policy.choose(["a", "b"], [1.0, 1.0]) == (1, 1, 2)
    assert policy.choose(["a"], [0.0]) == HIGH


@pytest.mark.parametrize(
    "wrap", [lambda inner: LargeBatch(inner, 1, (1, 1, 2)), lambda inner: Held(inner, 100)]
)
def test_requests_are_learnt_about_while_another_chooses(wrap):
    inner = make_batch_policy("dcs", combine="min")
    policy = wrap(inner)
    policy.choose(["a", "b"], [1.0, 1.0])
    for _ in range(4):
        triple = policy.choose(["a", "b", "late"], [1.0] * 3)
        policy.observe(["a", "b", "late"], triple, [1, 1, 0], [1.0] * 3, None)
    assert inner.choose(["late"], [0.9]) < inner.choose(["a"], [0.9])
    policy.forget(["late"])
    assert inner.choose(["late"], [1.0]) == HIGH

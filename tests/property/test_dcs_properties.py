import math

from hypothesis import given
from hypothesis import strategies as st
from naive_reference import FAST

from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, available_nodes
from adaptivespec.policy.dcs import combine, interpolate, reachable

scores = st.floats(0, 1)


@st.composite
def triples(draw):
    steps, topk = draw(st.integers(1, 9)), draw(st.integers(1, 6))
    return steps, topk, draw(st.integers(2, min(40, available_nodes(steps, topk))))


@FAST
@given(triples(), triples(), scores)
def test_interpolation_rounds_to_the_nearest(low, high, s):
    for a, b, got in zip(low, high, interpolate(s, low, high), strict=True):
        exact = a + (b - a) * s
        assert abs(got - exact) <= 0.5 + 1e-9
        assert min(a, b) <= got <= max(a, b)
    assert interpolate(0.0, low, high) == low
    assert interpolate(1.0, low, high) == high


@FAST
@given(triples(), triples(), st.lists(scores, min_size=2))
def test_a_higher_score_never_moves_back_and_every_triple_is_listed(low, high, many):
    listed = reachable(low, high)
    places = [listed.index(interpolate(s, low, high)) for s in sorted(many)]
    assert places == sorted(places)
    assert len(set(listed)) == len(listed)
    assert (listed[0], listed[-1]) == (low, high)
    assert len(listed) <= 1 + sum(abs(b - a) for a, b in zip(low, high, strict=True))


steps = st.lists(st.tuples(scores, st.integers(0, 7), st.integers(1, 40)), max_size=60)


@FAST
@given(steps, st.sampled_from(["per_step", "per_node", "any"]), triples(), triples())
def test_the_policy_against_its_formulas(history, kind, low, high):
    options = {"low": low, "high": high, "acceptance": kind}
    policy, largest = make_policy("dcs", options), make_policy("dcs", options).largest()
    policy.begin()
    rar, failures = 0.5, 0
    for confidence, accepted, remaining in history:
        plan = policy.plan(Signals(confidence, remaining=remaining))
        s = min(1.0, max(0.0, confidence * rar / 0.5))
        want = interpolate(s, low, high)
        assert plan.triple == (min(want[0], remaining - 1), *want[1:])
        assert all(a <= b for a, b in zip(plan.triple, largest.triple, strict=True))
        nodes = plan.num_draft_tokens - 1
        if plan.draft_nothing:
            policy.observe(plan, Outcome(0, 0, 0))
            continue
        accepted = min(accepted, plan.num_steps)
        rate = {
            "per_step": accepted / plan.num_steps,
            "per_node": accepted / nodes,
            "any": float(accepted > 0),
        }[kind]
        policy.observe(plan, Outcome(accepted, 0, nodes))
        rar = 0.7 * rar + 0.3 * rate
        failures = 0 if accepted else failures + 1
        if failures == 5:
            rar, failures = 0.5, 0
        assert math.isclose(policy.rar, rar, abs_tol=1e-9)
        rar = policy.rar  # the same number, so that rounding cannot pile up


@FAST
@given(st.lists(scores, min_size=1), st.sampled_from(["mean", "median", "min"]))
def test_a_combined_score_lies_among_the_scores(many, how):
    value = combine(many, how)
    assert min(many) - 1e-12 <= value <= max(many) + 1e-12
    assert math.isclose(value, combine(many[::-1], how))

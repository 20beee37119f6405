"""Priced trees: every decision against numbers worked out by hand."""

import math
import random

import pytest
import torch

from adaptivespec.core.draft import Draft
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.growth import Growth
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import NOTHING, Outcome, Signals
from adaptivespec.policy.costs import CostProfile

#: 10 ms a pass up to 4 nodes, then 1 ms a node; a draft pass 1 ms.
LINEAR = CostProfile("cpu", ((0, ((1, 0.010), (4, 0.010), (64, 0.070))),), ((1, 0.001),))
#: Nothing depends on the size: a GPU far from its limits.
FLAT = CostProfile("gpu", ((0, ((1, 0.010), (64, 0.010))),), ((1, 0.0001),))


def policy(spec="priced", costs=LINEAR):
    made = make_policy(spec)
    made.costs = costs
    return made


def grow(plan, *levels):
    """Carry out a plan on offers given as rows of q; the same rows for every level's frontier."""
    growth = Growth(0, plan)
    token = 1
    for q in levels:
        if growth.stopped:
            break
        width = growth.width
        logq = torch.tensor([q] * width).log()
        tokens = torch.arange(token, token + logq.numel()).reshape(logq.shape)
        token += logq.numel()
        growth.expand(tokens, logq)
    return growth.draft()


def done(accepted, nodes=1, seconds=None, draft=None, path=(0,), committed=None):
    return Outcome(
        accepted,
        0,
        nodes - 1,
        committed=accepted + 1 if committed is None else committed,
        path=path,
        draft=draft,
        seconds=seconds or {},
    )


def test_costs_must_be_known():
    with pytest.raises(ConfigError, match="costs"):
        make_policy("priced").plan(Signals(0.5))
    assert make_policy("priced").needs_costs


def test_the_first_rate_is_that_of_plain_decoding():
    plan = policy().plan(Signals(0.5))
    prices = dict(plan.prices)
    assert prices[1] == pytest.approx(1.0)  # 100 tokens per second times 10 ms
    assert prices[4] == pytest.approx(1.0)
    assert prices[8] == pytest.approx(1.4)
    assert max(prices) == 32
    assert plan.stop.lookahead.price == pytest.approx((0.1, 0.2, 0.3))  # passes of 1 ms
    assert plan.stop.lookahead.follow[0] == pytest.approx(0.6)


def test_the_size_that_pays_best_is_verified():
    """Sizes to 4 cost the same; each node more costs 0.1 tokens, so a's below 0.1 are left out."""
    draft = grow(
        policy("priced:num_steps=1,topk=5").plan(Signals(0.5)), [0.5, 0.2, 0.12, 0.11, 0.05]
    )
    assert draft.tree.num_nodes == 5  # 0.11 pays for the fifth node, 0.05 for no sixth
    assert draft.reason["gain"] == pytest.approx(1.93)
    assert draft.reason["price"] == pytest.approx(1.1)
    assert draft.reason["nodes"] == 5


def test_growing_ends_when_no_level_is_worth_its_pass():
    """To four nodes a further one costs no verify time, so the bar is 0; a pass costs 0.1 tokens.

    Under a = 0.1 and h = 0.6 the next levels hold 0.06, 0.036 and 0.0216: 0.06 < 0.1,
    0.096 < 0.2, 0.118 < 0.3. Under a = 0.9 the first of them holds 0.54.
    """
    hopeless = grow(policy("priced:topk=1").plan(Signals(0.1)), [0.1], [0.9])
    assert hopeless.num_levels == 1
    assert hopeless.reason["stopped"] == "price"
    hopeful = grow(policy("priced:topk=1").plan(Signals(0.9)), [0.9], [0.9], [0.01], [0.9])
    assert hopeful.num_levels == 3


def test_a_new_node_has_to_beat_those_that_stand_in_the_tree():
    """Five nodes stand in it, the least scores 0.15, and one more would cost 0.1: the bar is 0.1.

    The best of the next level should hold 0.6 * 0.3 = 0.18, the others 0.09: 0.08 above the bar,
    and a pass costs 0.1. Without the bar the level would be worth it (0.45).
    """
    plan = policy("priced:topk=4").plan(Signals(0.3))
    draft = grow(plan, [0.3, 0.15, 0.15, 0.15], [0.9] * 4)
    assert draft.num_levels == 1
    assert draft.tree.num_nodes == 5


def test_drafting_nothing_is_a_size_like_another():
    steep = CostProfile("slow", ((0, ((1, 0.01), (2, 0.02))),), ((1, 0.0),))
    draft = grow(policy("priced:num_steps=1", steep).plan(Signals(0.2)), [0.2, 0.1])
    assert draft.tree.num_nodes == 1
    assert draft.reason["nodes"] == 1
    cheap = grow(policy("priced:num_steps=1", FLAT).plan(Signals(0.2)), [0.2, 0.1])
    assert cheap.tree.num_nodes == 3


def test_after_long_idleness_something_is_drafted():
    made = policy("priced:explore_every=3")
    for _ in range(3):
        assert 1 in dict(made.plan(Signals(0.1)).prices)
        made.observe(made.plan(Signals(0.1)), done(0))
    assert 1 not in dict(made.plan(Signals(0.1)).prices)
    made.observe(made.plan(Signals(0.1)), done(0, nodes=2))
    assert 1 in dict(made.plan(Signals(0.1)).prices)


def test_the_rate_follows_tokens_over_seconds():
    made = policy("priced:half_life=1000000")
    plan = made.plan(Signals(0.5))
    seconds = {"draft": 0.002, "verify": 0.010, "host": 0.0}
    for _ in range(90):
        made.observe(plan, done(2, nodes=4, seconds=seconds))
    # Ten seed rounds of one token in 10 ms, then ninety of three tokens in 12 ms.
    expected = (10 + 90 * 3) / (10 * 0.010 + 90 * 0.012)
    assert made.memory.clock.rate(LINEAR) == pytest.approx(expected, rel=1e-3)


def test_the_half_life_of_the_rate():
    made = policy("priced:half_life=10")
    plan = made.plan(Signals(0.5))
    for _ in range(10):
        made.observe(plan, done(0, nodes=1, seconds={"draft": 0, "verify": 0.01, "host": 0}))
    clock = made.memory.clock
    fresh = sum(0.5 ** (i / 10) for i in range(10))
    assert clock.tokens == pytest.approx(10 * 0.5 + fresh)


def test_costs_are_corrected_by_what_is_seen():
    made = policy()
    plan = made.plan(Signals(0.5))
    for _ in range(400):
        made.observe(plan, done(1, nodes=4, seconds={"draft": 0.0, "verify": 0.020, "host": 0.0}))
    clock = made.memory.clock
    assert clock.verify_s(LINEAR, 4, 0) == pytest.approx(0.020, rel=0.02)
    assert clock.verify_s(LINEAR, 8, 0) == pytest.approx(0.028, rel=0.02)  # by the common scale


def test_sizes_are_corrected_against_each_other():
    """Passes over 8 nodes take twice the profile's time, those over 4 just that."""
    made = policy()
    plan = made.plan(Signals(0.5))
    for _ in range(2000):
        for nodes, verify in [(4, 0.010), (8, 0.028)]:
            seconds = {"draft": 0.0, "verify": verify, "host": 0.0}
            made.observe(plan, done(1, nodes=nodes, seconds=seconds))
    clock = made.memory.clock
    assert clock.verify_s(LINEAR, 4, 0) == pytest.approx(0.010, rel=0.05)
    assert clock.verify_s(LINEAR, 8, 0) == pytest.approx(0.028, rel=0.05)
    assert clock.verify_s(LINEAR, 9, 0) > 1.4 * LINEAR.verify_s(9)  # from its neighbour
    assert clock.verify_s(LINEAR, 64, 0) < 1.6 * LINEAR.verify_s(64)  # what all have in common


def test_noise_does_not_single_out_a_size():
    """Every pass is off by 30 % either way; the times that come of it still rise with the size."""
    made, rng = policy(), random.Random(0)
    plan = made.plan(Signals(0.5))
    for _ in range(3000):
        nodes = rng.choice([4, 6, 8, 10, 12])
        verify = LINEAR.verify_s(nodes) * rng.choice([0.7, 1.3])
        seconds = {"draft": 0.0, "verify": verify, "host": 0.0}
        made.observe(plan, done(1, nodes=nodes, seconds=seconds))
    times = [made.memory.clock.verify_s(LINEAR, nodes, 0) for nodes in (4, 6, 8, 10, 12)]
    assert times == sorted(times)


def test_an_interrupted_pass_teaches_nothing():
    made = policy()
    plan = made.plan(Signals(0.5))
    made.observe(plan, done(1, nodes=4, seconds={"draft": 0.0, "verify": 9.0, "host": 0.0}))
    assert made.memory.clock.verify_s(LINEAR, 4, 0) == pytest.approx(0.010)
    assert made.memory.clock.rate(LINEAR) == pytest.approx(100)


def test_off_line_the_clock_is_not_looked_at():
    made = policy("priced:online=false,half_life=1000000")
    plan = made.plan(Signals(0.5))
    made.observe(plan, done(1, nodes=4, seconds={"draft": 9.0, "verify": 9.0, "host": 9.0}))
    clock = made.memory.clock
    assert clock.verify_s(LINEAR, 4, 0) == pytest.approx(0.010)
    draft_passes = plan.num_steps - 1
    assert clock.seconds == pytest.approx(0.1 + 0.010 + draft_passes * 0.001, rel=1e-4)


def chain_draft(q):
    tree = DraftTree.from_parents([1, 2, 3], [-1, 0, 1], [0.0, math.log(q), math.log(q)])
    score = torch.tensor([0.0, math.log(q), 2 * math.log(q)])
    return Draft(tree, rank=torch.zeros(3, dtype=torch.int64), score=score, num_levels=2)


def test_follow_rates_are_counted_by_depth():
    made = policy()
    plan = made.plan(Signals(0.5))
    for _ in range(50):
        made.observe(plan, done(1, nodes=3, draft=chain_draft(0.5), path=(0, 1)))
    follow = made.plan(Signals(0.5)).stop.lookahead.follow
    assert follow[0] > 0.9  # depth 1 was always followed
    assert follow[1] < 0.15  # depth 2 never
    assert follow[2] == pytest.approx(0.6)  # nothing stood there


def test_a_step_cut_by_the_end_says_nothing_of_what_follows():
    made = policy()
    made.observe(
        made.plan(Signals(0.5)), done(1, nodes=3, draft=chain_draft(0.5), path=(0, 1), committed=1)
    )
    assert float(made.memory.calibration.labels.sum()) == 1  # node 1; node 2 was never judged
    follow = made.memory.follow
    assert follow[0][1] > 8 * 0.999
    assert follow[1][1] == 8


def test_the_shift_of_a_request_moves_and_is_reset():
    made = policy("priced:patience=3")
    plan = made.plan(Signals(0.5))
    made.observe(plan, done(2, nodes=3, draft=chain_draft(0.5), path=(0, 1, 2)))
    assert made.shift == pytest.approx(0.1 * (0.5 + 0.5), abs=1e-6)
    made.observe(plan, done(0, nodes=3, draft=chain_draft(0.5), path=(0,)))
    assert made.shift == pytest.approx(0.1 - 0.1 * 0.5, abs=1e-6)
    for _ in range(2):
        made.observe(plan, done(0, nodes=3, draft=chain_draft(0.5), path=(0,)))
    assert made.shift == 0.0  # three in a row without acceptance
    made.observe(plan, done(2, nodes=3, draft=chain_draft(0.5), path=(0, 1, 2)))
    made.begin()
    assert made.shift == 0.0
    assert float(made.memory.calibration.labels.sum()) > 0  # what was learnt stays


def test_promotions_count_as_follows():
    made = policy()
    outcome = Outcome(1, 1, 2, committed=2, path=(0, 1), draft=chain_draft(0.1))
    for _ in range(50):
        made.observe(made.plan(Signals(0.5)), outcome)
    c = made.memory.calibration.acceptance().log_of(torch.tensor([[math.log(0.1)]]), 1).exp()
    assert float(c) > 0.6


ARMS = "priced:mode=triple,arms=[[1,1,1],[2,1,3],[6,1,7]]"


def test_triples_are_weighed_by_survival():
    flat = policy(ARMS, FLAT)
    assert flat.plan(Signals(0.9)).triple == (6, 1, 7)  # depth is nearly free
    linear = policy(ARMS, CostProfile("slow", ((0, ((1, 0.01), (7, 0.07))),), ((1, 0.0),)))
    assert linear.plan(Signals(0.3)) == NOTHING
    assert linear.largest().triple == (6, 1, 7)


def test_survival_is_learnt_by_confidence():
    made = policy(ARMS, CostProfile("x", ((0, ((1, 0.01), (3, 0.011), (7, 0.03))),), ((1, 0.0),)))
    plan = made.plan(Signals(0.9))
    for _ in range(300):
        outcome = Outcome(0, 0, 2, committed=1, root_confidence=0.9)
        made.observe(plan, outcome)
    assert made.memory.survival.tokens((2, 1, 3), 0.9) == pytest.approx(1.0, abs=0.1)
    assert made.memory.survival.tokens((2, 1, 3), 0.5) == pytest.approx(1.75)  # another bin


def test_two_in_a_hundred_rounds_look_deeper():
    made = policy(ARMS, CostProfile("slow", ((0, ((1, 0.01), (7, 0.07))),), ((1, 0.0),)))
    drafted = 0
    for _ in range(200):
        plan = made.plan(Signals(0.1))
        drafted += not plan.draft_nothing
        made.observe(plan, Outcome(0, 0, 0 if plan.draft_nothing else 2, root_confidence=0.1))
    assert 4 <= drafted <= 8  # every 50th round, and after 64 idle ones


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("priced:sizes=[4,2]", "sizes"),
        ("priced:sizes=[64,128]", "num_draft_tokens"),
        ("priced:sizes=[0,2]", "sizes"),
        ("priced:num_draft_tokens=0", "num_draft_tokens"),
        ("priced:prior=0", "prior"),
        ("priced:mode=fast", "mode"),
        ("priced:arms=[[99,1,1]]", "arms"),
    ],
)
def test_options_are_checked(spec, field):
    with pytest.raises(ConfigError) as caught:
        make_policy(spec)
    assert field in str(caught.value)


def test_bounds_hold_and_nothing_is_ever_infinite():
    made = policy()
    for confidence in (0.0, 0.5, 1.0):
        plan = made.plan(Signals(confidence, remaining=3))
        assert plan.num_steps == 2
        assert all(math.isfinite(price) for _, price in plan.prices)
    assert made.largest().triple == (8, 4, 32)

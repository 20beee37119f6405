import math
import random

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import NOTHING, Outcome, Signals, TreePlan
from adaptivespec.policy.costs import CostProfile

TWO = {"arms": [[1, 1, 2], [3, 2, 6]]}


def step(policy, committed, seconds=1.0):
    plan = policy.plan(Signals(0.5))
    timed = {"draft": seconds / 4, "verify": seconds / 2, "host": seconds / 4}
    policy.observe(plan, Outcome(committed - 1, 0, 5, committed, seconds=timed))


def test_every_arm_once_first_in_order():
    policy = make_policy("bandit")
    seen = []
    for _ in policy.options.arms:
        seen.append(policy.plan(Signals(0.5)).triple)
        step(policy, 2)
    assert seen == list(policy.options.arms)
    assert (seen[0], seen[-1]) == ((1, 1, 2), (7, 4, 16))
    assert len(seen) == 8


def test_the_largest_upper_confidence_bound():
    """Rewards 2 and 4: means .5 and 1 of the maximum. With c = 1 and t = 2 both bounds get
    sqrt(ln 2) = .8326; after the second arm again, with t = 3: 1.548 and 1 + .741 = 1.741."""
    policy = make_policy("bandit", {**TWO, "c": 1.0})
    step(policy, 2)
    step(policy, 4)
    assert policy.choice() == 1
    step(policy, 4)
    assert (policy.memory.counts, policy.memory.sums) == ([1.0, 2.0], [2.0, 8.0])
    assert 1 + math.sqrt(math.log(3) / 2) > 0.5 + math.sqrt(math.log(3))
    assert policy.choice() == 1
    step(policy, 1)  # mean (1 + 1 + .25) / 3 = .75, bound .75 + .680 = 1.430; the other 1.677
    assert policy.choice() == 0
    assert make_policy("bandit", {**TWO, "c": 0}).choice() == 0


def test_without_exploration_the_best_mean():
    policy = make_policy("bandit", {**TWO, "c": 0.0})
    step(policy, 3)
    step(policy, 2)
    for _ in range(5):
        assert policy.choice() == 0
        step(policy, 3)
    step(policy, 1, seconds=10)
    assert policy.choice() == 0  # 18.1 / 7 = 2.6


def test_a_reward_is_tokens_per_second():
    policy = make_policy("bandit", TWO)
    step(policy, 3, seconds=0.5)
    assert policy.memory.sums[0] == pytest.approx(6.0)
    assert policy.memory.best == pytest.approx(6.0)


def test_without_a_clock_the_price_of_the_round():
    policy = make_policy("bandit", {"arms": [[3, 2, 6]]})
    policy.costs = CostProfile("x", ((0, ((1, 0.01), (11, 0.02))),), ((1, 0.001), (3, 0.003)))
    policy.observe(TreePlan(3, 2, 6), Outcome(2, 0, 5, committed=3))
    # Two passes over 2 rows at 2 ms, and 6 nodes verified at 15 ms.
    assert policy.memory.sums[0] == pytest.approx(3 / 0.019)


def test_without_costs_target_passes():
    policy = make_policy("bandit", {"arms": [[3, 2, 6]], "step_cost": 0.2})
    policy.observe(TreePlan(3, 2, 6), Outcome(2, 0, 5, committed=3))
    assert policy.memory.sums[0] == pytest.approx(3 / 1.6)


def test_steps_that_were_cut_short_do_not_count():
    policy = make_policy("bandit", {"arms": [[3, 2, 6], [1, 1, 2]]})
    plan = policy.plan(Signals(0.5, remaining=2))
    assert plan.triple == (1, 2, 6)
    policy.observe(plan, Outcome(1, 0, 2, 2))
    policy.observe(NOTHING, Outcome(0, 0, 0, 1))
    policy.observe(TreePlan(1, 1, 2), Outcome(1, 0, 1, 2))  # an arm, but not the one in turn
    assert policy.memory.counts == [0.0, 0.0]
    assert policy.choice() == 0


def test_old_steps_fade():
    policy = make_policy("bandit", {**TWO, "decay": 0.5})
    step(policy, 2)
    step(policy, 4)
    assert policy.memory.counts == [0.5, 1.0]
    assert policy.memory.sums == [1.0, 4.0]


def test_what_was_learnt_outlives_the_request_and_the_policy():
    first = make_policy("bandit", TWO)
    step(first, 2)
    first.begin()
    assert first.choice() == 1
    second = make_policy("bandit", TWO)
    second.memory = first.memory
    assert second.choice() == 1
    step(second, 3)
    assert first.memory.counts == [1.0, 1.0]


def test_drafting_nothing_may_be_an_arm():
    policy = make_policy("bandit", {"arms": [[0, 1, 1], [2, 2, 4]]})
    assert policy.plan(Signals(0.5)).draft_nothing
    policy.observe(NOTHING, Outcome(0, 0, 0, 1))
    assert policy.memory.counts == [1.0, 0.0]


def test_it_finds_the_best_arm():
    """Bernoulli chains: two of three tokens are accepted, a level costs a tenth of a pass."""
    rng = random.Random(0)
    policy = make_policy("bandit", {"arms": [[1, 1, 2], [3, 1, 4], [7, 1, 8]], "c": 0.3})
    for _ in range(3000):
        plan = policy.plan(Signals(0.5))
        accepted = 0
        while accepted < plan.num_steps and rng.random() < 2 / 3:
            accepted += 1
        seconds = {"verify": 1.0, "draft": 0.1 * plan.num_steps}
        policy.observe(plan, Outcome(accepted, 0, plan.num_steps, accepted + 1, seconds=seconds))
    counts = policy.memory.counts  # 1.52, 1.85 and 1.69 tokens per pass
    assert counts[1] == max(counts)
    assert sum(counts) == 3000


def test_largest():
    assert make_policy("bandit").largest() == TreePlan(7, 4, 16)
    assert make_policy("bandit", TWO).largest() == TreePlan(3, 2, 6)


def test_options_as_text_and_back():
    policy = make_policy("bandit:arms=[[1,1,2],[3,2,6]],c=0.5")
    assert policy.options.arms == ((1, 1, 2), (3, 2, 6))
    assert make_policy(policy.label).options == policy.options


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"arms": []}, "arms", ["at least 1"]),
        ({"arms": [[1, 1]]}, "arms.0.2", []),
        ({"arms": [[1, 0, 2]]}, "arms", ["topk", "[1, 64]"]),
        ({"arms": [[65, 1, 2]]}, "arms", ["num_steps", "[0, 64]"]),
        ({"arms": [[2, 2, 8]]}, "arms", ["[2, 7]", "got 8"]),
        ({"arms": [[1, 1, 2], [1, 1, 2]]}, "arms", ["must differ"]),
        ({"c": -1}, "c", ["[0, 10]"]),
        ({"decay": 0}, "decay", ["(0, 1]"]),
        ({"step_cost": -1}, "step_cost", ["[0, 10]"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("bandit", options)
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

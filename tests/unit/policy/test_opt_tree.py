import pytest
import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.growth import Growth
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, TreePlan
from adaptivespec.policy.plan import Keep, Stop


def test_the_plan():
    policy = make_policy("opt_tree")
    plan = TreePlan(10, 10, 16, keep=Keep(width=15), stop=Stop(min_gain=0.6))
    assert policy.plan(Signals(0.3)) == policy.largest() == plan
    policy.observe(plan, Outcome(0, 0, 3))
    assert policy.plan(Signals(0.9, remaining=3)).triple == (2, 10, 16)


@pytest.mark.parametrize(
    ("threshold", "reason", "levels"),
    [(0.91, "gain", 1), (0.6, "gain", 2), (0.47, "gain", 3), (0.13, "", 3)],
)
def test_growing_ends_when_the_expected_length_grows_too_little(threshold, reason, levels):
    """n = 4. The three best: .6 + .3; then .6 + .48 + .3, .48 more; then .6 + .48 + .432, .132."""
    options = {"num_draft_tokens": 4, "topk": 2, "threshold": threshold}
    growth = Growth(9, make_policy("opt_tree", options).largest())
    for q in ([[0.6, 0.3]], [[0.8, 0.1], [0.5, 0.2]], [[0.9, 0.05], [0.5, 0.1], [0.5, 0.1]]):
        if not growth.stopped:
            growth.expand(torch.arange(1, 1 + 2 * len(q)).view(-1, 2), torch.tensor(q).log())
    assert (growth.stopped, growth.level) == (reason, levels)


def test_the_best_of_a_level_are_expanded():
    policy = make_policy("opt_tree:num_draft_tokens=4,topk=2,threshold=0.1")
    growth = Growth(9, policy.largest())
    growth.expand(torch.tensor([[1, 2]]), torch.tensor([[0.6, 0.3]]).log())
    growth.expand(torch.tensor([[3, 4], [5, 6]]), torch.tensor([[0.8, 0.1], [0.5, 0.2]]).log())
    assert growth.frontier_tokens.tolist() == [3, 5, 4]  # .48 .15 .06, n - 1 of them
    tree = growth.draft().tree.validate()
    assert tree.token.tolist() == [9, 1, 2, 3]


def test_options_as_text_and_back():
    policy = make_policy("opt_tree:50,8,0.3,7")
    assert policy.largest().triple == (7, 8, 50)
    assert policy.largest().stop.min_gain == 0.3
    assert make_policy(policy.label).options == policy.options


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"num_draft_tokens": 1}, "num_draft_tokens", ["[2, 65536]"]),
        ({"topk": 0}, "topk", ["[1, 64]"]),
        ({"threshold": -0.1}, "threshold", ["[0, 1]"]),
        ({"threshold": 1.1}, "threshold", ["[0, 1]"]),
        ({"num_steps": 65}, "num_steps", ["[1, 64]"]),
        ({"tau": 3}, "tau", ["unknown option"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("opt_tree", options)
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

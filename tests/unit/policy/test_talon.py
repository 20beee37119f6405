import pytest
import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.growth import Growth
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, TreePlan
from adaptivespec.policy.plan import Keep, Stop


def test_the_plan():
    policy = make_policy("talon")
    keep = Keep(width=59, relative=0.03, drop=True, first=2)
    plan = TreePlan(8, 10, 60, keep=keep, stop=Stop(full=True))
    assert policy.plan(Signals(0.3)) == policy.largest() == plan
    policy.observe(plan, Outcome(0, 0, 3))
    assert policy.plan(Signals(0.9, remaining=3)).triple == (2, 10, 60)
    small = make_policy("talon:num_draft_tokens=16,topk=4").largest()
    assert (small.triple, small.width) == ((8, 4, 16), 15)


def test_confident_levels_are_narrow_and_unsure_ones_wide():
    growth = Growth(9, make_policy("talon:num_draft_tokens=9,topk=2,mu=0.25").largest())
    growth.expand(torch.tensor([[1, 2]]), torch.tensor([[0.9, 0.09]]).log())
    assert growth.frontier_tokens.tolist() == [1, 2]  # the first level is kept whole
    growth.expand(
        torch.tensor([[3, 4], [20, 21]]), torch.tensor([[0.5, 0.4], [0.5, 0.4]]).log()
    )  # .45 .36 .045 .036, floor .1125
    assert growth.frontier_tokens.tolist() == [3, 4]
    assert growth.stopped == ""
    growth.expand(
        torch.tensor([[5, 6], [7, 8]]), torch.tensor([[0.6, 0.3], [0.5, 0.1]]).log()
    )  # .27 .135 .18 .036, floor .0675
    assert growth.frontier_tokens.tolist() == [5, 7, 6]
    assert growth.num_candidates == 7
    assert growth.stopped == ""
    growth.expand(torch.tensor([[10, 11], [12, 13], [14, 15]]), torch.full((3, 2), 0.5).log())
    assert growth.stopped == "full"  # .135 twice, .09 twice, .0675 twice
    tree = growth.draft().tree.validate()
    assert tree.token.tolist() == [9, 1, 3, 4, 5, 7, 6, 10, 11]
    assert tree.depth.tolist() == [0, 1, 2, 2, 3, 3, 3, 4, 4]


def test_growing_ends_at_the_depth_cap():
    growth = Growth(9, make_policy("talon:num_draft_tokens=30,topk=2,num_steps=3").largest())
    for _ in range(3):
        assert growth.stopped == ""
        offers = torch.tensor([[1, 2]] * growth.width), torch.tensor([[0.99, 0.01]] * growth.width)
        growth.expand(offers[0], offers[1].log())
    assert growth.stopped == "depth"
    assert growth.draft().tree.num_nodes == 5  # two on the first level, one on each other


def test_options_as_text_and_back():
    policy = make_policy("talon:20,5,0.1,6")
    assert policy.largest().triple == (6, 5, 20)
    assert policy.largest().keep.relative == 0.1
    assert make_policy(policy.label).options == policy.options


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"num_draft_tokens": 1}, "num_draft_tokens", ["[2, 65536]"]),
        ({"topk": 0}, "topk", ["[1, 64]"]),
        ({"topk": 65}, "topk", ["[1, 64]"]),
        ({"mu": 1.5}, "mu", ["[0, 1]"]),
        ({"mu": float("nan")}, "mu", ["finite"]),
        ({"num_steps": 0}, "num_steps", ["[1, 64]"]),
        ({"k": 3}, "k", ["unknown option", "topk"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("talon", options)
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

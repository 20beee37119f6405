import pytest
import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.growth import Growth
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals


def test_the_plan():
    policy = make_policy("specdec")
    plan = policy.plan(Signals(0.3))
    assert plan == policy.largest()
    assert plan.triple == (8, 1, 9)
    assert plan.stop.min_path == pytest.approx(0.3)
    policy.observe(plan, Outcome(0, 0, 3))
    assert policy.plan(Signals(0.9, remaining=3)).triple == (2, 1, 9)
    assert not policy.tree


@pytest.mark.parametrize(
    ("threshold", "length"),
    [
        (0.7, 4),  # 1 - prod q: .1 .28 .64 .82 .91
        (0.6, 3),
        (0.5, 3),
        (0.2, 2),
        (0.05, 1),
        (0.0, 1),
        (0.9, 5),
        (1.0, 5),
    ],
)
def test_the_chain_ends_when_something_was_probably_rejected(threshold, length):
    policy = make_policy("specdec", {"num_steps": 5, "threshold": threshold})
    growth = Growth(9, policy.largest())
    for q in (0.9, 0.8, 0.5, 0.5, 0.5):
        if not growth.stopped:
            growth.expand(torch.tensor([[1]]), torch.tensor([[q]]).log())
    assert growth.stopped == ("path" if length < 5 else "depth")
    assert growth.draft().tree.num_nodes == length + 1


def test_options_as_text_and_back():
    policy = make_policy("specdec:12,0.5")
    assert policy.largest().triple == (12, 1, 13)
    assert policy.largest().stop.min_path == 0.5
    assert make_policy(policy.label).options == policy.options


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"num_steps": 0}, "num_steps", ["[1, 64]"]),
        ({"threshold": 1.1}, "threshold", ["[0, 1]"]),
        ({"threshold": -0.1}, "threshold", ["[0, 1]"]),
        ({"h": 0.3}, "h", ["unknown option"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("specdec", options)
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

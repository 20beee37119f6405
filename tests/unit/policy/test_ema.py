import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import NOTHING, Outcome, Signals, TreePlan


def chain(steps):
    return TreePlan(steps, 1, steps + 1)


def step(policy, accepted):
    """One step; the length in force after it."""
    plan = policy.plan(Signals(0.5))
    policy.observe(plan, Outcome(accepted, 0, plan.num_steps))
    return policy.plan(Signals(0.5)).num_steps


def test_a_request_starts_in_the_middle():
    policy = make_policy("ema")
    assert policy.plan(Signals(0.1)) == chain(3)
    assert policy.average == 2.0
    assert make_policy("ema", {"candidates": [2, 4]}).plan(Signals(0.1)) == chain(4)
    assert make_policy("ema", {"candidates": [5]}).plan(Signals(0.1)) == chain(5)


def test_the_average_moves_and_the_length_follows():
    """e starts at 2; from 3 up at e > 2.5, from 7 down at e <= 2.25, from 3 down at e <= .25."""
    policy = make_policy("ema")
    assert step(policy, 3) == 3  # 2.2
    assert policy.average == pytest.approx(2.2)
    assert step(policy, 3) == 3  # 2.36
    assert step(policy, 3) == 3  # 2.488
    assert step(policy, 3) == 7  # 2.5904
    assert policy.average == pytest.approx(2.5904)
    assert step(policy, 2) == 7  # 2.47232: below the way up, above the way down
    assert step(policy, 1) == 3  # 2.177856
    assert policy.average == pytest.approx(2.177856)


def test_what_is_rejected_shortens_the_chain():
    policy = make_policy("ema:alpha=0.5")
    assert [step(policy, 0) for _ in range(3)] == [3, 3, 1]  # 1, .5, .25
    assert step(policy, 1) == 3  # .625, above .5
    policy = make_policy("ema:alpha=1")
    assert step(policy, 0) == 1


def test_several_candidates_at_once():
    policy = make_policy("ema", {"candidates": [1, 2, 3, 8], "alpha": 1.0})
    assert step(policy, 3) == 8
    assert step(policy, 0) == 1
    assert step(policy, 1) == 2


def test_the_borders_belong_to_the_shorter_chain():
    policy = make_policy("ema", {"alpha": 1.0, "up": 0.5, "candidates": [1, 3, 4]})
    assert step(policy, 3) == 3  # not above 3 - .5 + .5
    policy = make_policy("ema", {"alpha": 1.0, "down": 0.5, "candidates": [2, 3]})
    assert step(policy, 1) == 2  # at 2 - .5 - .5


def test_steps_that_say_nothing():
    policy = make_policy("ema")
    policy.observe(NOTHING, Outcome(0, 0, 0))
    policy.observe(chain(3), Outcome(0, 0, 0))  # nothing was drafted
    cut = policy.plan(Signals(0.5, remaining=2))
    assert cut.num_steps == 1
    policy.observe(cut, Outcome(0, 0, 1))
    assert policy.average == 2.0


def test_begin_forgets_the_last_request():
    policy = make_policy("ema:alpha=1")
    step(policy, 0)
    policy.begin()
    assert (policy.steps, policy.average) == (3, 2.0)


def test_largest():
    assert make_policy("ema").largest() == chain(7)
    assert not make_policy("ema").tree


def test_options_as_text_and_back():
    policy = make_policy("ema:candidates=[2,5],alpha=0.5,up=0.1,down=0.4")
    assert policy.options.candidates == (2, 5)
    assert make_policy(policy.label).options == policy.options


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"candidates": []}, "candidates", ["at least 1"]),
        ({"candidates": [3, 1]}, "candidates", ["must rise", "[3, 1]"]),
        ({"candidates": [1, 1]}, "candidates", ["must rise"]),
        ({"candidates": [0, 1]}, "candidates.0", ["greater than or equal to 1"]),
        ({"candidates": [65]}, "candidates.0", ["less than or equal to 64"]),
        ({"alpha": 0}, "alpha", ["(0, 1]"]),
        ({"up": -1}, "up", ["[0, 64]"]),
        ({"down": -1}, "down", ["[0, 64]"]),
        ({"topk": 2}, "topk", ["unknown option"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("ema", options)
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

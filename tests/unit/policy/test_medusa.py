import itertools
import math

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, TreePlan
from adaptivespec.policy.medusa import POSITIONS
from adaptivespec.policy.sequoia import ACCEPTANCE


def test_the_same_positions_at_every_step():
    policy = make_policy("medusa", {"positions": [[0], [1], [0, 0]]})
    plan = TreePlan.fixed(((0,), (1,), (0, 0)))
    for confidence in (0.0, 0.5, 1.0):
        assert policy.plan(Signals(confidence)) == plan
        policy.observe(plan, Outcome(0, 0, 3))
    assert policy.largest() == plan
    assert plan.triple == (2, 2, 4)
    assert plan.fixed_shape


def test_the_default_holds_the_likeliest_positions():
    """All paths to depth 6 over ranks 0 to 4, by the product of positional acceptance."""
    paths = [
        path for depth in range(1, 7) for path in itertools.product(range(5), repeat=depth)
    ]  # (0,) * 6 is the likeliest of depth 6, with 0.523^6 = 0.020
    worth = {path: math.prod(ACCEPTANCE[rank] for rank in path) for path in paths}
    best = sorted(paths, key=lambda path: -worth[path])[:15]
    assert set(POSITIONS) == set(best)
    plan = make_policy("medusa").largest()
    assert plan.triple == (5, 4, 16)


def test_near_the_end_the_tree_is_cut_by_depth():
    plan = make_policy("medusa").plan(Signals(0.5, remaining=3))
    assert plan.num_steps == 2
    assert plan.available == 1 + 4 + 5


def test_positions_as_text_and_back():
    policy = make_policy("medusa:positions=[[0],[1],[0,0]]")
    assert policy.options.positions == ((0,), (1,), (0, 0))
    assert make_policy(policy.label).options == policy.options
    assert make_policy("medusa").label == "medusa"


@pytest.mark.parametrize(
    ("positions", "field", "words"),
    [
        ([], "positions", ["at least 1"]),
        ([[]], "positions", ["after its parent"]),
        ([[0, 0]], "positions", ["[0, 0]", "after its parent"]),
        ([[0, 0], [0]], "positions", ["after its parent"]),
        ([[0], [0]], "positions", ["must be new"]),
        ([[-1]], "positions.0.0", ["greater than or equal to 0"]),
        ([[64]], "positions.0.0", ["less than 64"]),
        ([[0] * depth for depth in range(1, 66)], "positions", ["num_steps", "[0, 64]"]),
        ([["a"]], "positions.0.0", ["integer"]),
        (3, "positions", []),
    ],
)
def test_option_errors(positions, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("medusa", {"positions": positions})
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

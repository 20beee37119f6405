import itertools
import math

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, TreePlan
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.sequoia import ACCEPTANCE, Table, seconds


def value(tree, acceptance):
    """Expected tokens: 1 + the sum over nodes of the product of p along the path."""
    return 1 + sum(math.prod(acceptance[rank] for rank in node) for node in tree)


def all_trees(ranks, levels, nodes):
    """Every set of at most nodes - 1 positions that is closed under parents."""
    paths = [
        path
        for depth in range(1, levels + 1)
        for path in itertools.product(range(ranks), repeat=depth)
    ]
    for count in range(nodes):
        for tree in itertools.combinations(paths, count):
            chosen = set(tree)
            if all(len(node) == 1 or node[:-1] in chosen for node in tree):
                yield tree


@pytest.mark.parametrize(
    "acceptance",
    [(0.6, 0.3), (0.9, 0.05), (0.5, 0.2, 0.1), (0.1, 0.5, 0.3), (0.3, 0.3, 0.3), (0.4, 0.0, 0.2)],
)
@pytest.mark.parametrize("levels", [1, 2])
def test_no_tree_is_better(acceptance, levels):
    table = Table(acceptance, 6, levels)
    for nodes in range(1, 7):
        tree = table.tree(nodes, levels)
        best = max(value(other, acceptance) for other in all_trees(len(acceptance), levels, nodes))
        assert table.tokens(nodes, levels) == pytest.approx(best)
        assert value(tree, acceptance) == pytest.approx(best)
        assert len(tree) < nodes
        TreePlan.fixed(tree)  # parents first


def test_no_deep_tree_is_better():
    table = Table((0.7, 0.2), 5, 4)
    for nodes, levels in itertools.product(range(1, 6), range(1, 5)):
        best = max(value(tree, (0.7, 0.2)) for tree in all_trees(2, levels, nodes))
        assert table.tokens(nodes, levels) == pytest.approx(best)
        assert value(table.tree(nodes, levels), (0.7, 0.2)) == pytest.approx(best)


def test_by_hand():
    """p = .6 .3. Three nodes: .6 + .36 or .6 + .3; four: .6 + .36 + .3 or .6 + .36 + .216."""
    table = Table((0.6, 0.3), 4, 3)
    assert table.tokens(1, 3) == 1.0
    assert table.tokens(2, 3) == pytest.approx(1.6)
    assert table.tokens(3, 3) == pytest.approx(1.96)
    assert table.tokens(3, 1) == pytest.approx(1.9)
    assert table.tokens(4, 3) == pytest.approx(2.26)
    assert table.tree(3, 3) == ((0,), (0, 0))
    assert table.tree(3, 1) == ((0,), (1,))
    assert table.tree(4, 3) == ((0,), (1,), (0, 0))


def test_no_node_is_wasted():
    table = Table((1.0, 0.0), 6, 3)
    assert table.tree(6, 3) == ((0,), (0, 0), (0, 0, 0))
    assert Table((0.5, 0.5), 9, 2).tree(9, 2) == tuple(
        [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    )  # all there are


def test_the_trees_are_those_of_the_likeliest_positions():
    """A child is never likelier than its parent, so the best m - 1 positions are a tree."""
    paths = [path for depth in range(1, 6) for path in itertools.product(range(4), repeat=depth)]
    likely = sorted((math.prod(ACCEPTANCE[rank] for rank in path) for path in paths), reverse=True)
    table = Table(ACCEPTANCE[:4], 24, 5)
    for nodes in range(1, 25):
        assert table.tokens(nodes, 5) == pytest.approx(1 + sum(likely[: nodes - 1]))


def test_the_plan_without_costs():
    policy = make_policy("sequoia")
    plan = policy.plan(Signals(0.3))
    assert plan.positions == Table(ACCEPTANCE, 16, 8).tree(16, 8)
    assert plan.triple == (5, 4, 16)
    assert plan.fixed_shape
    policy.observe(plan, Outcome(0, 0, 3))
    policy.begin()
    assert policy.plan(Signals(0.9)) == plan
    assert policy.plan(Signals(0.9, remaining=3)).available == 1 + 4 + 5


def costs(verify, draft, overhead=0.0):
    """Milliseconds: (nodes, ms) pairs and (rows, ms) pairs."""
    tables = [tuple((size, ms / 1e3) for size, ms in rows) for rows in (verify, draft)]
    return CostProfile("x", ((0, tables[0]),), tables[1], overhead / 1e3)


def test_the_seconds_of_a_round():
    """One pass for level 2 over the two parents at level 1, one for level 3 over one: 2 + 1 ms."""
    profile = costs([(1, 10.0), (7, 16.0)], [(1, 1.0), (4, 4.0)], overhead=0.5)
    tree = ((0,), (1,), (2,), (0, 0), (2, 1), (2, 1, 0))
    assert seconds(profile, tree) == pytest.approx(0.0005 + 0.016 + 0.003)
    assert seconds(profile, ((0,), (1,))) == pytest.approx(0.0005 + 0.012)
    assert seconds(profile, ()) == pytest.approx(0.0105)


@pytest.mark.parametrize(
    ("profile", "triple"),
    [
        # p = .5: chains. Verifying is all but free: as deep as is considered.
        (costs([(1, 10.0), (64, 10.0)], [(1, 0.0)]), (8, 1, 9)),
        # 1 ms a pass: 10 / 1.5 = 6.67, 11 / 1.75 = 6.29, 12 / 1.875 = 6.4
        (costs([(1, 10.0), (64, 10.0)], [(1, 1.0)]), (2, 1, 3)),
        # 2 ms a node: 12 / 1.5 = 8, 14 / 1.75 = 8
        (costs([(1, 10.0), (64, 137.0)], [(1, 0.0)]), (1, 1, 2)),
        # A node costs as much as a pass: 20 / 1.5 > 10, plain decoding
        (costs([(1, 10.0), (64, 640.0)], [(1, 0.0)]), (0, 1, 1)),
    ],
)
def test_the_machine_decides_on_the_size(profile, triple):
    policy = make_policy("sequoia", {"acceptance": [0.5]})
    policy.costs = profile
    plan = policy.plan(Signals(0.5))
    assert plan.triple == triple
    assert plan.draft_nothing == (triple[0] == 0)


def test_no_shape_is_faster():
    profile = costs([(1, 15.0), (4, 17.0), (64, 80.0)], [(1, 0.8), (8, 2.0)], overhead=1.0)
    policy = make_policy("sequoia")
    policy.costs = profile
    best = policy.plan(Signals(0.5)).positions
    rate = seconds(profile, best) / value(best, ACCEPTANCE)
    table = Table(ACCEPTANCE, 64, 8)
    for nodes, levels in itertools.product(range(1, 65), range(1, 9)):
        tree = table.tree(nodes, levels)
        assert seconds(profile, tree) / value(tree, ACCEPTANCE) >= rate - 1e-12


@pytest.mark.parametrize(
    ("spec", "needs", "largest", "triple"),
    [
        ("sequoia", True, (8, 8, 64), (7, 8, 64)),
        ("sequoia:num_steps=3", True, (3, 8, 64), (3, 8, 64)),
        ("sequoia:num_draft_tokens=9", True, (8, 8, 9), (4, 3, 9)),
        ("sequoia:num_draft_tokens=9,num_steps=2", False, (2, 4, 9), (2, 4, 9)),
    ],
)
def test_what_is_given_is_not_chosen(spec, needs, largest, triple):
    policy = make_policy(spec)
    assert policy.needs_costs is needs
    assert policy.largest().triple == largest
    for costs_known in (False, True):
        if costs_known:
            policy.costs = costs([(1, 10.0), (64, 10.0)], [(1, 0.0)])  # nothing costs anything
            assert policy.plan(Signals(0.5)).triple == triple
        asked, bound = policy.plan(Signals(0.5)).triple, policy.largest().triple
        assert all(a <= b for a, b in zip(asked, bound, strict=True))


def test_options_as_text_and_back():
    policy = make_policy("sequoia:acceptance=[0.5,0.25],num_draft_tokens=5,num_steps=2")
    assert policy.options.acceptance == (0.5, 0.25)
    assert make_policy(policy.label).options == policy.options
    assert make_policy("sequoia").label == "sequoia"


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"acceptance": []}, "acceptance", ["at least 1"]),
        ({"acceptance": [0.01] * 17}, "acceptance", ["at most 16"]),
        ({"acceptance": [1.1]}, "acceptance.0", ["less than or equal to 1"]),
        ({"acceptance": [-0.1]}, "acceptance.0", ["greater than or equal to 0"]),
        ({"acceptance": [0.7, 0.4]}, "acceptance", ["sum to at most 1", "1.1"]),
        ({"num_draft_tokens": 1}, "num_draft_tokens", ["[2, 512]"]),
        ({"num_draft_tokens": 513}, "num_draft_tokens", ["[2, 512]"]),
        ({"num_steps": 0}, "num_steps", ["[1, 64]"]),
        ({"topk": 3}, "topk", ["unknown option"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("sequoia", options)
    assert caught.value.field == f"policy_options.{field}"
    for word in words:
        assert word in str(caught.value)

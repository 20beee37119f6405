"""Rules that hand their choice over as data: the native walk follows what the rule chooses."""

import math

import pytest
import torch
from rule_cases import greedy, rows_of, rules_of, state_for
from tree_cases import KINDS, cases_for, logits_of

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.core.verdict import verdict
from adaptivespec.native.choosing import follow
from adaptivespec.native.library import NativeError, load_library
from adaptivespec.verify import RULES

V = 5
WITH_TEST = ("cascade", "margin", "strict")


@pytest.fixture(scope="module")
def library():
    try:
        return load_library()
    except AdaptiveSpecError as error:
        pytest.skip(f"no native engine: {error}")


def walk(library, tree, logits, test):
    return follow(
        library,
        tree.token.numpy(),
        tree.parent.numpy(),
        logits.numpy(),
        test.guarded.numpy(),
        test.limit,
        test.in_order,
    )


def test_the_rules_that_have_one():
    found = {
        name
        for name in RULES.names()
        for rule in rules_of(RULES.load(name), V)
        if rule.node_test(state_for(rule, V, ())) is not None
    }
    assert found == set(WITH_TEST)


@pytest.mark.parametrize("protected", [(), (3,), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("name", WITH_TEST)
def test_the_walk_is_the_one_of_the_rule(library, name, protected):
    cls = RULES.load(name)
    promoted = 0
    for seed in range(4):
        cases = cases_for(cls, seed, 36, V)
        for rule in rules_of(cls, V):
            state = state_for(rule, V, protected)
            for index, single in enumerate(cases.trees):
                at = (index, slice(single.num_nodes))
                law, tree = rows_of(greedy(cases), at), rows_of(cases.tree, at)
                want = verdict(tree, rule.choose(law, tree, state))
                got = walk(library, tree, law.logits, rule.node_test(state))
                assert got.fault is None
                assert got.path == want.path
                assert got.best == want.strict
                assert got.drops[1:] == want.drops[:-1]
                promoted += want.num_promoted
    assert promoted > 0 or name == "strict" or len(protected) == V


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("vocab", [5, 16, 37])
def test_a_row_that_is_not_finite_ends_the_walk_there(library, bad, vocab):
    rule = RULES.load("strict")()
    test = rule.node_test(state_for(rule, vocab, ()))
    cases = cases_for(RULES.load("strict"), 3, 36, 5)
    for single in cases.trees:
        z = torch.randn(single.num_nodes, vocab)
        path = walk(library, single, z, test).path
        for node in path:
            for column in (0, vocab // 2, vocab - 1):
                spoilt = z.clone()
                spoilt[node, column] = bad
                found = walk(library, single, spoilt, test)
                assert found.fault == node
                assert found.path == path[: path.index(node) + 1]


def test_the_first_of_equal_logits_is_the_target_s_own(library):
    rule = RULES.load("strict")()
    cases = cases_for(RULES.load("strict"), 5, 36, V)
    import random

    for kind in KINDS:
        for single in cases.trees:
            z = logits_of(random.Random(7), single, V, kind)
            found = walk(library, single, z, rule.node_test(state_for(rule, V, ())))
            assert found.best == z.numpy().argmax(-1)[found.path].tolist()


def test_what_is_out_of_bounds_is_refused(library):
    rule = RULES.load("strict")()
    test = rule.node_test(state_for(rule, V, ()))
    tree = cases_for(RULES.load("strict"), 5, 36, V).trees[-1]
    z = torch.randn(tree.num_nodes, V)
    for name, node, value in (
        ("token", 0, V),
        ("token", 0, -1),
        ("parent", 0, 0),
        ("parent", 1, 1),
        ("parent", 1, -1),
    ):
        arrays = {"token": tree.token.clone(), "parent": tree.parent.clone()}
        arrays[name][node] = value
        with pytest.raises(NativeError, match=name):
            walk(library, type(tree)(**arrays, depth=tree.depth, logq=tree.logq), z, test)
    with pytest.raises(ValueError, match="sizes"):
        walk(library, tree, z[:, :-1], test)

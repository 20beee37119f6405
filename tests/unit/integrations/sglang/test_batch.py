"""The law of triples, and the wrappers of policies."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang.batch import Held, LargeBatch, check_triple, largest
from adaptivespec.integrations.sglang.policies import make_batch_policy

LOW, HIGH = (3, 4, 4), (7, 1, 8)
confidences = st.floats(0, 1)

FAST = settings(deadline=None, derandomize=True, max_examples=80)


@pytest.mark.parametrize(
    ("triple", "field"),
    [
        ((0, 1, 1), "num_steps"),
        ((0, 4, 4), "num_steps"),
        ((2, 0, 3), "topk"),
        ((3, 1, 3), "num_draft_tokens"),
        ((3, 1, 8), "num_draft_tokens"),
        ((1, 1, 1), "num_draft_tokens"),
        ((3, 4, 1), "num_draft_tokens"),
        ((1, 4, 6), "num_draft_tokens"),
        ((2, 2, 8), "num_draft_tokens"),
    ],
)
def test_an_illegal_triple_is_refused_by_the_number_that_is_wrong(triple, field):
    with pytest.raises(ConfigError) as caught:
        check_triple(triple)
    assert caught.value.field == field
    assert str(triple) in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        check_triple(triple, "large_batch")
    assert caught.value.field == f"large_batch.{field}"


@FAST
@given(st.tuples(st.integers(-1, 5), st.integers(-1, 4), st.integers(-1, 70)))
def test_the_law_is_that_of_the_nodes_a_tree_can_have(triple):
    steps, topk, tokens = triple
    nodes = 1  # grown level by level: topk nodes under the root, then topk under each of topk
    for level in range(steps):
        nodes += topk if level == 0 else topk * topk
    legal = steps >= 1 and topk >= 1 and 2 <= tokens <= nodes and (topk > 1 or tokens == steps + 1)
    try:
        check_triple(triple)
    except ConfigError:
        assert not legal
    else:
        assert legal


def test_largest_is_element_wise():
    assert largest([(3, 4, 4), (7, 1, 8), (5, 4, 16)]) == (7, 4, 16)


@FAST
@given(st.integers(1, 6), st.lists(confidences, max_size=60))
def test_a_held_triple_never_leaves_before_its_time(rounds, values):
    policy = Held(make_batch_policy("dcs"), rounds)
    chosen = [policy.choose(["a"], [value]) for value in values]
    changes = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(chosen)) if a != b)]
    assert all(after - before >= rounds for before, after in pairwise(changes))


@FAST
@given(st.lists(confidences, max_size=60))
def test_held_for_one_round_is_not_held(values):
    held, free = Held(make_batch_policy("dcs"), 1), make_batch_policy("dcs")
    for value in values:
        assert held.choose(["a"], [value]) == free.choose(["a"], [value])


@pytest.mark.parametrize("hold", [1, 2, 3])
def test_a_held_triple_moves_once_it_may(hold):
    policy = make_batch_policy("dcs", hold=hold)
    assert policy.choose(["a"], [0.0]) == LOW
    chosen = [policy.choose(["a"], [1.0]) for _ in range(5)]
    assert chosen == [LOW] * (hold - 1) + [HIGH] * (6 - hold)


def test_the_cheap_triple_begins_above_the_limit():
    policy = make_batch_policy("dcs", max_batch=2, large_batch=(1, 1, 2))
    assert policy.choose(["a", "b"], [1.0, 1.0]) == HIGH
    assert policy.choose(["a", "b", "c"], [1.0] * 3) == (1, 1, 2)
    assert policy.choose(["a"], [1.0]) == HIGH
    assert policy.triples == (*make_batch_policy("dcs").triples, (1, 1, 2))


def test_a_cheap_triple_of_its_own_is_no_further_one():
    policy = make_batch_policy("dcs", max_batch=2)
    assert policy.triples == make_batch_policy("dcs").triples
    assert policy.choose(["a", "b", "c"], [1.0] * 3) == LOW  # its triple of fewest nodes


def test_the_limit_goes_before_holding():
    policy = make_batch_policy("dcs", max_batch=1, large_batch=(1, 1, 2), hold=10)
    assert policy.choose(["a"], [1.0]) == HIGH
    assert policy.choose(["a", "b"], [1.0, 1.0]) == (1, 1, 2)
    assert policy.choose(["a"], [0.0]) == HIGH


@pytest.mark.parametrize(
    "wrap", [lambda inner: LargeBatch(inner, 1, (1, 1, 2)), lambda inner: Held(inner, 100)]
)
def test_requests_are_learnt_about_while_another_chooses(wrap):
    inner = make_batch_policy("dcs", combine="min")
    policy = wrap(inner)
    policy.choose(["a", "b"], [1.0, 1.0])
    for _ in range(4):
        triple = policy.choose(["a", "b", "late"], [1.0] * 3)
        policy.observe(["a", "b", "late"], triple, [1, 1, 0], [1.0] * 3, None)
    assert inner.choose(["late"], [0.9]) < inner.choose(["a"], [0.9])
    policy.forget(["late"])
    assert inner.choose(["late"], [1.0]) == HIGH

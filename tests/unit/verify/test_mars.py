import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import greedy_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from fakes.laws import V, batch_equals_singles, choose, drawn, random_case, rows, star, state
from property.naive_reference import FAST, children, seeds

TREE = star(2, 1)


def greedy(*z, tree=TREE, spec="mars", protected=()):
    """The root's token at temperature 0; y = 0 is no child."""
    return choose(spec, greedy_law(rows(tree, *z)), tree, protected)[0]


@pytest.mark.parametrize(
    ("z", "spec", "token"),
    [
        ((10.0, 9.5, 3.0), "mars", 1),  # 0.95
        ((10.0, 9.0, 3.0), "mars", 0),  # 0.9 is not above 0.9
        ((10.0, 8.0, 3.0), "mars", 0),
        ((10.0, 8.0, 3.0), "mars:0.75", 1),
        ((10.0, 9.4, 9.5), "mars", 2),  # the runner-up alone, however near the third is
        ((10.0, 9.5, 9.5), "mars", 2),  # two runners-up: the first in draft order
        ((10.0, 10.0, 9.5), "mars", 1),  # a tie at the top
        ((10.0, 3.0, 3.0, 9.9), "mars", 0),  # the runner-up was not drafted
        ((1.0, 0.5, 0.4), "mars:0", 1),
        ((1.0, 0.0, 0.0), "mars:0", 0),  # 0 is not above 0
        ((1.0, -0.5, -1.0), "mars:0", 0),
    ],
)
def test_the_ratio_by_hand(z, spec, token):
    assert greedy(*z, spec=spec) == token


@pytest.mark.parametrize(
    "z", [(-1.0, -1.01, -3.0), (-1.0, -5.0, -9.0), (0.0, -0.1, -3.0), (0.0, 0.0, -3.0)]
)
def test_a_peak_that_is_not_positive_promotes_nothing(z):
    assert greedy(*z) == 0
    assert greedy(*z, spec="mars:0") == 0


def test_a_constant_added_to_the_logits_changes_the_decision():
    z = rows(TREE, 10.0, 8.0, 3.0)
    for shift, token in ((0.0, 0), (10.0, 0), (11.0, 1), (100.0, 1), (-20.0, 0)):
        moved = z + shift
        assert torch.allclose(moved.softmax(-1), z.softmax(-1), atol=1e-6)
        assert choose("mars", greedy_law(moved), TREE)[0] == token  # 19 / 21 > 0.9 = 18 / 20
        assert choose("margin:0.2", greedy_law(moved), TREE)[0] == 0  # exp(-2) = 0.135


def test_the_ratio_does_not_move_with_temperature():
    for temperature in (0.1, 1.0, 5.0):
        law = drawn(rows(TREE, 10.0, 9.5, 3.0), 3, temperature)
        assert choose("mars", law, TREE)[0] == 1
        law = drawn(rows(TREE, 10.0, 8.0, 3.0), 3, temperature)
        assert choose("mars", law, TREE)[0] == 3


def test_only_a_rejection_is_overridden():
    tree = star(1, 0, 3)
    z = rows(tree, 10.0, 9.9, 3.0)
    for y in (0, 1, 3):
        done = verdict(tree, make_rule("mars").choose(drawn(z, y), tree, state()))
        assert (done.tokens[0], done.kinds[0]) == (y, Kind.EXACT)
    done = verdict(tree, make_rule("mars").choose(drawn(z, 2), tree, state()))
    assert (done.tokens[0], done.kinds[0]) == (1, Kind.PROMOTED)


def test_at_a_temperature_the_argmax_is_no_runner_up():
    z = rows(star(0), 10.0, 9.9, 3.0)
    assert choose("mars", drawn(z, 2), star(0))[0] == 2
    tie = rows(star(0), 10.0, 10.0, 3.0)
    assert choose("mars", drawn(tie, 2), star(0))[0] == 0


def test_an_excluded_runner_up_is_not_promoted():
    z = rows(TREE, 10.0, 9.5, 3.0)
    assert choose("mars", drawn(z, 0), TREE)[0] == 1
    assert choose("mars", drawn(z, 0, min_p=0.9), TREE)[0] == 0  # exp(-0.5) = 0.61


@pytest.mark.parametrize(
    ("protected", "token"), [((), 2), ((2,), 1), ((1, 2), 0), ((0,), 0), ((5,), 2)]
)
def test_protected_tokens(protected, token):
    assert greedy(10.0, 9.5, 9.5, protected=protected) == token


def test_bfloat16_and_a_masked_row():
    z = rows(TREE, 10.0, 9.5, 3.0).bfloat16()
    assert choose("mars", greedy_law(z), TREE)[0] == 1
    lone = rows(TREE, 10.0, -math.inf, -math.inf, fill=-math.inf)
    assert choose("mars:0", greedy_law(lone), TREE)[0] == 0


THETA = st.sampled_from([0.0, 0.5, 0.8, 0.9, 0.99, 1.0])


@FAST
@given(seeds, st.booleans(), st.booleans(), THETA)
def test_the_rule_is_its_definition(seed, cold, integers, theta):
    tree, law, protected = random_case(seed, cold, integers=integers)
    token, want = tree.token.tolist(), []
    for node, (y, row) in enumerate(zip(law.target.tolist(), law.logits, strict=True)):
        first, second = row.sort(descending=True).values[:2]
        close = bool(first > 0) and bool(second / first > theta)
        kids = [token[c] for c in children(tree, node)]
        possible = torch.ones(V) if cold else law.scaled[node].exp()
        good = [
            x for x in kids if row[x] == second and close and possible[x] and x not in protected
        ]
        want.append(y if y in kids or y in protected or not good else good[0])
    assert choose(f"mars:{theta}", law, tree, protected) == want


@FAST
@given(seeds, st.booleans(), THETA, THETA)
def test_a_lower_theta_promotes_wherever_a_higher_one_does(seed, cold, one, two):
    tree, law, protected = random_case(seed, cold, integers=True)
    more = choose(f"mars:{min(one, two)}", law, tree, protected)
    less = choose(f"mars:{max(one, two)}", law, tree, protected)
    for node, y in enumerate(law.target.tolist()):
        assert less[node] in (y, more[node])


@FAST
@given(seeds, st.booleans())
def test_theta_one_is_strict(seed, cold):
    tree, law, protected = random_case(seed, cold, integers=True)
    assert choose("mars:1", law, tree, protected) == law.target.tolist()
    rule = make_rule("mars:1")
    tokens = rule._rewrite(law, tree, state(protected).protected)  # without the short cut as well
    assert torch.equal(tokens, law.target)


@FAST
@given(st.lists(seeds, min_size=1, max_size=4), st.booleans())
def test_a_batch_equals_the_single_runs(tree_seeds, cold):
    assert batch_equals_singles("mars:0.5", tree_seeds, cold)


def test_the_state_and_the_logits_are_not_touched():
    z, one = rows(TREE, 10.0, 9.5), state()
    before, law = z.clone(), greedy_law(z)
    make_rule("mars").choose(law, TREE, one)
    assert law.logits is z
    assert torch.equal(z, before)
    assert one.sampler._promotions is None
    assert choose("mars", greedy_law(z[:1]), DraftTree.root_only(7)) == [0]


@pytest.mark.parametrize(
    ("spec", "lossless"), [("mars", False), ("mars:1", True), ("mars:0", False)]
)
def test_lossless(spec, lossless):
    assert make_rule(spec).lossless is lossless


def test_options():
    assert make_rule("mars").options.theta == 0.9
    assert make_rule("mars:1").lossless
    for spec in ("mars", "mars:0", "mars:0.999"):
        assert not make_rule(spec).lossless
    for bad in ("mars:-0.1", "mars:1.1"):
        with pytest.raises(ConfigError, match="theta"):
            make_rule(bad)

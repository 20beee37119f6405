import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import greedy_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from fakes.laws import (
    batch_equals_singles,
    choose,
    drawn,
    probabilities,
    random_case,
    rows,
    star,
    state,
)
from property.naive_reference import FAST, children, seeds

TREE = star(1, 2, 3)


def greedy(*z, tree=TREE, spec="cascade:0.5", protected=()):
    """The root's token at temperature 0."""
    return choose(spec, greedy_law(rows(tree, *z)), tree, protected)[0]


@pytest.mark.parametrize(
    ("z", "spec", "token"),
    [
        ((0.0, -0.6, -0.2), "cascade:0.5", 1),  # exp(-0.6) = 0.549: the first that passes
        ((0.0, -0.7, -0.2), "cascade:0.5", 2),  # exp(-0.7) = 0.497
        ((0.0, -0.7, -0.8), "cascade:0.5", 0),
        ((0.0, -1.2, -1.3), "cascade", 1),  # exp(-1.2) = 0.301
        ((0.0, -1.21, -1.22), "cascade", 0),  # 0.298
        ((0.0, 0.0, 0.0), "cascade:1", 1),  # a tie passes
    ],
)
def test_the_ratio_by_hand(z, spec, token):
    assert greedy(*z, spec=spec) == token


def test_the_bar_itself_passes():
    drop = float(torch.tensor(math.log(2.0), dtype=torch.float32))
    assert greedy(0.0, -drop) == 1
    assert greedy(0.0, -float(torch.nextafter(torch.tensor(drop), torch.tensor(9.0)))) == 0


def test_the_first_sibling_that_passes_displaces_the_exact_child_and_its_subtree():
    # The target's own token 0 was drafted, second, with a child that it would have followed too.
    tree = DraftTree.from_parents([7, 1, 0, 0], [-1, 0, 0, 2])
    law = greedy_law(rows(tree, 0.0, -0.6))
    lossy = verdict(tree, make_rule("cascade:0.5").choose(law, tree, state()))
    strict = verdict(tree, make_rule("strict").choose(law, tree, state()))
    margin = verdict(tree, make_rule("margin:0.5").choose(law, tree, state()))
    assert (lossy.path, lossy.kinds) == ([0, 1], [Kind.PROMOTED, Kind.BONUS])
    assert (lossy.tokens, lossy.strict[0]) == ([1, 0], 0)
    assert lossy.regret == pytest.approx(0.6)
    assert strict.path == margin.path == [0, 2, 3]  # one token more, and no regret


def test_an_exact_child_that_comes_first_is_exact():
    tree = star(0, 1)
    done = verdict(
        tree, make_rule("cascade").choose(greedy_law(rows(tree, 0.0, -0.1)), tree, state())
    )
    assert done.kinds == [Kind.EXACT, Kind.BONUS]


def test_at_a_temperature_the_ratio_is_that_of_the_processed_law():
    z = rows(TREE, 0.0, -1.0, -3.0, fill=-9.0)  # at T = 2 the first drop is 0.5
    assert choose("cascade:0.5", drawn(z, 5), TREE)[0] == 5
    assert choose("cascade:0.5", drawn(z, 5, 2.0), TREE)[0] == 1
    assert choose("cascade:0.5", drawn(z, 2), TREE)[0] == 2  # y fails the test and is followed
    assert choose("cascade:0.5", drawn(z, 2, 2.0), TREE)[0] == 1  # or displaced
    assert choose("cascade:0.01", drawn(z, 5, top_k=1), TREE)[0] == 5  # excluded tokens fail
    assert choose("cascade:0.01", drawn(z, 5, top_k=2), TREE)[0] == 1


@pytest.mark.parametrize(
    ("y", "protected", "token"),
    [
        (0, (), 1),
        (0, (1,), 2),
        (0, (1, 2), 0),
        (0, (0,), 0),  # the target's own token is not overridden
        (2, (2,), 2),  # nor displaced by an earlier sibling
        (2, (), 1),
        (1, (1,), 1),
    ],
)
def test_protected_tokens(y, protected, token):
    tree = star(1, 2)
    z = probabilities(tree, 0.4, 0.35, 0.25)
    assert choose("cascade", drawn(z, y), tree, protected)[0] == token


def test_a_masked_child_is_never_accepted():
    assert greedy(0.0, -math.inf, -30.0, spec="cascade:1e-300") == 2


BASE = st.sampled_from([1e-6, 0.1, 0.3, 0.7, 1.0])
CASES = (seeds, st.booleans(), st.booleans())


@FAST
@given(*CASES, BASE)
def test_the_rule_is_its_definition(seed, cold, integers, base):
    tree, law, protected = random_case(seed, cold, integers=integers, masked=0.2)
    p = (law.logits if cold else law.scaled).double().softmax(-1)
    token, want = tree.token.tolist(), []
    for node, (y, row) in enumerate(zip(law.target.tolist(), p, strict=True)):
        ratio = {token[c]: float(row[token[c]] / row.max()) for c in children(tree, node)}
        assume(all(share == 1 or abs(share / base - 1) > 1e-5 for share in ratio.values()))
        good = [x for x, share in ratio.items() if share >= base and x not in protected]
        want.append(good[0] if good and y not in protected else y)
    assert choose(f"cascade:{base}", law, tree, protected) == want


@FAST
@given(*CASES, BASE, BASE)
def test_a_lower_base_follows_an_earlier_sibling_or_the_same(seed, cold, integers, one, two):
    tree, law, protected = random_case(seed, cold, integers=integers)
    low = choose(f"cascade:{min(one, two)}", law, tree, protected)
    high = choose(f"cascade:{max(one, two)}", law, tree, protected)
    for node, y in enumerate(law.target.tolist()):
        order = [int(tree.token[c]) for c in children(tree, node)]
        if high[node] != y:
            assert order.index(low[node]) <= order.index(high[node])


@FAST
@given(seeds)
def test_without_ties_base_one_is_strict_at_temperature_zero(seed):
    tree, law, protected = random_case(seed, greedy=True)
    assert choose("cascade:1", law, tree, protected) == law.target.tolist()


@FAST
@given(st.lists(seeds, min_size=1, max_size=4), st.booleans())
def test_a_batch_equals_the_single_runs(tree_seeds, cold):
    for base in (0.1, 0.5, 1.0):
        assert batch_equals_singles(f"cascade:{base}", tree_seeds, cold)


def test_the_state_and_the_logits_are_not_touched():
    z, one = rows(TREE, 0.0, -0.1), state()
    before, law = z.clone(), greedy_law(z)
    make_rule("cascade").choose(law, TREE, one)
    assert law.logits is z
    assert torch.equal(z, before)
    assert one.sampler._promotions is None
    assert choose("cascade", greedy_law(z[:1]), DraftTree.root_only(7)) == [0]


def test_options():
    assert make_rule("cascade").options.base == 0.3
    assert make_rule("cascade").signals == "margins"
    for spec in ("cascade", "cascade:1"):
        assert not make_rule(spec).lossless
    for bad in ("cascade:0", "cascade:1.1"):
        with pytest.raises(ConfigError, match="base"):
            make_rule(bad)

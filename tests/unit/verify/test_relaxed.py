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
from adaptivespec.verify.limits import Limits
from fakes.laws import (
    V,
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

ONE = star(1)
FOUR = (0.7, 0.2, 0.06, 0.04)


def accepted(spec, p, law=greedy_law):
    """Every token but y = 0 that is followed as an only child."""
    found = []
    for token in range(1, V):
        tree = star(token)
        if choose(spec, law(probabilities(tree, *p)), tree)[0] == token:
            found.append(token)
    return found


@pytest.mark.parametrize(
    ("p", "spec", "want"),
    [
        (FOUR, "relaxed", [1]),  # 0.7 - 0.6 = 0.1
        (FOUR, "relaxed:relaxed_delta=0.65", [1, 2]),  # 0.05
        (FOUR, "relaxed:relaxed_delta=0.67", [1, 2, 3]),  # 0.03
        (FOUR, "relaxed:relaxed_delta=0.49", []),
        (FOUR, "relaxed:2,0.67", [1]),  # only the second
        (FOUR, "relaxed:3,0.67", [1, 2]),
        (FOUR, "relaxed:1,0.67", []),
        ((0.4, 0.2, 0.2, 0.2), "relaxed:2", [1, 2, 3]),  # ties with the second
        ((0.4, 0.3, 0.2, 0.1), "relaxed:3", [1, 2]),  # max p <= 0.6: only the rank counts
        ((0.4, 0.3, 0.2, 0.1), "relaxed", [1, 2, 3]),  # and impossible tokens never pass
        ((0.4, 0.4, 0.1, 0.1), "relaxed:1,0", [1]),  # a tie with the argmax
        ((0.4, 0.3, 0.2, 0.1), "relaxed:10,0", []),
        ((0.4, 0.3, 0.2, 0.1), "relaxed:10,1", [1, 2, 3]),
    ],
)
def test_accept_sets(p, spec, want):
    assert accepted(spec, p) == want


def test_at_a_temperature_p_is_that_of_the_processed_law():
    p = (16 / 21, 4 / 21, 1 / 21)  # at T = 2: (4, 2, 1) / 7

    def hot(**kwargs):
        return lambda z: drawn(z, 0, **kwargs)

    # 16 / 21 - 4 / 21 = 0.571 and 4 / 7 - 2 / 7 = 0.286, 4 / 7 - 1 / 7 = 0.429
    assert accepted("relaxed:10,0.5", p) == []
    assert accepted("relaxed:10,0.5", p, hot()) == []
    assert accepted("relaxed:10,0.5", p, hot(temperature=2.0)) == [1, 2]
    assert accepted("relaxed:10,0.4", p, hot(temperature=2.0)) == [1]
    assert accepted("relaxed:10,1", p, hot(top_k=2)) == [1]  # what is excluded, never
    # top-k renormalises: 16 / 20 - 4 / 20 = 0.6
    assert accepted("relaxed:10,0.59", p, hot(top_k=2)) == []
    assert accepted("relaxed:10,0.59", p, hot()) == [1]


def test_the_exact_child_comes_first_then_the_likeliest():
    tree = star(3, 2, 1)
    z = probabilities(tree, 0.4, 0.2, 0.3, 0.1)
    assert choose("relaxed", greedy_law(z), tree)[0] == 2
    assert choose("relaxed", drawn(z, 3), tree)[0] == 3
    assert choose("relaxed", drawn(z, 0), tree)[0] == 2
    tie = probabilities(tree, 0.4, 0.2, 0.2, 0.2)
    assert choose("relaxed", greedy_law(tie), tree)[0] == 3  # the first on ties
    both = star(1, 0)
    law = greedy_law(probabilities(both, 0.6, 0.4))
    done = verdict(both, make_rule("relaxed").choose(law, both, state()))
    assert done.kinds == [Kind.EXACT, Kind.BONUS]


@pytest.mark.parametrize(
    ("protected", "token"), [((), 1), ((1,), 2), ((1, 2), 0), ((0,), 0), ((3,), 1)]
)
def test_protected_tokens(protected, token):
    tree = star(2, 1)
    z = probabilities(tree, 0.4, 0.35, 0.25)
    assert choose("relaxed", greedy_law(z), tree, protected)[0] == token
    assert choose("relaxed", drawn(z, 0), tree, protected)[0] == token


def test_a_masked_child_is_never_accepted():
    z = rows(ONE, 0.0, -math.inf, 0.0, fill=0.0)
    assert choose("relaxed:64,1", greedy_law(z), ONE)[0] == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(dtype):
    z = rows(ONE, 2.0, 1.0).to(dtype)  # 0.731 - 0.269 = 0.462
    assert choose("relaxed:10,0.47", greedy_law(z), ONE)[0] == 1
    assert choose("relaxed:10,0.45", greedy_law(z), ONE)[0] == 0


def test_thinking_only():
    assert make_rule("relaxed").limits is None
    rule = make_rule("relaxed:think_only=true,think_ids=(3,4)")
    assert rule.limits == Limits(think_only=True, think_ids=(3, 4))
    with pytest.raises(ConfigError, match="two different ids"):
        make_rule("relaxed:think_ids=(3,3)")


TOPK, DELTA = st.sampled_from([1, 2, 3, 10]), st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0])
CASES = (seeds, st.booleans(), st.sampled_from([0.0, 0.4]))


@FAST
@given(*CASES, TOPK, DELTA)
def test_the_rule_is_its_definition(seed, greedy, masked, topk, delta):
    tree, law, protected = random_case(seed, greedy, masked=masked)
    source = law.logits if greedy else law.scaled
    p = source.double().softmax(-1)
    token, want = tree.token.tolist(), []
    for node in range(tree.num_nodes):
        y, row = int(law.target[node]), p[node]
        kids = {token[c]: float(row[token[c]]) for c in children(tree, node)}
        bar = float(row.max()) - delta
        assume(all(abs(mass - bar) > 1e-6 or mass == row.max() for mass in kids.values()))
        ranked = set(row[row >= row.sort(descending=True).values[min(topk, V) - 1]].tolist())
        good = {
            x: mass
            for x, mass in kids.items()
            if mass in ranked and mass >= bar and mass > 0 and x not in protected
        }
        keep = y in kids or y in protected or not good
        want.append(y if keep else max(good, key=good.get))
    assert choose(f"relaxed:{topk},{delta}", law, tree, protected) == want


@FAST
@given(*CASES, TOPK, TOPK, DELTA, DELTA)
def test_looser_options_promote_wherever_tighter_ones_do(seed, greedy, masked, k1, k2, d1, d2):
    tree, law, protected = random_case(seed, greedy, integers=True, masked=masked)
    loose = choose(f"relaxed:{max(k1, k2)},{max(d1, d2)}", law, tree, protected)
    tight = choose(f"relaxed:{min(k1, k2)},{min(d1, d2)}", law, tree, protected)
    for node, y in enumerate(law.target.tolist()):
        assert tight[node] == y or loose[node] == tight[node]  # the likeliest stays the likeliest


@FAST
@given(seeds)
def test_the_tightest_options_promote_ties_alone(seed):
    for integers in (False, True):
        tree, law, protected = random_case(seed, greedy=True, integers=integers)
        tokens = torch.tensor(choose("relaxed:1,0", law, tree, protected))
        assert torch.equal(law.drop_of(tokens), torch.zeros(tree.num_nodes))


@FAST
@given(st.lists(seeds, min_size=1, max_size=4), st.booleans())
def test_a_batch_equals_the_single_runs(tree_seeds, greedy):
    for spec in ("relaxed:2,0.6", "relaxed:10,0.2"):
        assert batch_equals_singles(spec, tree_seeds, greedy)


def test_the_state_and_the_logits_are_not_touched():
    z, one = rows(ONE, 0.0, -0.1), state()
    before, law = z.clone(), greedy_law(z)
    make_rule("relaxed").choose(law, ONE, one)
    assert law.logits is z
    assert torch.equal(z, before)
    assert one.sampler._promotions is None
    assert choose("relaxed", greedy_law(z[:1]), DraftTree.root_only(7)) == [0]


def test_options():
    options = make_rule("relaxed").options
    assert (options.relaxed_topk, options.relaxed_delta) == (10, 0.6)
    for spec in ("relaxed", "relaxed:1,0"):
        assert not make_rule(spec).lossless
    for bad in ("relaxed:0", "relaxed:10,-0.1", "relaxed:10,1.1", "relaxed:1.5"):
        with pytest.raises(ConfigError, match="rule_options"):
            make_rule(bad)

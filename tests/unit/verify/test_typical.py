import math
from itertools import pairwise

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
from property.naive_reference import FAST, children, path_to, seeds

PAPER, SWAPPED = "typical", "typical:epsilon=0.09,delta=0.3"
# p, with entropy H and exp(-H):
WIDE = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32)  # 1.9375 ln 2: 0.2610
PEAKED = (15 / 16, 1 / 16)  # 0.2338: 0.7915
FLAT = (1 / 8,) * 8  # ln 8: 0.125


def accepted(spec, z, **kwargs):
    """Every token that is followed as an only child while y is another one."""
    found = []
    for token in range(V):
        tree = DraftTree.chain([7, token])
        law = drawn(z[:2], (token + 1) % V, **kwargs)
        if choose(spec, law, tree)[0] == token:
            found.append(token)
    return found


@pytest.mark.parametrize(
    ("p", "spec", "want"),
    [
        (WIDE, PAPER, [0, 1, 2, 3, 4, 5]),  # min(0.3, 0.0235)
        (WIDE, SWAPPED, [0, 1, 2]),  # min(0.09, 0.0783)
        (WIDE, "typical:0.2,0.9", [0, 1]),  # min(0.2, 0.2349)
        (WIDE, "typical:0.9,0.2", [0, 1, 2, 3]),  # min(0.9, 0.0522)
        (PEAKED, PAPER, [0]),  # min(0.3, 0.0712): 0.0625 is not above
        (PEAKED, "typical:0.3,0.07", [0, 1]),  # min(0.3, 0.0554)
        (PEAKED, SWAPPED, [0]),  # min(0.09, 0.2374)
        (PEAKED, "typical:0.06,0.3", [0, 1]),  # min(0.06, 0.2374)
        (FLAT, PAPER, list(range(8))),  # min(0.3, 0.0113)
        (FLAT, "typical:0.3,1", []),  # min(0.3, 0.125): the comparison is strict
        (FLAT, "typical:0.125,2", []),
    ],
)
def test_accept_sets_of_both_conventions(p, spec, want):
    assert accepted(spec, probabilities(star(1), *p)) == want


def test_the_defaults_are_the_papers():
    options = make_rule("typical").options
    assert (options.epsilon, options.delta) == (0.3, 0.09)


def test_p_and_entropy_are_those_of_the_processed_law():
    # (16, 4, 1) / 21 has exp(-H) = 0.513; at T = 2 it is (4, 2, 1) / 7 with 0.385
    z = probabilities(star(1), 16 / 21, 4 / 21, 1 / 21)
    assert accepted("typical:1,0.5", z) == [0]  # 0.256
    assert accepted("typical:1,0.5", z, temperature=2.0) == [0, 1]  # 0.192
    # top-k leaves (1/2, 1/2), where exp(-H) = 1/2; of (0.4, 0.4, 0.2) it is 0.348
    z = probabilities(star(1), 0.4, 0.4, 0.2)
    assert accepted("typical:1,0.5", z) == [0, 1, 2]  # 0.174
    assert accepted("typical:1,0.5", z, top_k=2) == [0, 1]
    assert accepted("typical:0,0", z, top_k=2) == [0, 1]  # what is excluded, never


#     0
#   1   2
#       3
DEEP = DraftTree.from_parents([7, 0, 1, 2], [-1, 0, 0, 2])


def test_the_longest_path_beats_the_likeliest_child_and_ends_with_y():
    z = probabilities(DEEP, (0.6, 0.3, 0.1), (0.5, 0.5), (0.2, 0.2, 0.6), (0.0, 0.0, 0.0, 1.0))
    done = verdict(DEEP, make_rule(PAPER).choose(drawn(z, [0, 0, 0, 3]), DEEP, state()))
    assert (done.path, done.tokens) == ([0, 2, 3], [1, 2, 3])
    assert done.kinds == [Kind.PROMOTED, Kind.PROMOTED, Kind.BONUS]
    assert done.strict == [0, 0, 3]


def test_equal_lengths_go_to_the_likelier_path_then_to_the_lower_index():
    tree = DraftTree.from_parents([7, 0, 1, 2, 3], [-1, 0, 0, 1, 2])
    # 0.5 * 0.3 is less than 0.4 * 0.5, although 0.5 is the likelier first step
    z = probabilities(tree, (0.5, 0.4, 0.1), (0.7, 0.0, 0.3), (0.5, 0.0, 0.0, 0.5), (1.0,), (1.0,))
    assert choose(PAPER, drawn(z, 6), tree) == [1, 6, 3, 6, 6]
    z = probabilities(tree, (0.5, 0.5), (0.5, 0.0, 0.5), (0.5, 0, 0, 0.5), (1.0,), (1.0,))
    assert choose(PAPER, drawn(z, 6), tree) == [0, 2, 6, 6, 6]


def test_the_walk_goes_on_along_the_targets_own_tokens():
    # The second draft has p 0.01, too little to be accepted, but the target drew it.
    tree = DraftTree.chain([7, 1, 2, 3])
    z = probabilities(tree, (0.5, 0.5), (0.99, 0.0, 0.01), (0.99, 0, 0, 0.01), (1.0,))
    rule = make_rule(SWAPPED)
    done = verdict(tree, rule.choose(drawn(z, [0, 2, 0, 0]), tree, state()))
    assert (done.path, done.tokens) == ([0, 1, 2], [1, 2, 0])
    assert done.kinds == [Kind.PROMOTED, Kind.EXACT, Kind.BONUS]


def test_an_acceptable_draft_that_the_target_drew_is_exact():
    tree = DraftTree.chain([7, 1])
    z = probabilities(tree, 0.5, 0.5)
    done = verdict(tree, make_rule(PAPER).choose(drawn(z, 1), tree, state()))
    assert done.kinds == [Kind.EXACT, Kind.BONUS]


@pytest.mark.parametrize(
    ("y", "protected", "token"),
    [
        (0, (), 1),
        (0, (1,), 2),  # 1 is not promoted, so 2 is the likeliest
        (0, (0,), 0),  # the target's own token is not overridden
        (1, (1,), 1),  # and followed where it was drafted
        (2, (1,), 2),
        (2, (2,), 2),  # ahead of a likelier child
        (0, (1, 2), 0),
    ],
)
def test_protected_tokens(y, protected, token):
    tree = star(1, 2)
    z = probabilities(tree, 0.4, 0.35, 0.25)
    assert choose(PAPER, drawn(z, y), tree, protected)[0] == token


def test_a_protected_token_of_the_target_ends_the_accepted_path_unless_it_was_drafted():
    tree = DraftTree.chain([7, 1, 2, 3])
    z = probabilities(tree, 0.25, 0.25, 0.25, 0.25)
    assert choose(PAPER, drawn(z, [0, 5, 0, 0]), tree, (5,)) == [1, 5, 0, 0]
    assert choose(PAPER, drawn(z, [0, 2, 0, 0]), tree, (2,)) == [1, 2, 3, 0]


@FAST
@given(seeds, st.booleans())
def test_temperature_zero_is_strict(seed, integers):
    tree, law, protected = random_case(seed, greedy=True, integers=integers)
    assert choose("typical:0,0", law, tree, protected) == law.target.tolist()


@FAST
@given(seeds)
def test_the_most_severe_setting_is_strict(seed):
    tree, law, protected = random_case(seed, greedy=False)
    assert choose("typical:1,1000", law, tree, protected) == law.target.tolist()


BARS = st.tuples(st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.sampled_from([0.0, 0.09, 0.5, 2.0]))


@FAST
@given(seeds, BARS)
def test_the_rule_is_its_definition(seed, bars):
    epsilon, delta = bars
    tree, law, protected = random_case(seed, greedy=False)
    p = law.logp.double().exp()
    bar = (delta * torch.exp(-torch.special.entr(p).sum(-1))).clamp_max(epsilon)
    token, y = tree.token.tolist(), law.target.tolist()

    def acceptable(node):
        parent = int(tree.parent[node])
        own, excess = p[parent, token[node]], p[parent, token[node]] - bar[parent]
        assume(abs(excess) > 1e-6 or own == bar[parent] == 0)
        closed = token[node] in protected or y[parent] in protected
        return excess > 0 and (token[node] == y[parent] or not closed)

    def log_mass(path):
        return sum(math.log(p[a, token[b]]) for a, b in pairwise(path))

    paths = [path_to(tree, node) for node in range(tree.num_nodes)]
    good = {node for node in range(1, tree.num_nodes) if acceptable(node)}
    legal = [path for path in paths if good.issuperset(path[1:])]
    longest = max(len(path) for path in legal)
    masses = sorted(
        ((log_mass(path), path) for path in legal if len(path) == longest), reverse=True
    )
    assume(len(masses) == 1 or masses[0][0] - masses[1][0] > 1e-5)
    want = list(y)
    for a, b in pairwise(masses[0][1]):
        want[a] = token[b]
    assert choose(f"typical:{epsilon},{delta}", law, tree, protected) == want


@FAST
@given(seeds, BARS, BARS)
def test_lower_bars_promote_more_of_a_chain(seed, one, two):
    _, law, protected = random_case(seed, greedy=False)
    tree = DraftTree.chain([7, *(x % V for x in range(seed % V, seed % V + len(law.logits) - 1))])
    low, high = [min(pair) for pair in zip(one, two, strict=True)], one
    more = choose(f"typical:{low[0]},{low[1]}", law, tree, protected)
    less = choose(f"typical:{high[0]},{high[1]}", law, tree, protected)
    own = law.target.tolist()
    for node in range(tree.num_nodes):
        assert less[node] == own[node] or more[node] == less[node]
        assert more[node] == own[node] or more[node] == int(tree.token[children(tree, node)[0]])


@FAST
@given(st.lists(seeds, min_size=1, max_size=4), st.booleans())
def test_a_batch_equals_the_single_runs(tree_seeds, greedy):
    assert batch_equals_singles(PAPER, tree_seeds, greedy)
    assert batch_equals_singles("typical:0.9,0.4", tree_seeds, greedy)


def test_the_state_and_the_logits_are_not_touched():
    tree = star(1, 2)
    z, one = rows(tree, 0.0, -0.1, -0.2), state()
    before, law = z.clone(), drawn(z, 0)
    make_rule(PAPER).choose(law, tree, one)
    assert torch.equal(z, before)
    assert law.target.tolist() == [0, 0, 0]
    assert one.sampler._promotions is None
    assert choose(PAPER, greedy_law(z[:1]), DraftTree.root_only(7)) == [0]


def test_options():
    assert not make_rule("typical").lossless
    assert make_rule(SWAPPED).label == SWAPPED
    for bad in ("typical:-0.1", "typical:1.1", "typical:delta=-1"):
        with pytest.raises(ConfigError, match="rule_options"):
            make_rule(bad)

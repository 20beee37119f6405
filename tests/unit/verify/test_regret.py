import math
import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.law import greedy_law
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from adaptivespec.verify.limits import Ledger
from property.naive_reference import (
    FAST,
    bare_state,
    children,
    path_to,
    random_law,
    random_logits,
    random_mask,
    random_tree,
    seeds,
)

V = 8
E, P, B = Kind.EXACT, Kind.PROMOTED, Kind.BONUS


def row(y=0, **drops):
    """Peak 0 at y; keys t0..t7 give other tokens' drops, the rest are -20."""
    z = torch.full((V,), -20.0)
    z[y] = 0.0
    for key, drop in drops.items():
        z[int(key[1:])] = -drop
    return z


def walk(spec, rows, tree, protected=(), spent=0.0):
    mask = torch.zeros(V, dtype=torch.bool)
    mask[list(protected)] = True
    state = bare_state(SamplingParams(), V, mask)
    state.ledger.regret = spent
    return verdict(tree, make_rule(spec).choose(greedy_law(torch.stack(rows)), tree, state))


# Drafts 1 to 4; the target says 1, then 7 in place of 2, 3, then 7 in place of 4.
CHAIN = DraftTree.chain([0, 1, 2, 3, 4])
ROWS = [row(1), row(7, t2=0.5), row(3), row(7, t4=1.0), row(6)]


@pytest.mark.parametrize(
    ("options", "kinds", "regret"),
    [
        ("max_exceptions=2", [E, P, E, P, B], 1.5),
        ("max_exceptions=1", [E, P, E, B], 0.5),
        ("max_exceptions=0", [E, B], 0.0),
        ("gate=0.9", [E, P, E, B], 0.5),
        ("gate=0.5", [E, B], 0.0),  # the comparison is strict
        ("max_exceptions=9", [E, P, E, P, B], 1.5),
    ],
)
def test_exceptions_along_a_chain(options, kinds, regret):
    v = walk(f"regret:{options}", ROWS, CHAIN)
    assert v.kinds == kinds
    assert v.regret == regret
    assert v.tokens[-1] == (6 if len(kinds) == 5 else 7)


# Children 1 and 2 of the root; below 2 a chain 3, 4.
FORK = DraftTree.from_parents([0, 1, 2, 3, 4], [-1, 0, 0, 2, 3])


def test_a_sibling_with_a_longer_path_passes_a_drafted_token():
    # The target wants 1, which ends at once; 2 costs 0.3 and goes on with 3 and 4.
    rows = [row(1, t2=0.3), row(6), row(3), row(4), row(5)]
    v = walk("regret", rows, FORK)
    assert (v.path, v.tokens) == ([0, 2, 3, 4], [2, 3, 4, 5])
    assert v.kinds == [P, E, E, B]
    assert v.strict[0] == 1
    # As long as the exact one only: the exact one has less regret.
    assert walk("regret", [*rows[:2], row(6), *rows[3:]], FORK).path == [0, 1]
    # A protected y is never overridden, a protected x never promoted.
    assert walk("regret", rows, FORK, protected=(1,)).path == [0, 1]
    assert walk("regret", rows, FORK, protected=(2,)).path == [0, 1]
    assert walk("regret", rows, FORK, protected=(3, 4, 0)).path == [0, 2, 3, 4]


def test_exceptions_are_saved_for_where_they_reach_further():
    # One exception: at 1 it gains one node, at 2 three.
    tree = DraftTree.from_parents([0, 1, 2, 3, 4, 5], [-1, 0, 0, 1, 2, 4])
    rows = [row(1, t2=1.0), row(7, t3=0.1), row(4), row(6), row(5), row(6)]
    assert walk("regret:max_exceptions=1", rows, tree).path == [0, 2, 4, 5]
    assert walk("regret:max_exceptions=1,gate=0.5", rows, tree).path == [0, 1, 3]


def test_equal_lengths_go_to_less_regret():
    rows = [row(7, t1=0.2, t2=0.3), *[row(6)] * 4]
    short = DraftTree.from_parents([0, 1, 2], [-1, 0, 0])
    assert walk("regret", rows[:3], short).path == [0, 1]
    rows[0] = row(7, t1=0.3, t2=0.2)
    assert walk("regret", rows[:3], short).path == [0, 2]
    # The sum counts: 0.1 + 0.5 along the first child, 0.3 + 0.2 along the second.
    tree = DraftTree.from_parents([0, 1, 2, 3, 3], [-1, 0, 0, 1, 2])
    rows = [row(7, t1=0.1, t2=0.3), row(7, t3=0.5), row(7, t3=0.2), row(6), row(6)]
    assert walk("regret", rows, tree).path == [0, 2, 4]


def test_equal_regrets_go_to_the_exact_child_then_to_the_lower_index():
    tree = DraftTree.from_parents([0, 5, 1, 4], [-1, 0, 0, 0])
    tied = row(1, t4=0.0, t5=0.0)  # the argmax is 1, the lowest id
    assert walk("regret", [tied, *[row(7)] * 3], tree).path == [0, 2]
    short = DraftTree.from_parents([0, 5, 4], [-1, 0, 0])
    assert walk("regret", [tied, *[row(7)] * 2], short).path == [0, 1]
    assert walk("regret", [tied, *[row(7)] * 2], short, protected=(5,)).path == [0, 2]


def test_the_longest_path_beats_any_regret():
    # 2 costs a thousand nats more than 1 and is one node longer.
    rows = [row(7, t1=0.1, t2=1000.0), row(6), row(3), row(6), row(6)]
    spec = "regret:gate=2000,max_exceptions=1,max_regret=null"
    assert walk(spec, rows, FORK).path == [0, 2, 3]


def test_masked_drafts_are_never_followed():
    rows = [row(7, t1=math.inf, t2=math.inf), *[row(6)] * 4]
    assert walk("regret:gate=1e9,max_regret=null", rows, FORK).path == [0]


@pytest.mark.parametrize(
    ("spent", "kinds"),
    [
        (0.0, [E, P, E, P, B]),
        (14.5, [E, P, E, P, B]),  # 1.5 are left and 1.5 are spent
        (14.6, [E, P, E, B]),
        (15.5, [E, P, E, B]),
        (15.6, [E, B]),
        (16.0, [E, B]),
        (17.0, [E, B]),
    ],
)
def test_the_ledger_of_the_request(spent, kinds):
    assert walk("regret:max_regret=16", ROWS, CHAIN, spent=spent).kinds == kinds
    assert walk("regret:max_regret=null", ROWS, CHAIN, spent=spent).kinds == [E, P, E, P, B]


def test_an_empty_ledger_falls_back_to_the_exact_path():
    """Cutting the walk at the promotion would follow nothing here, where strict follows 1."""
    rows = [row(1, t2=0.3), row(6), row(3), row(4), row(5)]
    assert walk("regret", rows, FORK, spent=16.0).path == [0, 1]


def test_a_path_too_dear_gives_way_to_a_cheaper_exception():
    # 2 reaches furthest and costs 1; with 0.5 left 1 can still be had.
    rows = [row(7, t1=0.4, t2=1.0), row(6), row(3), row(4), row(5)]
    assert walk("regret", rows, FORK, spent=15.5).path == [0, 1]
    assert walk("regret", rows, FORK, spent=15.0).path == [0, 2, 3, 4]


def test_requests_are_charged_through_the_ledger():
    state, rule = bare_state(SamplingParams(), V), make_rule("regret:max_regret=2")
    law = greedy_law(torch.stack(ROWS))
    promoted = []
    for _ in range(4):
        done = verdict(CHAIN, rule.choose(law, CHAIN, state))
        state.ledger.record(done)
        promoted.append(done.num_promoted)
    assert promoted == [2, 1, 0, 0]  # 1.5, then 0.5 of the half nat that is left
    assert state.ledger.regret == 2.0
    assert rule.limits is None


def test_lossless_only_when_nothing_can_be_promoted():
    assert make_rule("regret:max_exceptions=0").lossless
    assert make_rule("regret:gate=0").lossless
    assert not make_rule("regret:max_regret=0").lossless  # ties are free
    assert not make_rule("regret").sampling
    assert make_rule("regret:1.2,1").label == "regret:gate=1.2,max_exceptions=1"


def paths(tree, law, gate, most, left, protected):
    """Every allowed path from the root: (node, length, regret, exceptions)."""
    token = tree.token.tolist()
    out = []
    for node in range(tree.num_nodes):
        regret, exceptions, allowed = 0.0, 0, True
        path = path_to(tree, node)
        for above, child in pairwise(path):
            y, x = int(law.target[above]), token[child]
            if x == y:
                continue
            drop = float(law.peak[above] - law.logits[above, x])
            allowed &= drop < gate and drop <= left and not protected[y] and not protected[x]
            regret, exceptions = regret + drop, exceptions + 1
        if allowed and exceptions <= most:
            out.append((node, len(path) - 1, regret, exceptions))
    return out


def case(seed, **kwargs):
    rng = random.Random(seed)
    vocab = rng.choice([3, V])
    tree = random_tree(rng, vocab)
    law = greedy_law(random_logits(rng, tree.num_nodes, vocab, **kwargs))
    return tree, law, random_mask(rng, vocab, 0.1)


@FAST
@given(
    seeds,
    st.sampled_from([1.1, 3.0, 1e9]),
    st.integers(0, 4),
    st.sampled_from([0.0, 1.0, 3.0, math.inf]),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
)
def test_the_path_is_the_longest_of_all(seed, gate, most, budget, integers, masked):
    tree, law, protected = case(seed, integers=integers, masked=masked)
    options = {"gate": gate, "max_exceptions": most}
    options["max_regret"] = None if budget == math.inf else budget
    state = bare_state(SamplingParams(), law.logits.shape[-1], protected)
    done = verdict(tree, make_rule("regret", options).choose(law, tree, state))
    allowed = paths(tree, law, gate, most, budget, protected)
    for spare in range(most, -1, -1):  # with fewer exceptions until the ledger pays for them
        within = [path for path in allowed if path[3] <= spare]
        best = max(within, key=lambda path: (path[1], -path[2]))
        if best[2] <= budget + 1e-6:
            break
    assert done.num_accepted == best[1]
    assert done.regret == pytest.approx(best[2], abs=1e-5)
    assert done.num_promoted <= most
    assert done.regret <= budget + 1e-6
    y = int(law.target[done.path[-1]])
    assert done.tokens[-1] == y
    assert y not in [int(tree.token[c]) for c in children(tree, done.path[-1])]


@FAST
@given(seeds, st.sampled_from(["max_exceptions=0", "gate=0"]))
def test_without_exceptions_it_is_strict(seed, options):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    law = random_law(rng, tree.num_nodes, V)
    chosen = make_rule(f"regret:{options}").choose(law, tree, bare_state(SamplingParams(), V))
    assert torch.equal(chosen.tokens, law.target)


@FAST
@given(seeds)
def test_off_the_path_nothing_is_rewritten(seed):
    tree, law, protected = case(seed)
    state = bare_state(SamplingParams(), law.logits.shape[-1], protected)
    chosen = make_rule("regret:gate=9").choose(law, tree, state)
    off = torch.ones(tree.num_nodes, dtype=torch.bool)
    off[verdict(tree, chosen).path] = False
    assert torch.equal(chosen.tokens[off], law.target[off])


@FAST
@given(st.lists(seeds, min_size=1, max_size=5), st.integers(1, 3), st.booleans())
def test_a_batch_of_trees_equals_the_single_runs(tree_seeds, most, integers):
    trees, laws = [], []
    for seed in tree_seeds:
        rng = random.Random(seed)
        trees.append(random_tree(rng, V))
        laws.append(greedy_law(random_logits(rng, trees[-1].num_nodes, V, integers)))
    batch = DraftTree.pad_stack(trees)
    z = torch.zeros(len(trees), batch.num_nodes, V)
    for index, law in enumerate(laws):
        z[index, : len(law.peak)] = law.logits
    state = bare_state(SamplingParams(), V, random_mask(random.Random(tree_seeds[0]), V, 0.1))
    rule = make_rule(f"regret:gate=3,max_exceptions={most},max_regret=3")
    together = rule.choose(greedy_law(z), batch, state).tokens
    for index, tree in enumerate(trees):
        single = rule.choose(laws[index], tree, state).tokens
        assert torch.equal(together[index, : tree.num_nodes], single)


def test_the_law_and_the_state_are_not_changed():
    z, state = torch.stack(ROWS), bare_state(SamplingParams(), V)
    before, law = z.clone(), greedy_law(z)
    target = law.target.clone()
    make_rule("regret").choose(law, CHAIN, state)
    assert torch.equal(z, before)
    assert torch.equal(law.target, target)
    assert state.ledger == Ledger()

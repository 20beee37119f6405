import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.law import greedy_law, sampled_law
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from property.naive_reference import (
    FAST,
    bare_state,
    children,
    random_law,
    random_logits,
    random_mask,
    random_tree,
    seeds,
)

V = 8
INF = math.inf
SIBLINGS = DraftTree.from_parents([5, 1, 2, 3], [-1, 0, 0, 0])
TAU = -math.log(0.01)  # 4.605 nats


def row(y=0, **drops):
    """Peak 0 at y; keys t1..t7 give other tokens' drops, the rest are -20."""
    z = torch.full((V,), -20.0)
    z[y] = 0.0
    for key, drop in drops.items():
        z[int(key[1:])] = -drop
    return z


def fresh(protected=()):
    mask = torch.zeros(V, dtype=torch.bool)
    mask[list(protected)] = True
    return bare_state(SamplingParams(), V, mask)


def step(rule, rows, tree, state, kept=None):
    """Choose, walk and observe what was committed."""
    z = torch.stack(rows)
    chosen = rule.choose(greedy_law(z), tree, state)
    done = verdict(tree, chosen)
    done = done.committed(len(done.tokens) if kept is None else kept)
    rule.observe(tree, chosen, done, state)
    return done


def remember(state, *pairs):
    """Make pairs (y, x) frequent."""
    keys = sorted(y * V + x for y, x in pairs)
    state.memory["frequent"] = torch.tensor([*keys, 2**63 - 1])
    return state


def test_a_draft_is_promoted_from_its_second_rejection_on():
    rule, state = make_rule("csd"), fresh()
    rows = [row(t1=3.0)] * 4
    runs = [step(rule, rows, SIBLINGS, state) for _ in range(4)]
    assert [done.tokens for done in runs] == [[0], [0], [1, 0], [1, 0]]
    assert runs[2].kinds == [Kind.PROMOTED, Kind.BONUS]
    assert runs[2].drops == [3.0, 0.0]
    # Another token of the target's own makes another pair.
    assert step(rule, [row(4, t1=3.0)] * 4, SIBLINGS, state).tokens == [4]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_min_count(count):
    rule, state = make_rule(f"csd:min_count={count}"), fresh()
    runs = [step(rule, [row(t1=3.0)] * 4, SIBLINGS, state) for _ in range(count + 1)]
    assert [done.num_promoted for done in runs] == [0] * count + [1]


def test_the_margin_may_equal_tau():
    edge = torch.tensor(TAU, dtype=torch.float32)
    state = remember(fresh(), (0, 1))
    for drop, promoted in ((edge, 1), (torch.nextafter(edge, torch.tensor(INF)), 0)):
        z = torch.stack([row()] * 4)
        z[:, 1] = -drop
        assert int(make_rule("csd").choose(greedy_law(z), SIBLINGS, state).tokens[0]) == promoted


def test_a_tie_passes_at_tau_one():
    z = torch.zeros(4, V)
    state = remember(fresh(), (0, 2))
    assert make_rule("csd:tau=1").choose(greedy_law(z), SIBLINGS, state).tokens[0] == 2


def test_the_eligible_child_of_largest_margin_wins():
    state = remember(fresh(), (0, 1), (0, 3))
    rows = [row(t1=2.0, t2=0.5, t3=1.0)] * 4
    assert step(make_rule("csd"), rows, SIBLINGS, state).path == [0, 3]  # (0, 2) is not known
    assert step(make_rule("csd"), [row(t1=1.0, t3=1.0)] * 4, SIBLINGS, state).path == [0, 1]


def test_the_exact_child_comes_first():
    state = remember(fresh(), (2, 1))
    done = step(make_rule("csd"), [row(2, t1=0.1)] * 4, SIBLINGS, state)
    assert (done.path, done.kinds[0]) == ([0, 2], Kind.EXACT)


@pytest.mark.parametrize(("protected", "expected"), [((), 1), ((1,), 2), ((1, 2), 0), ((0,), 0)])
def test_protected_tokens_are_neither_promoted_nor_overridden(protected, expected):
    state = remember(fresh(protected), (0, 1), (0, 2))
    z = torch.stack([row(t1=0.1, t2=0.2)] * 4)
    assert make_rule("csd").choose(greedy_law(z), SIBLINGS, state).tokens[0] == expected


def counts(state):
    """(y, x) -> rejections."""
    return {divmod(key, V): n for key, n in state.memory.get("counts", {}).items()}


def test_the_pair_is_the_first_child_with_that_margin():
    rule, state = make_rule("csd"), fresh()
    step(rule, [row(t1=5.0, t2=4.0, t3=0.1)] * 4, SIBLINGS, state)
    assert counts(state) == {(0, 2): 1}  # 1 lies below tau, 3 comes later
    step(rule, [row(t1=5.0, t2=5.0)] * 4, SIBLINGS, state)
    assert counts(state) == {(0, 2): 1}


def test_protected_tokens_are_not_counted():
    rule = make_rule("csd")
    for protected, pairs in (((1,), {(0, 2): 1}), ((1, 2), {}), ((0,), {})):
        state = fresh(protected)
        step(rule, [row(t1=0.1, t2=0.2)] * 4, SIBLINGS, state)
        assert counts(state) == pairs


def test_only_a_rejection_is_counted_and_where_it_happened():
    rule = make_rule("csd")
    chain = DraftTree.chain([5, 1, 2])
    rows = [row(1, t3=1.0), row(4, t2=1.0), row(6)]
    state = fresh()
    assert step(rule, rows, chain, state).tokens == [1, 4]
    assert counts(state) == {(4, 2): 1}
    state = fresh()
    step(rule, rows, chain, state, kept=1)  # a stop came first: nothing was rejected
    assert counts(state) == {}
    step(rule, [row(1), row(2), row(6)], chain, state)  # all accepted
    assert counts(state) == {}
    step(rule, [row(3)], DraftTree.root_only(5), state)  # nothing drafted
    assert counts(state) == {}


def test_a_walk_cut_at_an_exact_match_is_no_rejection():
    rule, state = make_rule("csd"), fresh()
    chosen = rule.choose(greedy_law(torch.stack([row(1, t2=0.1)] * 4)), SIBLINGS, state)
    rule.observe(SIBLINGS, chosen, verdict(SIBLINGS, chosen).cut(0), state)
    assert counts(state) == {}


def test_the_pair_rejected_longest_ago_is_forgotten():
    rule, state = make_rule("csd:min_count=1,capacity=2"), fresh()
    one, two, three = (row(y, t1=3.0) for y in (4, 5, 6))
    for first in (one, two):
        step(rule, [first] * 4, SIBLINGS, state)
    # Now (4, 1) is the oldest; a third pair drives it out.
    step(rule, [three] * 4, SIBLINGS, state)
    assert counts(state) == {(5, 1): 1, (6, 1): 1}
    assert step(rule, [two] * 4, SIBLINGS, state).num_promoted == 1
    assert step(rule, [one] * 4, SIBLINGS, state).num_promoted == 0
    # So it is when the pair that drives it out is not frequent itself.
    rule, state = make_rule("csd:capacity=2"), fresh()
    for first in (one, one, two, three):
        step(rule, [first] * 4, SIBLINGS, state)
    assert step(rule, [one] * 4, SIBLINGS, state).num_promoted == 0
    # A pair that is counted again is young again.
    rule, state = make_rule("csd:min_count=3,capacity=2"), fresh()
    for first in (one, two, one, three):
        step(rule, [first] * 4, SIBLINGS, state)
    assert counts(state) == {(4, 1): 2, (6, 1): 1}


def test_choosing_changes_nothing():
    state = remember(fresh(), (0, 1))
    make_rule("csd").choose(greedy_law(torch.stack([row(t1=1.0)] * 4)), SIBLINGS, state)
    assert list(state.memory) == ["frequent"]
    assert state.sampler._promotions is None


def test_at_a_temperature_a_child_is_drawn_from_the_eligible_ones():
    # p of 1 and 2 are as 2 to 1; 3 is not known, and top-k excludes nothing but the rest.
    z = torch.stack([row(t1=0.0, t2=math.log(2.0), t3=0.0)] * 4)
    n = 3000
    law = sampled_law(z.expand(n, 4, V), torch.zeros(n, 4, dtype=torch.float64), 1.0, top_k=4)
    batch = DraftTree.pad_stack([SIBLINGS] * n)
    state = bare_state(SamplingParams(temperature=1.0, seed=1), V)
    many = replace(state, sampler=Noise(state.sampler))
    tokens = make_rule("csd").choose(law, batch, remember(many, (0, 1), (0, 2))).tokens[:, 0]
    share = torch.bincount(tokens, minlength=V) / n
    assert share[1] + share[2] == 1
    assert float(share[1]) == pytest.approx(2 / 3, abs=0.04)  # 4.6 standard deviations


class Noise:
    """Rows of promotion noise for a batch of trees."""

    def __init__(self, sampler):
        self.sampler = sampler

    def promotion_noise(self, n, device=None):
        return self.sampler.promotion_noise(3000 * n, device).reshape(3000, n)


def random_pairs(rng, vocab):
    return [(y, x) for y in range(vocab) for x in range(vocab) if rng.random() < 0.5]


def naive(law, tree, pairs, limit, protected):
    """CSD node by node, greedy."""
    token, out = tree.token.tolist(), []
    for node in range(tree.num_nodes):
        y, z = int(law.target[node]), law.logits[node]
        kids = children(tree, node)
        drop = {c: float(law.peak[node] - z[token[c]]) for c in kids}
        passed = [
            c
            for c in kids
            if (y, token[c]) in pairs and drop[c] <= limit and not protected[token[c]]
        ]
        if protected[y] or y in [token[c] for c in kids] or not passed:
            out.append(y)
        else:
            out.append(token[min(passed, key=lambda c: (drop[c], c))])
    return out


@FAST
@given(seeds, st.sampled_from([0.01, 0.3, 1.0]), st.booleans())
def test_the_rule_is_its_definition(seed, tau, integers):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    law = greedy_law(random_logits(rng, tree.num_nodes, V, integers, masked=0.1))
    protected, pairs = random_mask(rng, V), random_pairs(rng, V)
    state = remember(bare_state(SamplingParams(), V, protected), *pairs)
    tokens = make_rule(f"csd:{tau}").choose(law, tree, state).tokens
    limit = float(torch.tensor(-math.log(tau), dtype=torch.float32))
    assert tokens.tolist() == naive(law, tree, pairs, limit, protected)


@FAST
@given(seeds)
def test_an_empty_memory_is_strict(seed):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    law = random_law(rng, tree.num_nodes, V)
    for state in (bare_state(SamplingParams(), V), remember(bare_state(SamplingParams(), V))):
        assert torch.equal(make_rule("csd").choose(law, tree, state).tokens, law.target)


@FAST
@given(st.lists(seeds, min_size=1, max_size=5))
def test_a_batch_of_trees_equals_the_single_runs(tree_seeds):
    trees, laws = [], []
    for seed in tree_seeds:
        rng = random.Random(seed)
        trees.append(random_tree(rng, V))
        laws.append(greedy_law(random_logits(rng, trees[-1].num_nodes, V)))
    batch = DraftTree.pad_stack(trees)
    z = torch.zeros(len(trees), batch.num_nodes, V)
    for index, law in enumerate(laws):
        z[index, : len(law.peak)] = law.logits
    rng = random.Random(tree_seeds[0])
    state = remember(bare_state(SamplingParams(), V, random_mask(rng, V)), *random_pairs(rng, V))
    together = make_rule("csd").choose(greedy_law(z), batch, state).tokens
    for index, tree in enumerate(trees):
        single = make_rule("csd").choose(laws[index], tree, state).tokens
        assert torch.equal(together[index, : tree.num_nodes], single)


def test_never_lossless():
    assert not make_rule("csd").lossless
    assert make_rule("csd:tau=0.5,min_count=3").label == "csd:tau=0.5,min_count=3"

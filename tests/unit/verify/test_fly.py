import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import Law, greedy_law
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


def flat(y, **drops):
    """A nearly uniform row with its peak at y; keys t0..t7 give other tokens' drops."""
    z = torch.full((V,), -0.5)
    z[y] = 0.0
    for key, drop in drops.items():
        z[int(key[1:])] = -drop
    return z


def sharp(y):
    """A row that is sure of y."""
    z = torch.full((V,), -20.0)
    z[y] = 0.0
    return z


def choose(spec, rows, tree, protected=()):
    mask = torch.zeros(V, dtype=torch.bool)
    mask[list(protected)] = True
    state = bare_state(SamplingParams(), V, mask)
    return make_rule(spec).choose(greedy_law(torch.stack(rows)), tree, state)


# Root 0, drafts 1 to 4; the target wants 7 in place of 1 and then agrees with the rest.
CHAIN = DraftTree.chain([0, 1, 2, 3, 4])
AGREES = [flat(7), sharp(2), sharp(3), sharp(4), sharp(5)]


def test_a_mismatch_is_kept_when_the_window_matches():
    v = verdict(CHAIN, choose("fly:window=3", AGREES, CHAIN))
    assert v.tokens == [1, 2, 3, 4, 5]
    assert v.kinds == [Kind.PROMOTED, Kind.EXACT, Kind.EXACT, Kind.EXACT, Kind.BONUS]
    assert v.strict == [7, 2, 3, 4, 5]
    assert v.drops[0] == 0.5


@pytest.mark.parametrize(("window", "kept"), [(1, 4), (2, 4), (3, 4), (4, 0), (6, 0)])
def test_the_window_needs_that_many_drafts(window, kept):
    v = verdict(CHAIN, choose(f"fly:window={window}", AGREES, CHAIN))
    assert v.num_accepted == kept
    assert v.tokens[-1] == (5 if kept else 7)


def test_a_sure_target_is_never_overridden():
    rows = [sharp(7), *AGREES[1:]]
    for gate in ("paper", "code"):
        assert verdict(CHAIN, choose(f"fly:window=3,gate={gate}", rows, CHAIN)).tokens == [7]


def test_a_mismatch_inside_the_window_undoes_the_first():
    # Both would pass a gate, but the second lies in the window of the first, so the first is out.
    rows = [flat(7), sharp(2), flat(7), sharp(4), sharp(5)]
    assert verdict(CHAIN, choose("fly:window=2", rows, CHAIN)).tokens == [7]
    # With W = 1 both hold: 1 is followed by one match, 3 by another.
    v = verdict(CHAIN, choose("fly:window=1", rows, CHAIN))
    assert v.tokens == [1, 2, 3, 4, 5]
    assert v.num_promoted == 2


# p = (1/2, 1/2): H = ln 2, and of ln 8 that is a third.
# p = (.4, .3, .2, .1): the three largest give .3665 + .3612 + .3219 = 1.0496 nats; renormalised
# they would give 1.0609. H = 1.2799, and of ln 8 that is .6155.
HALVES = [0.5, 0.5]
FOUR = [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("p", "options", "kept"),
    [
        (HALVES, "theta=0.333", True),
        (HALVES, "theta=0.334", False),
        (FOUR, "theta=0.615", True),
        (FOUR, "theta=0.616", False),
        (FOUR, "theta=1.049,gate=code", True),
        (FOUR, "theta=1.050,gate=code", False),
        (FOUR, "theta=0.727,gate=code,top_k=2", True),  # .3665 + .3612 = .7277
        (FOUR, "theta=0.728,gate=code,top_k=2", False),
        (FOUR, "theta=1.279,gate=code,top_k=100", True),  # never more than there are
        (FOUR, "theta=1.280,gate=code,top_k=100", False),
    ],
)
def test_gates_by_hand(p, options, kept):
    row = torch.full((V,), -INF)
    row[7 - torch.arange(len(p))] = torch.tensor(p).log()
    row[1] = -40.0  # the draft has next to no probability: the gate asks for none
    rows = [row, *AGREES[1:]]
    assert int(choose(f"fly:window=3,{options}", rows, CHAIN).tokens[0]) == (
        1 if kept else row.argmax()
    )


def test_the_gate_reads_raw_logits_of_any_type():
    z = torch.stack(AGREES).bfloat16()
    for gate in ("paper", "code"):
        chosen = make_rule(f"fly:window=3,gate={gate}").choose(
            greedy_law(z), CHAIN, bare_state(SamplingParams(), V)
        )
        assert chosen.tokens.tolist() == [1, 2, 3, 4, 5]


# Three children 1, 2, 3 of the root with runs of 1, 2 and 2.
FORK = DraftTree.from_parents([0, 1, 2, 3, 4, 4, 4, 5, 5], [-1, 0, 0, 0, 1, 2, 3, 5, 6])


def fork(first, window=1, protected=(), ends=5):
    rows = [first, *[sharp(4)] * 3, sharp(6), sharp(5), sharp(ends), sharp(6), sharp(6)]
    return int(choose(f"fly:window={window}", rows, FORK, protected).tokens[0])


def test_the_longest_run_wins_then_the_largest_margin_then_the_lowest_index():
    assert fork(flat(7, t1=0.1, t2=0.3, t3=0.2)) == 3
    assert fork(flat(7, t1=0.1, t2=0.2, t3=0.3)) == 2
    assert fork(flat(7, t1=0.1, t2=0.3, t3=0.3)) == 2
    assert fork(flat(7, t1=0.1, t2=0.3, t3=0.2), ends=6) == 2  # 3 has a run of 1 now
    assert fork(flat(7), window=3) == 7


@pytest.mark.parametrize(
    ("protected", "expected"), [((3,), 2), ((2, 3), 1), ((1, 2, 3), 7), ((7,), 7), ((4, 5), 3)]
)
def test_protected_tokens_are_neither_promoted_nor_overridden(protected, expected):
    assert fork(flat(7, t1=0.1, t2=0.3, t3=0.2), protected=protected) == expected


def test_the_exact_child_comes_first():
    assert fork(flat(1, t2=0.1, t3=0.1)) == 1


def test_a_masked_child_is_never_kept():
    assert fork(flat(7, t2=INF, t3=INF)) == 1
    assert fork(flat(7, t1=INF, t2=INF, t3=INF)) == 7


def test_at_a_temperature_matches_are_with_the_drawn_tokens():
    z = torch.stack(AGREES)
    law = greedy_law(z)
    state, rule = bare_state(SamplingParams(), V), make_rule("fly:window=2")

    def tokens(target, excluded=()):
        scaled = z - law.peak[:, None]
        scaled[0, list(excluded)] = -INF
        drawn = Law(z, law.peak, torch.tensor(target), scaled)
        return rule.choose(drawn, CHAIN, state).tokens.tolist()

    assert tokens([6, 2, 3, 6, 5]) == [1, 2, 3, 6, 5]
    assert tokens([6, 2, 6, 4, 5]) == [6, 2, 6, 4, 5]  # a draw that the window does not like
    assert tokens([1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]
    assert tokens([6, 2, 3, 4, 5], excluded=[1]) == [6, 2, 3, 4, 5]
    assert state.sampler._promotions is None


def entropy(row, top_k=None):
    p = row.double().softmax(-1)
    p = p if top_k is None else p.sort(descending=True).values[:top_k]
    return float(-(p[p > 0] * p[p > 0].log()).sum())


def naive(law, tree, window, theta, gate, protected):
    """FLy node by node."""
    token, vocab, out = tree.token.tolist(), law.logits.shape[-1], []

    def run(node):
        y = int(law.target[node])
        return next((1 + run(c) for c in children(tree, node) if token[c] == y), 0)

    for node in range(tree.num_nodes):
        y, row = int(law.target[node]), law.logits[node]
        legal = row if law.scaled is None else law.scaled[node]
        passed = [
            c
            for c in children(tree, node)
            if run(c) >= window and not protected[token[c]] and legal[token[c]] > -INF
        ]
        measure = entropy(row) / math.log(vocab) if gate == "paper" else entropy(row, 3)
        unsure = measure >= theta if gate == "paper" else measure > theta
        if run(node) or protected[y] or not passed or not unsure:
            out.append(y)
        else:
            out.append(token[min(passed, key=lambda c: (-run(c), -float(row[token[c]]), c))])
    return out


@FAST
@given(
    seeds,
    st.integers(1, 3),
    st.sampled_from([0.0, 0.3, 0.7]),
    st.sampled_from(["paper", "code"]),
    st.booleans(),
)
def test_the_rule_is_its_definition(seed, window, theta, gate, masked):
    rng = random.Random(seed)
    tree = random_tree(rng, 3, 16)
    law = random_law(rng, tree.num_nodes, 3, masked=0.3 * masked)
    protected = random_mask(rng, 3, 0.1)
    rule = make_rule("fly", {"window": window, "theta": theta, "gate": gate})
    tokens = rule.choose(law, tree, bare_state(SamplingParams(), 3, protected)).tokens
    assert tokens.tolist() == naive(law, tree, window, theta, gate, protected)


@FAST
@given(seeds)
def test_a_window_beyond_the_tree_is_strict(seed):
    rng = random.Random(seed)
    tree = random_tree(rng, 3, 16)
    law = random_law(rng, tree.num_nodes, 3)
    rule = make_rule(f"fly:window={max(tree.max_depth, 1)},theta=0")
    chosen = rule.choose(law, tree, bare_state(SamplingParams(), 3))
    assert torch.equal(chosen.tokens, law.target)


@FAST
@given(st.lists(seeds, min_size=1, max_size=5), st.integers(1, 2), st.booleans())
def test_a_batch_of_trees_equals_the_single_runs(tree_seeds, window, paper):
    trees, rows = [], []
    for seed in tree_seeds:
        rng = random.Random(seed)
        trees.append(random_tree(rng, 3, 16))
        rows.append(random_logits(rng, trees[-1].num_nodes, 3))
    batch = DraftTree.pad_stack(trees)
    z = torch.zeros(len(trees), batch.num_nodes, 3)
    for row, values in enumerate(rows):
        z[row, : len(values)] = values
    gate = "paper" if paper else "code"
    rule, state = make_rule(f"fly:window={window},gate={gate}"), bare_state(SamplingParams(), 3)
    together = rule.choose(greedy_law(z), batch, state).tokens
    for row, tree in enumerate(trees):
        single = rule.choose(greedy_law(rows[row]), tree, state).tokens
        assert torch.equal(together[row, : tree.num_nodes], single)


def test_the_gate_looks_at_candidates_only(monkeypatch):
    """Of seven nodes no more than two can be followed by runs of two that nothing else shares."""
    tree = DraftTree.from_parents([0, 1, 2, 3, 4, 2, 3], [-1, 0, 1, 2, 0, 4, 5])
    rows = [flat(7, t1=0.2, t4=0.1), sharp(2), sharp(3), sharp(5), sharp(2), sharp(3), sharp(5)]
    seen = []

    def moments(z, peak):
        seen.append(tuple(z.shape))
        return torch.zeros_like(peak), torch.full_like(peak, 2.0)

    monkeypatch.setattr("adaptivespec.verify.fly.log_norm_and_entropy", moments)
    assert choose("fly:window=2", rows, tree).tokens[0] == 4
    assert seen == [(2, V)]


def test_options_have_vllms_names_too():
    rule = make_rule("fly:window=6,theta=0.3")
    assert rule.options == make_rule("fly").options
    named = make_rule("fly:fly_window_size=4,fly_entropy_threshold=0.5,fly_entropy_top_k=5")
    assert named.label == "fly:window=4,theta=0.5,top_k=5"
    assert make_rule(named.label).options == named.options
    with pytest.raises(ConfigError, match="fly_window_size"):
        make_rule("fly:window=3,fly_window_size=4")
    with pytest.raises(ConfigError, match="paper"):
        make_rule("fly:gate=vllm")
    assert not rule.lossless

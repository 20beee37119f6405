"""What any margin verification must satisfy, at any temperature."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_reference import (
    FAST,
    SLOW,
    Target,
    bare_state,
    children,
    drafter,
    eligible,
    generate,
    margin_tokens,
    plain,
    random_law,
    random_logits,
    random_mask,
    random_tree,
    sampling_of,
    seeds,
    tokens_of,
)

from adaptivespec.core.law import Law, greedy_law
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from adaptivespec.verify.margin import MarginOptions, MarginRule, drop_limit, promote

V = 8
kappas = st.sampled_from([0.0, 1e-6, 0.1, 0.2, 0.5, 0.9, 0.999])


def case(seed, **kwargs):
    """A random tree, law, protected set and noise."""
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    law = random_law(rng, tree.num_nodes, V, **kwargs)
    noise = torch.tensor([rng.random() for _ in range(tree.num_nodes)])
    return tree, law, random_mask(rng, V), noise


@FAST
@given(seeds, kappas, st.booleans(), st.sampled_from([0.0, 0.4]))
def test_the_rule_is_its_definition(seed, kappa, integers, masked):
    tree, law, protected, noise = case(seed, integers=integers, masked=masked)
    tokens = promote(law, tree, drop_limit(kappa), protected, noise)
    assert tokens.tolist() == margin_tokens(law, tree, kappa, protected, noise)


@FAST
@given(seeds, st.sampled_from([1.0, 1.0000001, 2.0, 1e30]), st.booleans())
def test_i_kappa_one_never_promotes(seed, kappa, half):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    z = random_logits(rng, tree.num_nodes, V, integers=True)
    state = bare_state(sampling_of(rng), V)
    law = state.sampler.law(z.bfloat16() if half else z, tree, [], 0)
    noise = torch.rand(tree.num_nodes)
    tokens = promote(law, tree, drop_limit(kappa), state.protected, noise)
    assert torch.equal(tokens, law.target)
    rule = MarginRule(MarginOptions(kappa=kappa))
    assert verdict(tree, rule.choose(law, tree, state)) == verdict(
        tree, make_rule("strict").choose(law, tree, state)
    )


@FAST
@given(seeds)
def test_ii_at_kappa_zero_every_legal_unprotected_child_is_acceptable(seed):
    tree, law, protected, noise = case(seed, masked=0.3)
    tokens = promote(law, tree, drop_limit(0.0), protected, noise).tolist()
    token = tree.token.tolist()
    for node in range(tree.num_nodes):
        y = int(law.target[node])
        kids = children(tree, node)
        row = law.logits[node] if law.scaled is None else law.scaled[node]
        legal = [c for c in kids if row[token[c]] > -torch.inf and not protected[token[c]]]
        if legal and not protected[y] and y not in [token[c] for c in kids]:
            assert tokens[node] in [token[c] for c in legal]
        else:
            assert tokens[node] == y


@FAST
@given(seeds, kappas, kappas)
def test_iii_eligibility_grows_as_kappa_falls(seed, one, two):
    low, high = min(one, two), max(one, two)
    tree, law, protected, noise = case(seed)
    more = promote(law, tree, drop_limit(low), protected, noise) != law.target
    less = promote(law, tree, drop_limit(high), protected, noise) != law.target
    assert not (less & ~more).any()
    for node in range(tree.num_nodes):
        assert set(eligible(law, tree, node, high, protected)) <= set(
            eligible(law, tree, node, low, protected)
        )


@SLOW
@given(seeds, st.sampled_from(["margin:0", "margin:0.3", "paper", "safe"]))
def test_v_lossy_and_strict_coincide_up_to_the_first_promotion(seed, spec):
    rng = random.Random(seed)
    target, params = Target(seed), sampling_of(rng)
    protected = random_mask(rng, target.vocab)
    lossy = generate(target, make_rule(spec), params, drafter(seed), 6, protected=protected)
    length = len(tokens_of(lossy))
    strict = tokens_of(
        generate(target, make_rule("strict"), params, drafter(seed), length, protected=protected)
    )
    kinds = [kind for done in lossy for kind in done.kinds]
    first = kinds.index(Kind.PROMOTED) if Kind.PROMOTED in kinds else length
    assert tokens_of(lossy)[:first] == strict[:first]
    own = [token for done in lossy for token in done.strict]
    assert own[: first + 1] == strict[: min(first + 1, length)]


@SLOW
@given(seeds, st.booleans())
def test_strict_is_plain_decoding_whatever_the_trees(seed, integers):
    rng = random.Random(seed)
    target, params = Target(seed, integers=integers), sampling_of(rng)
    length = 24
    want = tokens_of(generate(target, make_rule("strict"), params, plain, length))
    for rule in ("strict", "margin:1"):
        for draft in (drafter(seed), drafter(seed + 1, max_nodes=4)):
            got = tokens_of(generate(target, make_rule(rule), params, draft, length))
            assert got[:length] == want


def shuffled(tree, rng):
    """The same tree with its nodes in another order that puts parents first; new -> old ids."""
    order = [0]
    while len(order) < tree.num_nodes:
        ready = [c for node in order for c in children(tree, node) if c not in order]
        order.append(rng.choice(ready))
    place = {old: new for new, old in enumerate(order)}
    parents = [-1] + [place[int(tree.parent[old])] for old in order[1:]]
    tokens = tree.token[order].tolist()
    return DraftTree.from_parents(tokens, parents), order


@FAST
@given(seeds, kappas)
def test_vi_the_order_of_siblings_does_not_matter_when_greedy(seed, kappa):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    z = random_logits(rng, tree.num_nodes, V)
    other, order = shuffled(tree, rng)
    rule, state = make_rule(f"margin:{kappa}"), bare_state(SamplingParams(), V)
    one = verdict(tree, rule.choose(greedy_law(z), tree, state))
    two = verdict(other, rule.choose(greedy_law(z[order]), other, state))
    assert (one.tokens, one.kinds, one.drops) == (two.tokens, two.kinds, two.drops)
    assert one.path == [order[node] for node in two.path]


@FAST
@given(seeds, kappas, st.integers(-1000, 1000))
def test_vii_a_constant_added_to_the_logits_changes_nothing(seed, kappa, constant):
    rng = random.Random(seed)
    tree = random_tree(rng, V)
    z = random_logits(rng, tree.num_nodes, V, integers=True, masked=0.2)
    params, protected = sampling_of(rng), random_mask(rng, V)
    if params.has_penalties and params.repetition_penalty != 1:
        params = SamplingParams()  # dividing a logit is not shift invariant
    seen = []
    for shift in (0, constant):
        state = bare_state(params, V, protected)
        law = state.sampler.law(z + shift, tree, [], 0)
        seen.append(verdict(tree, make_rule(f"margin:{kappa}").choose(law, tree, state)))
    assert seen[0] == seen[1]


def chain_margin(z, drafts, kappa, protected):
    """Margin verification of a chain, written for a chain: (tokens, kinds)."""
    tokens, kinds = [], []
    limit = float(drop_limit(kappa))
    for row, draft in zip(z, drafts, strict=False):
        y = int(row.argmax())
        if draft == y:
            kinds.append(Kind.EXACT)
        elif not protected[y] and not protected[draft] and float(row.max() - row[draft]) < limit:
            kinds.append(Kind.PROMOTED)
        else:
            return [*tokens, y], [*kinds, Kind.BONUS]
        tokens.append(draft)
    return [*tokens, int(z[len(drafts)].argmax())], [*kinds, Kind.BONUS]


@FAST
@given(seeds, kappas, st.integers(0, 7), st.booleans())
def test_ix_a_tree_that_is_a_chain_equals_the_chain_code(seed, kappa, length, integers):
    rng = random.Random(seed)
    z = random_logits(rng, length + 1, 4, integers)
    drafts = [rng.randrange(4) for _ in range(length)]
    protected = random_mask(rng, 4, 0.1)
    tree = DraftTree.chain([0, *drafts])
    state = bare_state(SamplingParams(), 4, protected)
    done = verdict(tree, make_rule(f"margin:{kappa}").choose(greedy_law(z), tree, state))
    assert (done.tokens, done.kinds) == chain_margin(z, drafts, kappa, protected)


@FAST
@given(st.lists(seeds, min_size=1, max_size=5), kappas, st.booleans())
def test_x_a_batch_of_trees_equals_the_single_runs(tree_seeds, kappa, greedy):
    trees, laws, noises = [], [], []
    for seed in tree_seeds:
        rng = random.Random(seed)
        trees.append(random_tree(rng, V))
        n = trees[-1].num_nodes
        z = random_logits(rng, n, V, integers=rng.random() < 0.5)
        noises.append(torch.tensor([rng.random() for _ in range(n)]))
        target = torch.tensor([rng.randrange(V) for _ in range(n)])
        own = greedy_law(z)
        laws.append(own if greedy else Law(z, own.peak, target, z - own.peak[:, None]))
    batch, protected = DraftTree.pad_stack(trees), random_mask(random.Random(tree_seeds[0]), V)
    size = batch.num_nodes

    def stack(rows, fill):
        out = torch.full((len(rows), size, *rows[0].shape[1:]), fill, dtype=rows[0].dtype)
        for row, values in enumerate(rows):
            out[row, : len(values)] = values
        return out

    law = Law(
        stack([one.logits for one in laws], 3.0),
        stack([one.peak for one in laws], 3.0),
        stack([one.target for one in laws], 0),
        None if greedy else stack([one.scaled for one in laws], 0.0),
    )
    noise = stack(noises, 0.5)
    limits = torch.stack([drop_limit(kappa)] * len(trees)).unsqueeze(-1)
    together = promote(law, batch, limits, protected, noise)
    for row, tree in enumerate(trees):
        single = promote(laws[row], tree, drop_limit(kappa), protected, noises[row])
        assert torch.equal(together[row, : tree.num_nodes], single)
        assert torch.equal(law.child_drop(batch)[row, : tree.num_nodes], laws[row].child_drop(tree))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_seeded_lossy_runs_repeat(temperature):
    params = SamplingParams(temperature=temperature, seed=3)
    runs = [
        tokens_of(generate(Target(1), make_rule("margin:0.05"), params, drafter(2), 30))
        for _ in range(2)
    ]
    assert runs[0] == runs[1]

"""The law of emitted tokens on small vocabularies: exact by enumeration, and by chi-square."""

import itertools
import math

import pytest
import torch
from naive_reference import bare_state

from adaptivespec.core.law import Law, sampled_law
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.verify.margin import drop_limit, promote

V = 5
LOGITS = torch.tensor([1.0, 0.6, 0.2, -0.4, -1.5])
DRAWS = 200_000
# Upper 1e-5 points of chi-square by degrees of freedom.
CHI_SQUARE = {1: 19.5, 2: 23.0, 3: 25.9, 4: 28.5, 5: 30.9, 6: 33.1, 7: 35.3, 8: 37.3, 24: 65.6}

CASES = list(
    itertools.product(
        [(1,), (1, 3), (4,), (0, 1), (1, 2, 3, 4), (0, 1, 2, 3, 4)],  # children
        [0.0, 0.3, 0.5, 0.7],  # kappa
        [0.5, 1.0, 2.0],  # temperature
        [{}, {"top_k": 3}, {"min_p": 0.3}],  # filters
        [(), (1,), (0,)],  # protected
    )
)


def star(children):
    """A root with these children."""
    return DraftTree.from_parents([0, *children], [-1] + [0] * len(children))


def law_of(temperature, filters, rows=1):
    z = LOGITS.expand(rows, V)
    return sampled_law(z, torch.zeros(rows, dtype=torch.float64), temperature, **filters)


def mask(ids):
    out = torch.zeros(V, dtype=torch.bool)
    out[list(ids)] = True
    return out


def eligible(children, kappa, protected, p):
    """From the definition, on tokens."""
    margin = (LOGITS - LOGITS.max()).exp()
    return [x for x in children if margin[x] > kappa and p[x] > 0 and x not in protected]


@pytest.mark.parametrize("part", range(4))
def test_iv_the_total_variation_is_the_promotion_probability(part):
    """Enumerate y; the promoted child comes from many draws at once, which cannot change TV."""
    for children, kappa, temperature, filters, protected in CASES[part::4]:
        tree = star(children)
        base = law_of(temperature, filters, tree.num_nodes)
        p = base.logp[0].double().exp()
        noise = torch.rand(64, tree.num_nodes, generator=torch.Generator().manual_seed(0))
        batch = DraftTree.pad_stack([tree] * 64)
        out, promoted = torch.zeros(V, dtype=torch.float64), 0.0
        for y in range(V):
            law = Law(
                base.logits.expand(64, -1, -1),
                base.peak.expand(64, -1),
                torch.full((64, tree.num_nodes), y),
                base.scaled.expand(64, -1, -1),
            )
            tokens = promote(law, batch, drop_limit(kappa), mask(protected), noise)[:, 0]
            out += p[y] * torch.bincount(tokens, minlength=V) / 64
            promoted += float(p[y] * (tokens != y).double().mean())
        allowed = eligible(children, kappa, protected, p)
        outside = [y for y in range(V) if y not in children and y not in protected]
        expected = float(p[outside].sum()) if allowed else 0.0
        variation = float((out - p).abs().sum()) / 2
        assert promoted == pytest.approx(expected, abs=1e-9)
        assert variation == pytest.approx(promoted, abs=1e-9)


def chi_square(counts, p):
    """The statistic over outcomes of positive probability; others must not occur."""
    assert (counts[p == 0] == 0).all()
    expected = p[p > 0] * counts.sum()
    return float(((counts[p > 0] - expected) ** 2 / expected).sum())


def sample(tree, temperature, filters, kappa, protected, seed):
    """The root's token in DRAWS independent runs."""
    generator = torch.Generator().manual_seed(seed)
    n = tree.num_nodes
    uniform = torch.rand(DRAWS, 1, generator=generator, dtype=torch.float64)
    root = sampled_law(LOGITS.expand(DRAWS, 1, V), uniform, temperature, **filters)
    target = torch.zeros(DRAWS, n, dtype=torch.int64)
    target[:, 0] = root.target[:, 0]
    base = law_of(temperature, filters, n)
    law = Law(
        base.logits.expand(DRAWS, -1, -1),
        base.peak.expand(DRAWS, -1),
        target,
        base.scaled.expand(DRAWS, -1, -1),
    )
    batch = DraftTree(
        tree.token.expand(DRAWS, -1),
        tree.parent.expand(DRAWS, -1),
        tree.depth.expand(DRAWS, -1),
        tree.logq.expand(DRAWS, -1),
        tree.max_depth,
    )
    noise = torch.rand(DRAWS, n, generator=generator)
    tokens = promote(law, batch, drop_limit(kappa), mask(protected), noise)[:, 0]
    return torch.bincount(tokens, minlength=V).double()


@pytest.mark.parametrize(
    ("children", "kappa", "temperature", "filters", "protected"),
    [
        ((1, 3), 0.2, 1.0, {}, ()),
        ((1, 2, 3), 0.0, 1.5, {}, ()),
        ((1, 2, 3), 0.3, 0.7, {"top_k": 4}, (0,)),
        ((1, 2), 0.1, 2.0, {"min_p": 0.2}, (2,)),
        ((0, 1), 0.5, 1.0, {"top_p": 0.9}, ()),
        ((1, 2), 1.0, 1.0, {}, ()),
    ],
)
def test_viii_emitted_tokens_have_the_law_of_the_definition(
    children, kappa, temperature, filters, protected
):
    tree = star(children)
    p = law_of(temperature, filters).logp[0].double().exp()
    allowed = eligible(children, kappa, protected, p)
    expected = torch.zeros(V, dtype=torch.float64)
    for y in range(V):
        if y in children or y in protected or not allowed:
            expected[y] += p[y]
        else:
            expected[allowed] += p[y] * p[allowed] / p[allowed].sum()
    counts = sample(tree, temperature, filters, kappa, protected, seed=1)
    freedom = int((expected > 0).sum()) - 1
    assert chi_square(counts, expected) < CHI_SQUARE[freedom]


@pytest.mark.parametrize("filters", [{}, {"top_k": 5}, {"top_p": 0.85}, {"min_p": 0.2}])
def test_strict_sampling_has_the_targets_law(filters):
    vocab = 8
    z = torch.linspace(-1.5, 1.5, vocab)[[3, 0, 6, 1, 7, 4, 2, 5]]
    uniform = torch.rand(DRAWS, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    law = sampled_law(z.expand(DRAWS, vocab), uniform, 0.8, **filters)
    p = law.logp[0].double().exp()
    counts = torch.bincount(law.target, minlength=vocab).double()
    assert chi_square(counts, p) < CHI_SQUARE[int((p > 0).sum()) - 1]


def test_two_tokens_of_a_followed_draft_have_the_joint_law():
    """One draft, then its row: (t1, t2) must be p(t1) p(t2 | t1) where the draft is followed."""
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    uniform = torch.rand(DRAWS, 2, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    law = sampled_law(rows.expand(DRAWS, 2, V), uniform, 1.0)
    first, second = law.target[:, 0], law.target[:, 1]
    followed = first == 1
    p1, p2 = law.logp[0].double().exp()
    counts = torch.bincount(second[followed], minlength=V).double()
    assert chi_square(counts, p2) < CHI_SQUARE[4]
    both = torch.bincount(first * V + second, minlength=V * V).double()
    assert chi_square(both, (p1[:, None] * p2).flatten()) < CHI_SQUARE[24]


def test_numbers_of_a_request_are_uniform_and_its_streams_unrelated():
    state = bare_state(SamplingParams(temperature=1.0, seed=0), V)
    chain = DraftTree.chain([0] * 20_000)
    main = state.sampler._uniforms(chain, 0)
    other = state.sampler.promotion_noise(20_000)
    for stream in (main, other):
        counts = torch.histc(stream.float(), 5, 0, 1).double()
        assert chi_square(counts, torch.full((5,), 0.2, dtype=torch.float64)) < CHI_SQUARE[4]
    correlation = torch.corrcoef(torch.stack([main.float(), other]))[0, 1]
    assert abs(float(correlation)) < 5 / math.sqrt(20_000)

"""The law of what the margin rule emits inside SGLang, on five tokens."""

from dataclasses import replace

import pytest
import torch

from adaptivespec.core.tree import DraftTree
from adaptivespec.integrations.sglang.ledgers import Ledgers
from adaptivespec.integrations.sglang.margin import MarginRows, TokenClasses, decide
from adaptivespec.integrations.sglang.sampling import SamplingRows, law_of
from adaptivespec.verify.margin import MarginOptions
from fakes.margin_batch import mask

CHI_SQUARE = {1: 19.5, 2: 23.0, 3: 25.9, 4: 28.5}  # upper 1e-5 points by degrees of freedom
LOGITS = torch.tensor([1.0, 0.6, 0.2, -0.4, -1.5])
FREE = TokenClasses(mask(vocab=5))


def star_law(children, temperature, filters, batch):
    """The law of ``batch`` requests at the root of a star, and the tree."""
    star = DraftTree.from_parents([0, *children], [-1] + [0] * len(children))
    arrays = (star.token, star.parent, star.depth, star.logq)
    tree = DraftTree(*(array.expand(batch, -1) for array in arrays), 1)
    columns = [
        [filters.get(name, off)] * batch
        for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))
    ]
    rows = SamplingRows.of([temperature] * batch, *columns, range(batch), 5)
    position = torch.zeros(batch, dtype=torch.int64)
    z = LOGITS.expand(*tree.token.shape, 5)
    return law_of(z, tree, rows, position), tree, rows.seed, position


def root_tokens(law, tree, seeds, position, kappa, stop_ids):
    batch = len(seeds)
    rows = MarginRows.of([MarginOptions(kappa=kappa)] * batch, [stop_ids] * batch, FREE)
    ledgers = Ledgers(batch, 1, 10, None)
    return decide(law, tree, rows, ledgers, torch.arange(batch), position, seeds).tokens[:, 0]


def eligible(children, kappa, protected, p):
    """From the definition, on tokens."""
    margin = (LOGITS - LOGITS.max()).exp()
    return [x for x in children if margin[x] > kappa and p[x] > 0 and x not in protected]


LAWS = [
    (children, kappa, temperature, filters, protected)
    for children in [(1,), (1, 3), (0, 1), (1, 2, 3, 4)]
    for kappa in (0.0, 0.5, 1.0)
    for temperature, filters in [(0.5, {}), (2.0, {"top_k": 3}), (1.0, {"min_p": 0.3})]
    for protected in [(), (1,), (0,)]
]


def test_the_total_variation_is_the_promotion_probability():
    """Enumerate the target's token; which child is promoted cannot change it."""
    for children, kappa, temperature, filters, protected in LAWS:
        law, tree, seeds, position = star_law(children, temperature, filters, 64)
        p = law.logp[0, 0].double().exp()
        out, promoted = torch.zeros(5, dtype=torch.float64), 0.0
        for y in range(5):
            given = replace(law, target=torch.full_like(law.target, y))
            tokens = root_tokens(given, tree, seeds, position, kappa, protected)
            out += p[y] * torch.bincount(tokens, minlength=5) / 64
            promoted += float(p[y] * (tokens != y).double().mean())
        allowed = eligible(children, kappa, protected, p)
        outside = [y for y in range(5) if y not in children and y not in protected]
        assert promoted == pytest.approx(float(p[outside].sum()) if allowed else 0.0, abs=1e-9)
        assert float((out - p).abs().sum()) / 2 == pytest.approx(promoted, abs=1e-9)


@pytest.mark.parametrize(
    ("children", "kappa", "temperature", "filters", "protected"),
    [
        ((1, 3), 0.2, 1.0, {}, ()),
        ((1, 2, 3), 0.0, 1.5, {}, ()),
        ((1, 2, 3), 0.3, 0.7, {"top_k": 4}, (0,)),
        ((1, 2), 0.1, 2.0, {"min_p": 0.2}, (2,)),
        ((0, 1), 0.5, 1.0, {"top_p": 0.9}, ()),
        ((1, 2), 1.0, 1.0, {}, ()),
        ((1, 2), 1.5, 0.5, {"top_k": 3}, ()),
    ],
)
def test_emitted_tokens_have_the_law_of_the_definition(
    children, kappa, temperature, filters, protected
):
    law, *rest = star_law(children, temperature, filters, 50_000)
    p = law.logp[0, 0].double().exp()
    allowed = eligible(children, kappa, protected, p)
    expected = torch.zeros(5, dtype=torch.float64)
    for y in range(5):
        if y in children or y in protected or not allowed:
            expected[y] += p[y]
        else:
            expected[allowed] += p[y] * p[allowed] / p[allowed].sum()
    counts = torch.bincount(root_tokens(law, *rest, kappa, protected), minlength=5).double()
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    wanted = expected[possible] * counts.sum()
    statistic = float(((counts[possible] - wanted) ** 2 / wanted).sum())
    assert statistic < CHI_SQUARE[int(possible.sum()) - 1]

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import greedy_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, verdict
from adaptivespec.verify import make_rule
from adaptivespec.verify.threshold import accept_first
from fakes.laws import (
    V,
    choose,
    drawn,
    mask,
    probabilities,
    random_case,
    rows,
    stacked,
    star,
    state,
)
from property.naive_reference import FAST, children, seeds

TWO = star(1, 2)
LAW = probabilities(TWO, 0.5, 0.2, 0.3)  # the children have 0.2 and 0.3, y = 0 is none


def first(y, u, single=1.0, acc=1.0, tree=TWO, z=LAW, protected=(), **filters):
    """The root's token when its uniform number is u."""
    noise = torch.full((tree.num_nodes,), u)
    law = drawn(z, y, **filters)
    return int(accept_first(law, tree, single, acc, mask(protected), noise)[0])


@pytest.mark.parametrize(
    ("y", "u", "token"),
    [
        # acc = 0.8: the first child is accepted up to a coin of 0.25, the second up to 0.625
        (0, 0.1, 2),  # coin 0.5 + 0.1 * 0.5 = 0.55
        (0, 0.24, 2),  # 0.62
        (0, 0.26, 0),  # 0.63
        (2, 0.1, 1),  # 0.2 + 0.1 * 0.3 = 0.23: the earlier sibling, although y was drafted
        (2, 0.16, 1),  # 0.248
        (2, 0.18, 2),  # 0.254
        (1, 0.0, 1),
        (1, 0.99, 1),  # 0.2 * u is below 0.2 already
    ],
)
def test_the_coin_by_hand(y, u, token):
    assert first(y, u, acc=0.8) == token
    assert first(y, u) == y  # at 1 it only ever finds y


@pytest.mark.parametrize(
    ("single", "y", "token"),
    [(0.31, 0, 0), (0.29, 0, 2), (0.19, 0, 1), (0.29, 1, 1), (0.19, 2, 1)],
)
def test_a_probability_that_is_large_enough_alone(single, y, token):
    assert first(y, 0.999, single=single) == token


def test_the_single_threshold_itself_is_enough():
    tree = star(1)
    half = rows(tree, 0.0, 0.0, fill=-200.0)
    assert first(0, 0.999, single=0.5, tree=tree, z=half) == 1
    assert first(0, 0.999, single=0.5000001, tree=tree, z=half) == 0


def test_siblings_are_tried_in_draft_order():
    turned = star(2, 1)
    assert first(0, 0.999, single=0.15, tree=turned) == 2
    assert first(0, 0.999, single=0.15) == 1


def test_a_promoted_token_is_one_that_a_lowered_threshold_changed():
    rule = make_rule("threshold:0.29")
    promoted = verdict(TWO, rule.choose(drawn(LAW, 0), TWO, state()))
    assert promoted.kinds == [Kind.PROMOTED, Kind.BONUS]
    assert (promoted.tokens[0], promoted.strict[0]) == (2, 0)
    exact = verdict(TWO, rule.choose(drawn(LAW, 2), TWO, state()))
    assert exact.kinds == [Kind.EXACT, Kind.BONUS]


def test_a_probability_that_rounds_to_one_accepts_nothing_at_one():
    tree = star(0)
    z = rows(tree, 0.0, -30.0, fill=-40.0)
    assert float(z[0].softmax(-1)[0]) == 1.0
    for u in (0.0, 0.5, 1 - 2.0**-24):
        assert first(1, u, tree=tree, z=z) == 1
    assert first(1, 0.5, single=1 - 1e-7, tree=tree, z=z) == 0
    assert choose("threshold", drawn(z, 1), tree) == [1, 1]


@pytest.mark.parametrize("u", [0.0, 1e-7, 0.5, 1 - 2.0**-24])
@pytest.mark.parametrize("acc", [1e-3, 0.5, 0.999999])
def test_a_drafted_y_is_followed_unless_an_earlier_sibling_is(u, acc):
    assert first(1, u, acc=acc) == 1
    assert first(2, u, acc=acc) in (1, 2)
    tiny = probabilities(TWO, 0.0, 1.0, 1e-9)  # the coin cannot lie between the two sums
    assert first(2, u, acc=acc, z=tiny) in (1, 2)
    assert first(2, u, z=tiny) == 2


@pytest.mark.parametrize(
    ("y", "protected", "token"),
    [
        (0, (), 1),
        (0, (1,), 2),
        (0, (1, 2), 0),
        (0, (0,), 0),  # the target's own token is not overridden
        (2, (2,), 2),
        (2, (1,), 2),
        (1, (1,), 1),
    ],
)
def test_protected_tokens(y, protected, token):
    assert first(y, 0.0, single=0.1, acc=0.1, protected=protected) == token


def test_an_excluded_token_is_never_accepted():
    # Token 2 is cut off by top-k; the coin that 1 leaves untaken, being protected, is not its.
    tree, z = star(1, 2), probabilities(star(1, 2), 0.5, 0.4, 0.1)
    assert first(0, 0.0, single=0.01, acc=0.01, tree=tree, z=z, protected=(1,)) == 2
    assert first(0, 0.0, single=0.01, acc=0.01, tree=tree, z=z, protected=(1,), top_k=2) == 0


def test_the_law_is_the_processed_one():
    # (16, 4, 1) / 21: 4 / 21 = 0.19, at T = 2 it is 2 / 7 = 0.286
    tree, z = star(1), probabilities(star(1), 16 / 21, 4 / 21, 1 / 21)
    assert first(0, 0.999, single=0.25, tree=tree, z=z) == 0
    assert first(0, 0.999, single=0.25, tree=tree, z=z, temperature=2.0) == 1


def definition(p, tokens, single, acc):
    """The law of the root's token when SGLang's loop draws a coin of its own, by enumeration."""
    out, tried, done = torch.zeros(V, dtype=torch.float64), 0.0, 0.0
    for token in tokens:
        tried += float(p[token])
        # accepted for coins up to tried / acc that no sibling before took
        reach = 1.0 if p[token] >= single else min(1.0, tried / acc)
        out[token] += max(0.0, reach - done)
        done = max(done, reach)
    rest = p.clone()
    rest[list(tokens)] = 0.0
    return out + (1 - done) * rest / rest.sum().clamp_min(1e-300)


@pytest.mark.parametrize("tokens", [(1, 2), (2, 1), (0, 3), (3, 2, 1, 0), (1,)])
@pytest.mark.parametrize("single", [1.0, 0.25, 0.15])
@pytest.mark.parametrize("acc", [1.0, 0.9, 0.6, 0.2])
def test_the_emitted_token_has_the_law_of_the_definition(tokens, single, acc):
    """Exact in y, and in U up to the width of a grid."""
    tree, grid = star(*tokens), 400
    z = probabilities(tree, 0.35, 0.2, 0.3, 0.1, 0.05)
    p = torch.tensor([0.35, 0.2, 0.3, 0.1, 0.05, 0, 0, 0], dtype=torch.float64)
    noise = (torch.arange(grid) + 0.5) / grid
    batch = DraftTree.pad_stack([tree] * grid)
    out = torch.zeros(V, dtype=torch.float64)
    for y in range(5):
        one = drawn(z, y)
        law = replace(
            one,
            logits=one.logits.expand(grid, -1, -1),
            peak=one.peak.expand(grid, -1),
            target=one.target.expand(grid, -1),
            scaled=one.scaled.expand(grid, -1, -1),
        )
        uniform = noise.unsqueeze(-1).expand(grid, tree.num_nodes)
        chosen = accept_first(law, batch, single, acc, mask([]), uniform)[:, 0]
        out += p[y] * torch.bincount(chosen, minlength=V) / grid
    assert out.tolist() == pytest.approx(definition(p, tokens, single, acc).tolist(), abs=5e-3)


def numbers(seed, tree):
    rng = random.Random(seed + 1)
    extremes = [0.0, 1 - 2.0**-24]
    return torch.tensor(
        [rng.choice([*extremes, rng.random()]) for _ in range(tree.num_nodes)], dtype=torch.float32
    )


@FAST
@given(seeds, st.booleans())
def test_one_and_one_is_strict_whatever_the_numbers(seed, integers):
    tree, law, protected = random_case(seed, greedy=False, integers=integers)
    tokens = accept_first(law, tree, 1.0, 1.0, mask(protected), numbers(seed, tree))
    assert torch.equal(tokens, law.target)
    assert choose("threshold", law, tree, protected) == law.target.tolist()


THRESHOLDS = st.sampled_from([0.05, 0.3, 0.7, 0.95, 1.0])


@FAST
@given(seeds, THRESHOLDS, THRESHOLDS, THRESHOLDS, THRESHOLDS)
def test_lower_thresholds_accept_an_earlier_sibling_or_the_same(seed, s1, s2, a1, a2):
    tree, law, protected = random_case(seed, greedy=False)
    noise, token = numbers(seed, tree), tree.token.tolist()

    def followed(single, acc):
        chosen = accept_first(law, tree, single, acc, mask(protected), noise).tolist()
        kids = [children(tree, node) for node in range(tree.num_nodes)]
        own = [[c for c in kids[v] if token[c] == chosen[v]] for v in range(tree.num_nodes)]
        return [found[0] if found else V * V for found in own]

    low, high = followed(min(s1, s2), min(a1, a2)), followed(max(s1, s2), max(a1, a2))
    assert all(a <= b for a, b in zip(low, high, strict=True))


@FAST
@given(seeds, THRESHOLDS, THRESHOLDS)
def test_what_is_promoted_is_possible_and_unprotected(seed, single, acc):
    tree, law, protected = random_case(seed, greedy=False, masked=0.3)
    chosen = accept_first(law, tree, single, acc, mask(protected), numbers(seed, tree))
    for node in (chosen != law.target).nonzero().flatten().tolist():
        assert int(chosen[node]) in tree.token[children(tree, node)]
        assert law.scaled[node, chosen[node]] > -torch.inf
        assert int(chosen[node]) not in protected
        assert int(law.target[node]) not in protected


@FAST
@given(st.lists(seeds, min_size=1, max_size=4), THRESHOLDS, THRESHOLDS)
def test_a_batch_equals_the_single_runs(tree_seeds, single, acc):
    cases = [random_case(seed, greedy=False) for seed in tree_seeds]
    batch, law = stacked([case[0] for case in cases], [case[1] for case in cases])
    noise = torch.full(batch.token.shape, 0.5)
    for row, (tree, _, _) in enumerate(cases):
        noise[row, : tree.num_nodes] = numbers(row, tree)
    protected = mask(cases[0][2])
    together = accept_first(law, batch, single, acc, protected, noise)
    for row, (tree, one, _) in enumerate(cases):
        alone = accept_first(one, tree, single, acc, protected, numbers(row, tree))
        assert torch.equal(together[row, : tree.num_nodes], alone)


@FAST
@given(seeds)
def test_temperature_zero_is_strict_and_draws_nothing(seed):
    tree, law, protected = random_case(seed, greedy=True, integers=True)
    one = state(protected)
    choice = make_rule("threshold:0.01,0.01").choose(law, tree, one)
    assert torch.equal(choice.tokens, law.target)
    assert one.sampler._promotions is None


def test_numbers_come_from_the_promotion_stream_and_only_where_they_are_needed():
    for spec, used in (("threshold", False), ("threshold:0.5,0.5", True)):
        one = state()
        make_rule(spec).choose(drawn(LAW, 0), TWO, one)
        assert (one.sampler._promotions is not None) is used
    runs = {tuple(choose("threshold:1,0.6", drawn(LAW, 0), TWO)) for _ in range(3)}
    assert len(runs) == 1  # a seeded request repeats


def test_a_greedy_law_has_no_coin():
    with pytest.raises(ValueError, match="temperature > 0"):
        accept_first(greedy_law(LAW), TWO, 0.5, 0.5, mask([]), torch.zeros(3))


@pytest.mark.parametrize(
    ("spec", "lossless"),
    [
        ("threshold", True),
        ("threshold:1,1", True),
        ("threshold:0.99", False),
        ("threshold:threshold_acc=0.99", False),
    ],
)
def test_lossless(spec, lossless):
    assert make_rule(spec).lossless is lossless


@pytest.mark.parametrize("value", [0, -0.1, 1.01])
@pytest.mark.parametrize("name", ["threshold_single", "threshold_acc"])
def test_options_lie_above_zero_and_up_to_one(name, value):
    with pytest.raises(ConfigError, match=name):
        make_rule("threshold", {name: value})

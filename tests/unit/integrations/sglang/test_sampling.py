import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.law import draw, greedy_law, sampled_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.integrations.sglang import sampling
from adaptivespec.integrations.sglang.sampling import (
    SamplingRows,
    law_of,
    promotion_uniforms,
    seed_of,
    target_uniforms,
)

WAYS = (
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.3, "top_k": 4},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 2.0, "min_p": 0.3},
    {"temperature": 0.9, "top_k": 9, "top_p": 0.7},
    {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "top_p": 0.5, "min_p": 0.5},
    {"temperature": 1e-40},
    {"temperature": 1.0, "top_k": 1 << 30},
    {"temperature": 1.0, "top_k": -1},
)
ways = st.lists(st.sampled_from(WAYS), min_size=1, max_size=6)
DRAWS = 200_000
# Upper 1e-5 points of chi-square by degrees of freedom.
CHI_SQUARE = {4: 28.5, 9: 39.3, 63: 118.5, 99: 167.0}


def rows_of(ways, vocab, seeds=None):
    columns = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    values = [[way.get(name, off) for way in ways] for name, off in columns.items()]
    return SamplingRows.of(*values, seeds or range(len(ways)), vocab)


def trees(batch, size=4, depth=None):
    """Chains, or trees of these depths that nothing is read of but the depth."""
    one = torch.arange(size) if depth is None else torch.tensor(depth)
    zeros = torch.zeros(batch, size, dtype=torch.int64)
    return DraftTree(zeros, zeros, one.expand(batch, size), zeros.float(), max_depth=size)


def logits_of(seed, batch, vocab, size=4):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(batch, size, vocab, generator=generator) * 2
    return z.mul(2).round().div(2) if seed % 3 == 0 else z  # with ties, now and then


def is_greedy(way):
    return way["temperature"] == 0 or way.get("top_k") == 1


def chi_square(counts, p):
    expected = p * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@settings(deadline=None, derandomize=True, max_examples=80)
@given(ways, st.integers(0, 2**32), st.sampled_from([5, 130, 400]))
def test_every_request_has_the_law_of_its_own_parameters(ways, seed, vocab):
    """The definition is that of one request at a time, in ``core.law``."""
    z, tree = logits_of(seed, len(ways), vocab), trees(len(ways))
    position = torch.arange(len(ways)) * 7
    rows = rows_of(ways, vocab)
    law = law_of(z, tree, rows, position)
    uniform = target_uniforms(rows.seed, position.unsqueeze(-1) + tree.depth)
    for row, way in enumerate(ways):
        if is_greedy(way):
            alone = greedy_law(z[row])
            assert torch.equal(law.target_drop[row], torch.zeros(4))
        else:
            off = way.get("top_k", 0) in (-1, 1 << 30)
            alone = sampled_law(z[row], uniform[row], **{**way, **({"top_k": 0} if off else {})})
            assert torch.equal(law.scaled[row], alone.scaled)
        assert torch.equal(law.target[row], alone.target)
        assert torch.equal(law.peak[row], alone.peak)
    mixed = len({is_greedy(way) for way in ways}) == 2
    assert (law.greedy is not None) == mixed
    if mixed:
        assert law.greedy.tolist() == [[is_greedy(way)] for way in ways]
    if all(is_greedy(way) for way in ways):
        assert law.scaled is None


@settings(deadline=None, derandomize=True, max_examples=40)
@given(ways, st.randoms(use_true_random=False), st.sampled_from([7, 200]))
def test_a_request_draws_the_same_tokens_in_any_company(ways, rng, vocab):
    seeds = [rng.randrange(-(2**70), 2**70) for _ in ways]
    z, tree = logits_of(rng.randrange(100), len(ways), vocab), trees(len(ways))
    position = torch.tensor([rng.randrange(10**5) for _ in ways])
    together = law_of(z, tree, rows_of(ways, vocab, seeds), position).target
    order = rng.sample(range(len(ways)), len(ways))
    shuffled = rows_of([ways[i] for i in order], vocab, [seeds[i] for i in order])
    assert torch.equal(law_of(z[order], tree, shuffled, position[order]).target, together[order])
    for row, way in enumerate(ways):
        one = slice(row, row + 1)
        rows = rows_of([way], vocab, seeds[one])
        alone = law_of(z[one], trees(1), rows, position[one])
        assert torch.equal(alone.target[0], together[row])


def test_a_token_does_not_depend_on_the_tree_it_is_drawn_in():
    """Position 12 as the root of one step, at depth 2 of another, and on two branches at once."""
    z = logits_of(1, 1, 100, size=1).expand(1, 4, 100)
    rows = rows_of([{"temperature": 1.5}], 100, [5])
    for start, depth in ((12, [0, 1, 2, 3]), (10, [0, 1, 2, 2]), (11, [0, 1, 1, 1])):
        law = law_of(z, trees(1, depth=depth), rows, torch.tensor([start]))
        expected = [int(law.target[0, node]) for node in range(4) if start + depth[node] == 12]
        assert set(expected) == {int(law_of(z, trees(1), rows, torch.tensor([12])).target[0, 0])}


def test_a_block_wise_sort_changes_nothing(monkeypatch):
    ways = [{"temperature": 1.0, "top_p": p} for p in (0.3, 0.6, 0.9, 0.95, 1.0)]
    z = logits_of(2, 5, 300)
    whole = law_of(z, trees(5), rows_of(ways, 300), torch.zeros(5, dtype=torch.int64))
    monkeypatch.setattr(sampling, "_SORT_BLOCK", 2 * 4 * 300)
    parts = law_of(z, trees(5), rows_of(ways, 300), torch.zeros(5, dtype=torch.int64))
    assert torch.equal(parts.scaled, whole.scaled)


@pytest.mark.parametrize("vocab", [5, 200])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_of_no_numbers_gives_a_token_and_leaves_the_others_alone(vocab, bad):
    ways = [{"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 0.0}]
    z = logits_of(1, 3, vocab)
    position = torch.zeros(3, dtype=torch.int64)
    before = law_of(z, trees(3), rows_of(ways, vocab), position).target
    z[:, 2, 3] = bad
    after = law_of(z, trees(3), rows_of(ways, vocab), position).target
    assert ((after >= 0) & (after < vocab)).all()
    kept = [0, 1, 3]
    assert torch.equal(after[:, kept], before[:, kept])


def test_top_p_of_a_neighbour_excludes_nothing():
    """The mass of these rows rounds to 1 before their last token."""
    steep = torch.linspace(3, 9, 40)[:, None, None] * torch.tensor([0.0, -1.0, -4.0, -9.0])
    z = torch.cat([steep, steep[:1]])
    ways = [{"temperature": 1.0, "top_k": 3}] * 40 + [
        {"temperature": 1.0, "top_k": 3, "top_p": 0.5}
    ]
    law = law_of(z, trees(41, 1), rows_of(ways, 4), torch.zeros(41, dtype=torch.int64))
    assert torch.isfinite(law.scaled).sum(-1)[:, 0].tolist() == [3] * 40 + [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("chosen", [(0, 2), (1, 3), (0, 1, 4, 7)])
def test_an_argmax_at_hand_gives_the_same_law(chosen, dtype):
    z, size = logits_of(3, len(chosen), 60).to(dtype), len(chosen)
    rows, position = rows_of([WAYS[i] for i in chosen], 60), torch.zeros(size, dtype=torch.int64)
    law = law_of(z, trees(size), rows, position)
    other = law_of(z, trees(size), rows, position, z.argmax(-1))
    assert torch.equal(other.target, law.target)
    assert torch.equal(other.peak, law.peak)
    assert other.peak.dtype == torch.float32


def test_logits_are_not_changed():
    z = logits_of(4, len(WAYS), 50)
    before = z.clone()
    law_of(z, trees(len(WAYS)), rows_of(WAYS, 50), torch.zeros(len(WAYS), dtype=torch.int64))
    assert torch.equal(z, before)


def test_drawn_tokens_have_the_law():
    """Over positions of one seed and over seeds at one position."""
    z = torch.tensor([1.0, 0.6, 0.2, -0.4, -1.5])
    p = z.double().softmax(-1)
    weight = p.float().expand(DRAWS, 5)
    place = torch.arange(DRAWS)
    one, zeros = torch.zeros(1, dtype=torch.int64), torch.zeros(DRAWS, 1, dtype=torch.int64)
    for uniform in (
        target_uniforms(one, place.unsqueeze(0))[0],
        target_uniforms(place, zeros)[:, 0],
    ):
        counts = torch.bincount(draw(weight, uniform), minlength=5).double()
        assert chi_square(counts, p) < CHI_SQUARE[4]


def streams():
    """Named sequences of numbers whose arguments differ in one place only."""
    index = torch.arange(DRAWS)
    one, row = torch.tensor([3]), torch.zeros(DRAWS, 1, dtype=torch.int64)
    line = torch.zeros(1, DRAWS, dtype=torch.int64)
    return {
        "positions": target_uniforms(one, index[None])[0],
        "seeds": target_uniforms(index, row)[:, 0],
        "large seeds": target_uniforms(index * 2**40 - 2**60, row)[:, 0],
        "promotions by position": promotion_uniforms(one, index[None], line + 7)[0],
        "promotions by seed": promotion_uniforms(index, row, row)[:, 0],
        "promotions by token": promotion_uniforms(one, line + 5, index[None])[0],
    }


@pytest.mark.parametrize("name", streams())
def test_numbers_are_uniform(name):
    numbers = streams()[name].double()
    assert ((numbers >= 0) & (numbers < 1)).all()
    tenths, inside = (numbers * 10).long(), (numbers * 10).frac()
    uniform = torch.full((10,), 0.1, dtype=torch.float64)
    assert chi_square(torch.bincount(tenths, minlength=10).double(), uniform) < CHI_SQUARE[9]
    finer = torch.bincount((inside * 10).long(), minlength=10).double()
    assert chi_square(finer, uniform) < CHI_SQUARE[9]


@pytest.mark.parametrize("lag", [1, 2, 256])
@pytest.mark.parametrize("name", streams())
def test_neighbours_are_independent(name, lag):
    numbers = streams()[name].double()
    cell = (numbers[:-lag] * 8).long() * 8 + (numbers[lag:] * 8).long()
    counts = torch.bincount(cell, minlength=64).double()
    assert chi_square(counts, torch.full((64,), 1 / 64, dtype=torch.float64)) < CHI_SQUARE[63]


def test_streams_are_independent_of_each_other():
    named = list(streams().values())
    for i, first in enumerate(named):
        for second in named[:i]:
            cell = (first.double() * 10).long() * 10 + (second.double() * 10).long()
            counts = torch.bincount(cell, minlength=100).double()
            uniform = torch.full((100,), 0.01, dtype=torch.float64)
            assert chi_square(counts, uniform) < CHI_SQUARE[99]


def test_numbers_of_all_seeds_positions_and_tokens_differ():
    """53 bits: of 10^6 numbers a pair is equal by chance with probability 6e-5."""
    place = torch.arange(1000).expand(1000, 1000)
    assert target_uniforms(torch.arange(1000) - 500, place).unique().numel() == 10**6


def test_the_number_of_a_seed_and_position_is_splitmix64s():
    """By hand, in Python integers; pinned, because replays of a seed rely on it."""

    def mixed(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    for seed in (0, 1, -1, 2**63 - 1, -(2**63)):
        for place in (0, 1, 17, 10**6):
            state = seed * 0xD1B54A32D192ED03 + place * 0x9E3779B97F4A7C15
            got = target_uniforms(torch.tensor([seed]), torch.tensor([[place]])).item()
            assert got == (mixed(state % 2**64) >> 11) / 2**53
            state += 9 * 0xDA942042E4DD58B5 + 0x2545F4914F6CDD1D
            args = torch.tensor([seed]), torch.tensor([[place]]), torch.tensor([[9]])
            assert promotion_uniforms(*args).item() == (mixed(state % 2**64) >> 40) / 2**24


def test_seeds_are_taken_modulo_2_to_the_64():
    seeds = [-1, 2**64 - 1, 2**63, 0, 2**64, 5]
    rows = rows_of([WAYS[1]] * len(seeds), 10, seeds)
    assert rows.seed.tolist() == [-1, -1, -(2**63), 0, 0, 5]


def test_a_request_without_a_seed_has_one_of_its_id():
    assert seed_of("a", 0) == -1882998351095209539  # pinned: the same in every process
    assert len({seed_of(rid, server) for rid in ("a", "b", "c") for server in (0, 1)}) == 6
    assert all(-(2**63) <= seed_of(str(i), 7) < 2**63 for i in range(1000))
    assert {seed_of(str(i), 7) < 0 for i in range(100)} == {True, False}


def test_rows_know_on_the_host_what_is_on():
    rows = rows_of([WAYS[0], WAYS[2]], 10)
    assert not rows.any_sampled
    assert rows.any_greedy
    assert not rows.any_top_p
    assert not rows.any_min_p
    assert rows.max_top_k == 0
    rows = rows_of([WAYS[0], WAYS[4], WAYS[7]], 100)
    assert rows.any_sampled
    assert rows.any_top_p
    assert rows.any_min_p
    assert rows.max_top_k == 5
    assert rows.unsorted.tolist() == [1]
    assert rows_of([{"temperature": 0.0, "top_p": 0.5, "min_p": 0.5}], 10).unsorted.numel() == 0

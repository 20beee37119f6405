import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import greedy_law
from adaptivespec.core.tree import DraftTree
from adaptivespec.verify import make_rule
from adaptivespec.verify.coin import toss
from fakes.laws import batch_equals_singles, choose, rows, star
from property.naive_reference import FAST, seeds

ONE = star(1)


def test_it_is_lossless_at_rate_0_alone():
    assert make_rule("coin:0").lossless
    assert not make_rule("coin:0.01").lossless
    with pytest.raises(ConfigError):
        make_rule("coin:1.1")


def test_the_margin_does_not_count():
    """At rate 1 any child is promoted; the drafter's likeliest one, not the target's second."""
    tree = DraftTree.from_parents([7, 1, 2], [-1, 0, 0], [0.0, -2.0, -0.5])
    assert choose("coin:1", greedy_law(rows(tree, 9.0, 8.9, -50.0)), tree)[0] == 2


def test_the_targets_own_token_is_followed_where_it_was_drafted():
    tree = star(1, 0)
    assert choose("coin:1", greedy_law(rows(tree, 9.0, 8.0)), tree)[0] == 0


@pytest.mark.parametrize("protected", [(0,), (1,)])
def test_protected_tokens_are_neither_promoted_nor_overridden(protected):
    assert choose("coin:1", greedy_law(rows(ONE, 9.0, 8.0)), ONE, protected)[0] == 0


@given(st.floats(0.05, 0.95), st.integers(0, 2**20))
@FAST
def test_the_coin_falls_at_its_rate_and_shows_no_pattern(rate, begin):
    position = torch.arange(begin, begin + 200)[:, None]
    heads = (toss(position, torch.arange(200)[None]) < rate).float()
    deviation = 6 * (rate * (1 - rate) / heads.numel()) ** 0.5
    assert abs(float(heads.mean()) - rate) < deviation
    for shifted in (heads.roll(1, 0), heads.roll(1, 1)):
        both = float((heads * shifted).mean())
        assert abs(both - rate**2) < 2 * deviation


@given(st.lists(seeds, min_size=2, max_size=4), st.booleans())
@FAST
def test_a_batch_equals_its_trees_one_by_one(tree_seeds, cold):
    assert batch_equals_singles("coin:0.5", tree_seeds, cold)

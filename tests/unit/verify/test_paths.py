import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.tree import DraftTree
from adaptivespec.verify.paths import (
    exact,
    family,
    follow_best,
    follow_first,
    follow_path,
    kth_largest,
    longest_path,
)
from fakes.laws import V, mask, star
from property.naive_reference import FAST, path_to, random_tree, seeds

INF = math.inf
#     0
#   1   2
#  3 4   5
#        6
TREE = DraftTree.from_parents([7, 1, 2, 3, 4, 3, 6], [-1, 0, 0, 1, 1, 2, 5])
TARGET = torch.tensor([2, 4, 7, 0, 0, 0, 0])


def test_family_and_exact():
    assert family(TREE).nonzero().tolist() == [[0, 1], [0, 2], [1, 3], [1, 4], [2, 5], [5, 6]]
    assert exact(TARGET, TREE)[1:].tolist() == [False, True, False, True, False, False]


def test_the_least_score_is_followed_the_first_on_ties_and_infinity_never():
    score = torch.tensor([0.0, 0.5, 0.5, 2.0, 1.0, INF, -INF])
    assert follow_best(TARGET, TREE, score, mask([])).tolist() == [1, 4, 7, 0, 0, 6, 0]
    assert follow_best(TARGET, TREE, score, mask([2])).tolist() == [2, 4, 7, 0, 0, 6, 0]
    accepted = torch.tensor([True, False, True, True, True, False, False])
    assert follow_first(TARGET, TREE, accepted, mask([])).tolist() == [2, 3, 7, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("accepted", "gain", "leaf"),
    [
        ([], [], 0),
        ([2, 5, 6], [], 6),
        ([5, 6], [], 0),  # their ancestor is missing
        ([1, 2, 3, 4, 5], [], 3),  # all equal: the first
        ([1, 2, 3, 4, 5], [0, -3, -1, -1, -0.5, -1, 0], 5),  # -4, -3.5 and -2
        ([1, 2, 3, 4, 5], [0, -1, -3, -1, -0.5, 0, 0], 4),
        ([1, 2], [0, -2, -1, 0, 0, 0, 0], 2),
    ],
)
def test_longest_path(accepted, gain, leaf):
    seen = torch.zeros(7, dtype=torch.bool)
    seen[accepted] = True
    assert int(longest_path(seen, torch.tensor(gain or [0.0] * 7).float(), TREE)) == leaf


def test_only_the_way_to_the_leaf_is_rewritten():
    assert follow_path(TARGET, TREE, torch.tensor(6)).tolist() == [2, 4, 3, 0, 0, 6, 0]
    assert follow_path(TARGET, TREE, torch.tensor(3)).tolist() == [1, 3, 7, 0, 0, 0, 0]
    assert follow_path(TARGET, TREE, torch.tensor(0)).tolist() == TARGET.tolist()
    assert TARGET.tolist() == [2, 4, 7, 0, 0, 0, 0]


def test_a_root_alone():
    root, target = DraftTree.root_only(3), torch.tensor([5])
    leaf = longest_path(torch.tensor([False]), torch.zeros(1), root)
    assert follow_path(target, root, leaf).tolist() == [5]


def test_padding_is_never_reached():
    batch = DraftTree.pad_stack([TREE, star(1)])
    accepted, gain = torch.ones(2, 7, dtype=torch.bool), torch.zeros(2, 7)
    assert longest_path(accepted, gain, batch).tolist() == [6, 1]
    gain[1, 2:] = 1.0
    assert longest_path(torch.arange(7).expand(2, 7) > 1, gain, batch).tolist() == [6, 0]
    target = torch.stack([TARGET, TARGET])
    tokens = follow_path(target, batch, torch.tensor([6, 1]))
    assert tokens.tolist() == [[2, 4, 3, 0, 0, 6, 0], [1, 4, 7, 0, 0, 0, 0]]


@FAST
@given(seeds)
def test_the_longest_path_is_the_best_of_all_paths(seed):
    rng = random.Random(seed)
    tree = random_tree(rng, V, 20)
    size = tree.num_nodes
    accepted = [rng.random() < 0.7 for _ in range(size)]
    gain = [0.0] + [-float(rng.randrange(4)) for _ in range(size - 1)]  # exact, with many ties
    paths = {node: path_to(tree, node) for node in range(size)}
    legal = [node for node in paths if all(accepted[i] for i in paths[node][1:])]
    best = max(legal, key=lambda node: (len(paths[node]), sum(gain[i] for i in paths[node]), -node))
    assert int(longest_path(torch.tensor(accepted), torch.tensor(gain), tree)) == best


@FAST
@given(st.integers(1, 700), st.integers(1, 20), st.booleans(), seeds)
def test_kth_largest_is_an_entry_of_the_sorted_row(vocab, k, integers, seed):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(3, 2, vocab, generator=generator)
    z = (z * 2).round() if integers else z
    z[0, 0, : vocab // 2] = -INF
    ordered = z.sort(-1, descending=True).values
    assert torch.equal(kth_largest(z, k), ordered[..., min(k, vocab) - 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_kth_largest_keeps_the_type(dtype):
    z = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert kth_largest(z, 3).dtype == dtype
    assert torch.equal(kth_largest(z, 3), z.topk(3).values[:, -1])

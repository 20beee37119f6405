import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import follow
from adaptivespec.integrations.sglang.trees import tree_of

V = 50


def drafted(rng, topk, num_steps, size):
    """Tokens, parents and depths of one tree, selected as SGLang selects: by cumulative score.

    ``num_steps`` levels of ``topk`` survivors branch into ``topk`` children each; of all children
    the ``size - 1`` with the largest products of probabilities are kept, in the order drafted.
    """
    frontier, pool = [((), 1.0)], []
    for _ in range(num_steps):
        level = []
        for path, score in frontier:
            for token in rng.sample(range(V), topk):
                level.append(((*path, token), score * rng.uniform(0.05, 0.95)))
        pool += level
        frontier = sorted(level, key=lambda entry: -entry[1])[:topk]
    best = sorted(pool, key=lambda entry: -entry[1])[: size - 1]
    paths = [(), *(path for path, _ in pool if path in {kept for kept, _ in best})]
    tokens = [rng.randrange(V), *(path[-1] for path in paths[1:])]
    parents = [-1, *(paths.index(path[:-1]) for path in paths[1:])]
    return tokens, parents, [len(path) for path in paths]


def links(parents):
    """(next_token, next_sibling) of one tree."""
    child, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        if parents[node] >= 0:
            child[parents[node]], sibling[node] = node, child[parents[node]]
    return child, sibling


def arrays(trees, seq_lens):
    """The arguments of ``tree_of`` but the last two, from (tokens, parents, depths)."""
    linked = [links(parents) for _, parents, _ in trees]
    positions = [
        start + depth
        for (_, _, depths), start in zip(trees, seq_lens, strict=True)
        for depth in depths
    ]
    return [
        torch.tensor(array)
        for array in (
            [tokens for tokens, _, _ in trees],
            [child for child, _ in linked],
            [sibling for _, sibling in linked],
            positions,
            seq_lens,
        )
    ]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(1, 5), st.integers(1, 5))
def test_a_batch_is_the_trees_one_by_one(rng, topk, num_steps, batch):
    most = topk + (num_steps - 1) * topk**2
    size = 1 + (num_steps if topk == 1 else rng.randint(1, min(most, 30)))
    trees = [drafted(rng, topk, num_steps, size) for _ in range(batch)]
    seq_lens = [rng.randrange(1, 1000) for _ in trees]
    tree = tree_of(*arrays(trees, seq_lens), topk, num_steps)
    assert tree.max_depth == num_steps
    assert tree.token.tolist() == [tokens for tokens, _, _ in trees]
    assert tree.parent.tolist() == [parents for _, parents, _ in trees]
    assert tree.depth.tolist() == [depths for _, _, depths in trees]
    replace(tree, max_depth=-1).validate()


@pytest.mark.parametrize("topk", [2, 3, 4, 5, 8, 9])
def test_every_sibling_finds_the_parent(topk):
    parents = [-1, *[0] * topk, *[topk] * topk]
    tree = (list(range(2 * topk + 1)), parents, [0, *[1] * topk, *[2] * topk])
    assert tree_of(*arrays([tree], [7]), topk, 2).parent.tolist() == [parents]


def test_a_walk_through_a_shallow_tree_ends_where_the_tree_ends():
    tree = tree_of(*arrays([([5, 6, 7], [-1, 0, 0], [0, 1, 1])], [3]), 2, 4)
    done = follow(tree, torch.tensor([[7, 0, 9]]))
    assert done.path.tolist() == [[0, 2, -1, -1, -1]]
    assert done.bonus.tolist() == [9]


def test_a_node_without_its_parent_is_never_followed():
    """Node 2's parent was not drafted; node 3 is its child. Both hold the target's token."""
    args = arrays([([5, 6, 7, 7], [-1, 0, -1, 2], [0, 1, 2, 3])], [3])
    tree = tree_of(*args, 2, 3)
    assert tree.parent.tolist() == [[-1, 0, -1, 2]]
    assert tree.token[0, 2] == -1
    assert follow(tree, torch.full((1, 4), 7)).path.tolist() == [[0, -1, -1, -1]]


def test_no_argument_is_changed():
    rng = random.Random(0)
    args = arrays([drafted(rng, 3, 3, 8) for _ in range(3)], [4, 5, 6])
    before = [array.clone() for array in args]
    tree_of(*args, 3, 3)
    assert all(torch.equal(a, b) for a, b in zip(args, before, strict=True))


def test_chains_need_no_links():
    tree = tree_of(
        torch.tensor([[1, 2, 3]]), None, None, torch.tensor([4, 5, 6]), torch.tensor([4]), 1, 2
    )
    assert isinstance(tree.validate(), DraftTree)
    assert tree.parent.tolist() == [[-1, 0, 1]]

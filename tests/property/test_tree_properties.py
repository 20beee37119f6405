import dataclasses
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_reference import FAST, path_to, random_tree, seeds, walk

from adaptivespec.core.errors import TreeError
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import follow


@FAST
@given(seeds)
def test_a_random_tree_is_valid_and_its_mask_and_positions_are_those_of_its_paths(seed):
    tree = random_tree(random.Random(seed), 8).validate()
    mask = tree.ancestor_mask()
    for node in range(tree.num_nodes):
        path = path_to(tree, node)
        assert mask[node].nonzero().flatten().tolist() == path
        assert tree.positions(7)[node] == 7 + len(path) - 1
    assert tree.max_depth == int(tree.depth.max())


@FAST
@given(st.lists(seeds, min_size=1, max_size=5))
def test_a_padded_batch_equals_its_trees(tree_seeds):
    trees = [random_tree(random.Random(seed), 8) for seed in tree_seeds]
    batch = DraftTree.pad_stack(trees).validate()
    mask = batch.ancestor_mask()
    starts = torch.arange(len(trees)) * 10
    for row, tree in enumerate(trees):
        n = tree.num_nodes
        assert torch.equal(mask[row, :n, :n], tree.ancestor_mask())
        assert torch.equal(mask[row, n:], torch.eye(batch.num_nodes, dtype=torch.bool)[n:])
        assert not mask[row, :n, n:].any()
        assert torch.equal(batch.positions(starts)[row, :n], tree.positions(row * 10))


def root_parent(tree, node):
    tree.parent[0] = node


def root_token(tree, node):
    tree.token[0] = -1


def late_parent(tree, node):
    tree.parent[node] = node + (node % 2)


def no_parent(tree, node):
    tree.parent[node] = -1


def deeper(tree, node):
    tree.depth[node] += 1


def shallower(tree, node):
    tree.depth[node] -= 1


def negative_token(tree, node):
    tree.token[node] = -3


def padding_in_the_middle(tree, node):
    tree.token[node] = -1


def positive_logq(tree, node):
    tree.logq[node] = 1e-3


def nan_logq(tree, node):
    tree.logq[node] = float("nan")


def twin(tree, node):
    """The node's grandchild-or-child structure is kept: it moves under the root beside its copy."""
    tree.parent[node] = 0
    tree.depth[node] = 1
    tree.parent[1] = 0
    tree.token[node] = tree.token[1]


FAULTS = [
    (root_parent, True),
    (root_token, True),
    (late_parent, False),
    (no_parent, False),
    (deeper, False),
    (shallower, False),
    (negative_token, False),
    (padding_in_the_middle, False),
    (positive_logq, False),
    (nan_logq, False),
]


@pytest.mark.parametrize(("fault", "at_root"), FAULTS)
@FAST
@given(seed=seeds)
def test_validate_finds_a_planted_fault_and_names_a_node(fault, at_root, seed):
    rng = random.Random(seed)
    tree = random_tree(rng, 8)
    if tree.num_nodes < 2:
        return
    node = rng.randrange(1, tree.num_nodes)
    fault(tree, node)
    with pytest.raises(TreeError) as caught:
        dataclasses.replace(tree, max_depth=-1).validate()
    if fault not in (deeper, shallower):  # a depth that is off may show at a child first
        assert caught.value.field == f"node {0 if at_root else node}"


@FAST
@given(seeds)
def test_validate_finds_equal_siblings(seed):
    rng = random.Random(seed)
    tree = random_tree(rng, 8)
    if tree.num_nodes < 3:
        return
    node = tree.num_nodes - 1  # a leaf, so that moving it breaks nothing else
    twin(tree, node)
    with pytest.raises(TreeError, match="sibling") as caught:
        dataclasses.replace(tree, max_depth=-1).validate()
    assert caught.value.field == f"node {node}"


@FAST
@given(st.lists(seeds, min_size=1, max_size=5))
def test_follow_is_the_walk(tree_seeds):
    vocab, trees, tokens = 4, [], []
    for seed in tree_seeds:
        rng = random.Random(seed)
        trees.append(random_tree(rng, vocab))
        tokens.append([rng.randrange(vocab) for _ in range(trees[-1].num_nodes)])
    batch = DraftTree.pad_stack(trees)
    padded = torch.full(batch.token.shape, -1)
    for row, ids in enumerate(tokens):
        padded[row, : len(ids)] = torch.tensor(ids)
        # whatever padding holds must not matter
        padded[row, len(ids) :] = torch.tensor(random.Random(row).choices([-1, 0, 1], k=1))
    together = follow(batch, padded)
    for row, (tree, ids) in enumerate(zip(trees, tokens, strict=True)):
        path, bonus = walk(tree, ids)
        single = follow(tree, torch.tensor(ids))
        for done, at in ((single, ...), (together, row)):
            assert [node for node in done.path[at].tolist() if node >= 0] == path
            assert int(done.length[at]) == len(path)
            assert int(done.bonus[at]) == bonus

import dataclasses

import pytest
import torch

from adaptivespec.core.errors import TreeError
from adaptivespec.core.tree import DraftTree

TOKENS, PARENTS = [9, 1, 2, 1, 3], [-1, 0, 0, 1, 3]


def tree():
    return DraftTree.from_parents(TOKENS, PARENTS, [0.0, -0.5, -1.0, -0.25, -0.75])


def test_from_parents_derives_depth():
    t = tree().validate()
    assert t.depth.tolist() == [0, 1, 1, 2, 3]
    assert (t.num_nodes, t.max_depth, t.device.type) == (5, 3, "cpu")
    assert (t.token.dtype, t.logq.dtype) == (torch.int64, torch.float32)


def test_chain_and_root_only():
    chain = DraftTree.chain([4, 5, 6]).validate()
    assert chain.parent.tolist() == [-1, 0, 1]
    assert chain.depth.tolist() == [0, 1, 2]
    root = DraftTree.root_only(7).validate()
    assert (root.token.tolist(), root.num_nodes, root.max_depth) == ([7], 1, 0)


@pytest.mark.parametrize(
    ("tokens", "parents", "logq"),
    [
        ([1, 2], [-1], None),
        ([1, 2], [-1, 0], [0.0]),
        ([1, 2], [0, 0], None),
        ([1, 2], [-1, 1], None),
        ([1, 2, 3], [-1, 2, 0], None),
        ([1, 2], [-1, -1], None),
    ],
)
def test_from_parents_refuses_what_has_no_depth(tokens, parents, logq):
    with pytest.raises(TreeError):
        DraftTree.from_parents(tokens, parents, logq)


def test_empty_inputs_are_refused():
    with pytest.raises(TreeError, match="root is missing"):
        DraftTree.chain([])
    with pytest.raises(TreeError, match="no tree"):
        DraftTree.pad_stack([])
    with pytest.raises(TreeError, match="root is missing"):
        DraftTree.from_parents([], []).validate()


def test_max_depth_is_read_when_not_given():
    t = tree()
    assert DraftTree(t.token, t.parent, t.depth, t.logq).max_depth == 3


def test_ancestor_mask():
    assert tree().ancestor_mask().int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]


def test_positions():
    assert tree().positions(10).tolist() == [10, 11, 11, 12, 13]
    batch = DraftTree.pad_stack([tree(), DraftTree.chain([1, 2])])
    starts = torch.tensor([10, 20])
    assert batch.positions(starts)[:, :2].tolist() == [[10, 11], [20, 21]]
    assert batch.positions(torch.tensor(5))[1, 1] == 6


def test_pad_stack():
    batch = DraftTree.pad_stack([tree(), DraftTree.chain([1, 2])]).validate()
    assert batch.token.tolist() == [TOKENS, [1, 2, -1, -1, -1]]
    assert batch.parent[1].tolist() == [-1, 0, -1, -1, -1]
    assert batch.max_depth == 3
    mask = batch.ancestor_mask()
    assert torch.equal(mask[0], tree().ancestor_mask())
    assert mask[1].int().tolist()[2:] == [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]


def planted(**changes):
    """The tree with single entries changed: name -> (node, value)."""
    arrays = {name: getattr(tree(), name).clone() for name in ("token", "parent", "depth", "logq")}
    for name, (node, value) in changes.items():
        arrays[name][node] = value
    return DraftTree(**arrays, max_depth=3)


@pytest.mark.parametrize(
    ("changes", "node", "words"),
    [
        ({"parent": (0, 0)}, 0, "root's parent"),
        ({"token": (0, -1)}, 0, "root must hold a token"),
        ({"token": (2, -2)}, 2, "token id"),
        ({"token": (2, -1)}, 2, "padding"),
        ({"parent": (2, -1)}, 2, "before its child"),
        ({"parent": (2, 2)}, 2, "before its child"),
        ({"parent": (2, 4)}, 2, "before its child"),
        ({"parent": (2, 400)}, 2, "before its child"),
        ({"depth": (3, 1)}, 3, "depth"),
        ({"depth": (0, 1)}, 0, "depth"),
        ({"logq": (4, 0.5)}, 4, "logq"),
        ({"logq": (4, float("nan"))}, 4, "logq"),
        ({"token": (2, 1)}, 2, "sibling"),
    ],
)
def test_validate_names_the_node_of_a_planted_fault(changes, node, words):
    with pytest.raises(TreeError, match=words) as caught:
        planted(**changes).validate()
    assert caught.value.field == f"node {node}"


def test_validate_names_the_tree_of_a_batch():
    batch = DraftTree.pad_stack([tree(), tree()])
    batch.depth[1, 3] = 0
    with pytest.raises(TreeError) as caught:
        batch.validate()
    assert caught.value.field == "tree 1, node 3"


def test_equal_tokens_under_different_parents_are_no_fault():
    assert tree().token[1] == tree().token[3]
    tree().validate()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"token": tree().token.int()}, "token"),
        ({"depth": tree().depth.float()}, "depth"),
        ({"logq": tree().logq.double()}, "logq"),
        ({"parent": tree().parent[:4]}, "parent"),
        ({"logq": tree().logq[None]}, "logq"),
    ],
)
def test_validate_checks_types_and_shapes(changes, field):
    with pytest.raises(TreeError) as caught:
        dataclasses.replace(tree(), **changes).validate()
    assert caught.value.field == field


def test_validate_checks_a_given_max_depth():
    with pytest.raises(TreeError, match="max_depth is 2"):
        dataclasses.replace(tree(), max_depth=2).validate()

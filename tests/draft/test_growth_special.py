"""Fixed trees, trees with gaps, drawn drafts, and features on the nodes."""

from __future__ import annotations

import pytest
import torch

from adaptivespec.draft.growth import Growth
from adaptivespec.policy.plan import Keep, Stop, TreePlan
from fakes.offers import FIRST, ROOT, SECOND, Level, grow, scores, tokens

FIXED = ((0,), (2,), (0, 1), (2, 0), (2, 2), (0, 1, 0))
#: Rows for the nodes that have children: (0,), (2,), then (0, 1).
OFFERS: list[Level] = [FIRST, [[0.4, 0.2, 0.1], [0.9, 0.05, 0.01]], [[0.5, 0.3, 0.2]]]


def test_a_fixed_tree_is_taken_as_it_is() -> None:
    growth = grow(TreePlan.fixed(FIXED), *OFFERS)
    assert growth.stopped == "depth"
    assert tokens(growth) == [ROOT, 100, 102, 201, 203, 205, 300]
    draft = growth.draft()
    assert draft.tree.parent.tolist() == [-1, 0, 0, 1, 2, 2, 3]
    assert draft.rank is not None
    assert draft.rank.tolist() == [0, 0, 2, 1, 0, 2, 0]
    assert scores(growth) == pytest.approx([1, 0.5, 0.1, 0.1, 0.09, 0.001, 0.05])
    assert draft.num_candidates == 6


def test_a_fixed_tree_is_offered_only_what_it_expands() -> None:
    growth = grow(TreePlan.fixed(FIXED), FIRST)
    assert growth.frontier_tokens.tolist() == [100, 102]
    source = growth.expand(torch.arange(6).view(2, 3), torch.tensor(OFFERS[1]).log())
    assert growth.frontier_tokens.tolist() == [1]
    assert source.tolist() == [0]


def test_a_fixed_tree_in_any_order_that_has_parents_first() -> None:
    plan = TreePlan.fixed(((0,), (0, 1), (0, 1, 0), (2,), (2, 0), (2, 2)))
    assert sorted(tokens(grow(plan, *OFFERS))) == [ROOT, 100, 102, 201, 203, 205, 300]


def test_a_fixed_tree_cut_short() -> None:
    growth = grow(TreePlan.fixed(FIXED).capped(3), *OFFERS)
    assert tokens(growth) == [ROOT, 100, 102, 201, 203, 205]
    assert tokens(grow(TreePlan.fixed(FIXED).capped(1))) == [ROOT]


def test_a_fixed_tree_for_a_drafter_with_few_tokens() -> None:
    two = [[row[:2] for row in level] for level in OFFERS]
    growth = grow(TreePlan.fixed(FIXED), two[0], [two[1][0]], two[2])
    assert tokens(growth) == [ROOT, 100, 201, 300]
    assert growth.draft().tree.parent.tolist() == [-1, 0, 1, 2]
    nothing = grow(TreePlan.fixed(((2,), (2, 0))), two[0])
    assert nothing.stopped == "nothing kept"
    assert tokens(nothing) == [ROOT]


def test_children_that_do_not_exist_are_neither_kept_nor_counted() -> None:
    plan = TreePlan(3, 3, 4, keep=Keep(width=3))
    growth = grow(plan, [[0.5, 0.3, 0.0]], sparse=True)
    assert growth.frontier_tokens.tolist() == [100, 101]
    growth = grow(plan, [[0.5, 0.3, 0.0]], [[0.4, 0.0, 0.0], [0.0, 0.0, 0.0]], sparse=True)
    assert growth.frontier_tokens.tolist() == [200]
    assert tokens(growth) == [ROOT, 100, 101, 200]
    assert growth.draft().num_candidates == 3
    none = grow(plan, [[0.0, 0.0, 0.0]], sparse=True)
    assert none.stopped == "nothing kept"
    assert tokens(none) == [ROOT]
    assert none.draft().num_candidates == 0


@pytest.mark.parametrize("keep", [Keep(), Keep(relative=0.1), Keep(absolute=0.01, drop=True)])
def test_a_tree_is_full_of_nodes_that_exist(keep: Keep) -> None:
    plan = TreePlan(3, 3, 4, keep=keep, stop=Stop(full=True))
    assert grow(plan, [[0.5, 0.3, 0.0]], sparse=True).stopped == ""
    assert grow(plan, [[0.5, 0.3, 0.1]], sparse=True).stopped == "full"
    assert grow(plan, [[0.5, 0.3, 0.1]]).stopped == "full"


def test_a_fixed_tree_without_the_nodes_that_do_not_exist() -> None:
    first, second = [[0.5, 0.3, 0.0]], [[0.4, 0.2, 0.1], [0.0, 0.0, 0.0]]
    growth = grow(TreePlan.fixed(FIXED), first, second, OFFERS[2], sparse=True)
    assert tokens(growth) == [ROOT, 100, 201, 300]


def test_drawn_drafts_stay_in_the_order_drawn() -> None:
    law = torch.tensor([[0.1, 0.6, 0.3]])
    growth = Growth(ROOT, TreePlan.fixed(((0,), (1,), (1, 0))), sampled=True)
    growth.expand(torch.tensor([[0, 1]]), law[:, :2].log(), q=law)
    growth.expand(torch.tensor([[2, 0]]), law[:, [2, 0]].log(), q=law.flip(-1))
    draft = growth.draft()
    tree = draft.tree.validate()
    assert tree.token.tolist() == [ROOT, 0, 1, 2]
    assert tree.q is not None
    assert draft.rank is not None
    assert draft.rank.tolist() == [0, 0, 1, 0]
    want = [[0.1, 0.6, 0.3], [0, 0, 0], [0.3, 0.6, 0.1], [0, 0, 0]]
    assert torch.allclose(tree.q, torch.tensor(want))


def test_a_drawn_chain_is_cut_by_number_and_not_by_probability() -> None:
    growth = Growth(ROOT, TreePlan(3, 1, 3), sampled=True)
    for q in (0.01, 0.9, 0.9):
        growth.expand(torch.tensor([[1]]), torch.tensor([[q]]).log(), q=torch.full((1, 4), 0.25))
    tree = growth.draft().tree.validate()
    assert tree.logq.exp().tolist() == pytest.approx([1, 0.01, 0.9])
    assert tree.q is not None
    assert tree.q.sum(-1).tolist() == pytest.approx([1, 1, 1])


def test_every_node_carries_the_feature_of_its_parents_row() -> None:
    for keep, count in [(Keep(width=2), 7), (Keep(width=2, drop=True), 5)]:
        growth = Growth(ROOT, TreePlan(2, 3, count, keep=keep))
        growth.expand(torch.tensor([[1, 2, 3]]), torch.tensor(FIRST).log(), torch.tensor([[7.0]]))
        growth.expand(
            torch.tensor([[4, 5, 6], [7, 8, 9]]),
            torch.tensor(SECOND).log(),
            torch.tensor([[1.0], [2.0]]),
        )
        tree = growth.draft().tree
        assert tree.hidden is not None
        above = tree.token[tree.parent_index].tolist()
        want = [{ROOT: 7.0, 1: 1.0, 2: 2.0}[token] for token in above[1:]]
        assert tree.hidden[:, 0].tolist() == [0.0, *want]

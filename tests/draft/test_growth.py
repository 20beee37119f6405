"""Carrying out a plan: what is kept, when growing ends, and which nodes are verified."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from adaptivespec.draft.growth import Growth
from adaptivespec.policy.acceptance import Calibration
from adaptivespec.policy.plan import Keep, Lookahead, Stop, TreePlan
from fakes.offers import FIRST, ROOT, SECOND, grow, scores, tokens

BIG = TreePlan(3, 3, 100)


def test_what_is_kept_by_width() -> None:
    growth = grow(replace(BIG, keep=Keep(width=2)), FIRST)
    assert growth.frontier_tokens.tolist() == [100, 101]
    growth = grow(replace(BIG, keep=Keep(width=2)), FIRST, SECOND)
    assert growth.frontier_tokens.tolist() == [203, 200]  # .27, .2: best first
    assert growth.frontier.tolist() == [3 + 3, 3 + 0]
    assert grow(replace(BIG, keep=Keep(width=5)), FIRST).width == 3  # no more than there are
    wide = grow(replace(BIG, topk=2, keep=Keep(width=3)), [[0.5, 0.3]], [[0.4, 0.2], [0.9, 0.05]])
    assert wide.frontier_tokens.tolist() == [202, 200, 201]  # .27, .2, .1


def test_expand_returns_the_rows_of_the_parents() -> None:
    growth = Growth(ROOT, replace(BIG, keep=Keep(width=2)))
    source = growth.expand(torch.tensor([[1, 2, 3]]), torch.tensor(FIRST).log())
    assert source.tolist() == [0, 0]
    source = growth.expand(torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor(SECOND).log())
    assert source.tolist() == [1, 0]


def test_what_is_kept_by_share_of_the_best() -> None:
    plan = replace(BIG, keep=Keep(width=2, relative=0.5))
    growth = grow(plan, FIRST)
    assert growth.frontier_tokens.tolist() == [100, 101]  # at least .25
    growth = grow(plan, FIRST, SECOND)
    assert growth.frontier_tokens.tolist() == [203, 200]  # at least .135
    assert growth.num_candidates == 9  # the others are not expanded, and stay candidates
    growth = grow(replace(plan, keep=Keep(width=2, relative=0.75)), FIRST, [SECOND[0]])
    assert growth.frontier_tokens.tolist() == [200]
    exact = grow(replace(BIG, keep=Keep(relative=0.6)), FIRST)
    assert exact.width == 2  # 0.3 is 0.6 of 0.5, whatever rounding says
    assert grow(replace(BIG, keep=Keep(relative=1.0)), [[0.4, 0.4, 0.2]]).width == 2


def test_what_is_kept_by_probability() -> None:
    plan = replace(BIG, keep=Keep(width=2, absolute=0.25))
    growth = grow(plan, FIRST, SECOND)
    assert growth.frontier_tokens.tolist() == [203]
    assert grow(replace(plan, keep=Keep(absolute=0.1)), FIRST).width == 3
    both = replace(plan, keep=Keep(relative=0.1, absolute=0.25))
    assert grow(both, FIRST).width == 2  # the stricter one holds


def test_what_is_not_kept_is_dropped() -> None:
    plan = replace(BIG, keep=Keep(relative=0.5, drop=True))
    growth = grow(plan, FIRST, SECOND)
    assert growth.num_candidates == 4
    assert tokens(growth) == [ROOT, 100, 101, 203, 200]
    draft = growth.draft()
    assert draft.tree.parent.tolist() == [-1, 0, 0, 2, 1]
    assert draft.rank is not None
    assert draft.rank.tolist() == [0, 0, 1, 0, 0]
    assert scores(growth) == pytest.approx([1, 0.5, 0.3, 0.27, 0.2])


def test_the_best_are_verified() -> None:
    growth = grow(replace(BIG, num_draft_tokens=5, keep=Keep(width=2)), FIRST, SECOND)
    assert tokens(growth) == [ROOT, 100, 101, 200, 203]  # .5 .3 .2 .27; in the order offered
    draft = growth.draft()
    assert draft.tree.depth.tolist() == [0, 1, 1, 2, 2]
    assert draft.tree.logq.exp().tolist() == pytest.approx([1, 0.5, 0.3, 0.4, 0.9])
    assert scores(growth) == pytest.approx([1, 0.5, 0.3, 0.2, 0.27])
    assert (draft.num_candidates, draft.num_levels) == (9, 2)


def test_of_equal_scores_the_earlier_goes_first() -> None:
    level = [[0.25, 0.25, 0.25, 0.25]]
    plan = TreePlan(2, 4, 3, keep=Keep(width=2))
    growth = grow(plan, level)
    assert growth.frontier_tokens.tolist() == [100, 101]
    growth = grow(replace(plan, num_steps=3), level, [[1.0, 0.0, 0.0, 0.0]] * 2)
    assert growth.frontier_tokens.tolist() == [200, 204]
    assert tokens(growth) == [ROOT, 100, 101]
    many = torch.full((1, 64), 1 / 64)
    growth = Growth(ROOT, TreePlan(2, 64, 20), sparse=True)
    growth.expand(torch.arange(64)[None], many.log())
    assert growth.frontier_tokens.tolist() == list(range(64))


CHAIN = TreePlan(4, 1, 5)


@pytest.mark.parametrize(
    ("plan", "reason", "levels"),
    [
        (CHAIN, "depth", 4),
        (replace(CHAIN, num_steps=0), "depth", 0),
        (replace(CHAIN, num_draft_tokens=1), "full", 0),
        (replace(CHAIN, num_draft_tokens=0), "full", 0),
        # q .9 .5 .8 .7; path .9 .45 .36 .252
        (replace(CHAIN, stop=Stop(min_confidence=0.6)), "confidence", 2),
        (replace(CHAIN, stop=Stop(min_confidence=0.4)), "depth", 4),
        (replace(CHAIN, stop=Stop(min_path=0.4)), "path", 3),
        (replace(CHAIN, stop=Stop(min_path=0.46)), "path", 2),
        (replace(CHAIN, stop=Stop(min_gain=0.4)), "gain", 3),
        (replace(CHAIN, stop=Stop(min_gain=0.5)), "gain", 2),
        (replace(CHAIN, stop=Stop(min_gain=0.0)), "depth", 4),
        # Only the best two count: from .9 + .45 the third level adds nothing.
        (replace(CHAIN, num_draft_tokens=3, stop=Stop(min_gain=0.0)), "gain", 3),
        (replace(CHAIN, num_draft_tokens=3, stop=Stop(full=True)), "full", 2),
        (replace(CHAIN, stop=Stop(full=True)), "depth", 4),
        (replace(CHAIN, keep=Keep(absolute=0.4)), "nothing kept", 3),
        # h = .5: after level 1 one more level gains .45, two .675; after level 2 .225 and .3375.
        (replace(CHAIN, stop=Stop(lookahead=Lookahead((0.5,), (0.3, 0.4)))), "price", 2),
        (replace(CHAIN, stop=Stop(lookahead=Lookahead((0.5,), (0.46, 0.7)))), "price", 1),
        (replace(CHAIN, stop=Stop(lookahead=Lookahead((0.5,), (0.46, 0.67)))), "price", 2),
        # h is that of the depth to come: .9 .45 at depth 2, .45 .1 at depth 3.
        (replace(CHAIN, stop=Stop(lookahead=Lookahead((0.0, 0.5, 0.1), (0.3,)))), "price", 2),
    ],
)
def test_when_growing_ends(plan: TreePlan, reason: str, levels: int) -> None:
    growth = Growth(ROOT, plan)
    for q in (0.9, 0.5, 0.8, 0.7):
        if growth.stopped:
            break
        growth.expand(torch.tensor([[1]]), torch.tensor([[q]]).log())
    draft = growth.draft()
    assert (growth.stopped, growth.level) == (reason, levels)
    assert (draft.reason["stopped"], draft.num_levels) == (reason, levels)
    assert draft.tree.validate().num_nodes == min(levels + 1, max(plan.num_draft_tokens, 1))


def test_the_best_new_node_stops_a_tree() -> None:
    plan = replace(BIG, keep=Keep(width=2))
    for stop, reason in [
        (Stop(min_confidence=0.91), "confidence"),  # the level's best q is .9
        (Stop(min_confidence=0.89), ""),
        (Stop(min_path=0.28), "path"),  # the level's best path is .27
        (Stop(min_path=0.26), ""),
    ]:
        growth = Growth(ROOT, replace(plan, stop=stop))
        growth.expand(torch.tensor([[1, 2, 3]]), torch.tensor([[0.95, 0.3, 0.1]]).log())
        assert growth.stopped == ""
        growth.expand(
            torch.tensor([[4, 5, 6], [7, 8, 9]]),
            torch.tensor([[0.27 / 0.95, 0.2, 0.1], [0.9, 0.05, 0.01]]).log(),
        )
        assert growth.stopped == reason


def test_the_growth_of_the_best_scores_stops_a_tree() -> None:
    """Level 1: .5 + .3 + .1; level 2 takes .1 out and .27 in: 1.07, grown by .17."""
    plan = TreePlan(3, 3, 4, keep=Keep(width=2))
    assert grow(replace(plan, stop=Stop(min_gain=0.18)), FIRST, SECOND).stopped == "gain"
    assert grow(replace(plan, stop=Stop(min_gain=0.16)), FIRST, SECOND).stopped == ""
    assert grow(replace(plan, stop=Stop(min_gain=0.91)), FIRST).stopped == "gain"


def test_a_look_ahead_sees_the_whole_frontier() -> None:
    """The two expanded nodes hold .27 + .2 = .47; half of it is .235."""
    plan = replace(BIG, keep=Keep(width=2))
    for price, reason in [(0.23, ""), (0.24, "price")]:
        stop = Stop(lookahead=Lookahead((0.5,), (price,)))
        assert grow(replace(plan, stop=stop), FIRST, SECOND).stopped == reason


@pytest.mark.parametrize(
    ("prices", "nodes", "gain", "price"),
    [
        # 1 + .8 + .4 + .2 = 2.4 tokens at most
        (((1, 0.0), (2, 0.5), (3, 1.0), (4, 1.5)), 2, 1.8, 0.5),  # 1, 1.3, 1.2, .9
        (((1, 0.5), (2, 0.6), (3, 0.7), (4, 0.8)), 4, 2.4, 0.8),  # .5, 1.2, 1.5, 1.6
        (((1, 0.5), (4, 0.8), (8, 0.9)), 4, 2.4, 0.8),  # four nodes are all there are
        (((1, 0.9), (8, 1.0)), 4, 2.4, 1.0),  # .1, 1.4
        (((1, 0.0), (2, 0.9), (4, 1.8)), 1, 1.0, 0.0),  # 1, .9, .6
    ],
)
def test_the_size_pays_for_itself(
    prices: tuple[tuple[int, float], ...], nodes: int, gain: float, price: float
) -> None:
    growth = Growth(ROOT, TreePlan(3, 1, 8, prices=prices))
    for _ in range(3):
        q = torch.tensor([[0.8 if not growth.level else 0.5]])
        growth.expand(torch.tensor([[1]]), q.log())
    draft = growth.draft()
    assert draft.tree.validate().num_nodes == nodes
    assert draft.reason["nodes"] == nodes
    assert draft.reason["gain"] == pytest.approx(gain)
    assert draft.reason["price"] == pytest.approx(price)


def test_of_sizes_that_pay_the_same_the_smallest_is_verified() -> None:
    growth = Growth(ROOT, TreePlan(3, 1, 4, prices=((2, 0.5), (3, 1.5), (4, 2.5))))
    for _ in range(3):
        growth.expand(torch.tensor([[1]]), torch.zeros(1, 1))
    assert growth.draft().tree.num_nodes == 2


def test_prices_never_buy_more_than_the_plan_allows() -> None:
    growth = Growth(ROOT, TreePlan(1, 3, 3, prices=((1, 1.0), (2, 1.0), (4, 1.0))))
    growth.expand(torch.tensor([[1, 2, 3]]), torch.tensor(FIRST).log())
    assert growth.draft().tree.num_nodes == 3


def calibrated(*counts: tuple[int, int, float, float], prior: float = 20.0) -> Calibration:
    """Of each (depth - 1, rank, followed, labels), in all bins of q; both indices below 3."""
    calibration = Calibration(prior=prior)
    for deep, rank, followed, labels in counts:
        first = (deep * 3 + rank) * 10
        calibration.follows[first : first + 10] = followed
        calibration.labels[first : first + 10] = labels
    return calibration


def test_scores_are_calibrated_acceptance() -> None:
    """c = (s + 20 q) / (n + 20): (0 + 12) / 60 = .2, (24 + 6) / 60 = .5, q itself below."""
    acceptance = calibrated((0, 0, 0.0, 40.0), (0, 1, 24.0, 40.0)).acceptance()
    plan = TreePlan(2, 2, 4, keep=Keep(width=1), acceptance=acceptance)
    growth = grow(plan, [[0.6, 0.3]])
    assert growth.frontier_tokens.tolist() == [101]  # likelier to be followed, though ranked second
    growth = grow(plan, [[0.6, 0.3]], [[0.9, 0.1]])
    assert tokens(growth) == [ROOT, 100, 101, 200]
    assert scores(growth) == pytest.approx([1, 0.2, 0.5, 0.45])
    draft = growth.draft()
    assert draft.tree.parent.tolist() == [-1, 0, 0, 2]
    assert draft.tree.logq.exp().tolist() == pytest.approx([1, 0.6, 0.3, 0.9])  # the law as it is
    assert draft.rank is not None
    assert draft.rank.tolist() == [0, 0, 1, 0]
    relative = replace(plan, keep=Keep(width=2, relative=0.5))
    assert grow(relative, [[0.6, 0.3]]).frontier_tokens.tolist() == [101]


def test_likely_siblings_share_one() -> None:
    """c = (32 + 20 q) / 60 = .7 and .6, scaled to a sum of 1."""
    acceptance = calibrated((0, 0, 32.0, 40.0), (0, 1, 32.0, 40.0)).acceptance()
    growth = grow(TreePlan(1, 2, 3, acceptance=acceptance), [[0.5, 0.2]])
    assert scores(growth) == pytest.approx([1, 0.7 / 1.3, 0.6 / 1.3])

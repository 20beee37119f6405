"""A recorded step as arrays: its vocabulary, the trees that plans get out of it, its law."""

from __future__ import annotations

import math

import pytest
import torch

from adaptivespec.core.law import Law
from adaptivespec.policy.acceptance import Calibration
from adaptivespec.policy.plan import Keep, Stop, TreePlan
from adaptivespec.replay.records import Records, Sub
from fakes.traces import EOS, trace


@pytest.fixture
def records() -> Records:
    return Records(trace())


def tokens(records: Records, sub: Sub) -> list[int]:
    return [int(id) for id in records.vocabulary[sub.draft.tree.token]]


def test_vocabulary_keeps_the_order_of_ids(records: Records) -> None:
    assert records.vocabulary.tolist() == [EOS, 10, 11, 12, 13, 14, 15, 16, 17, 18]
    assert records.protected.nonzero().tolist() == [[0]]  # 60 does not occur
    assert records.stop_ids == {0}
    assert records.end == 5
    assert Records(trace([])).end == 0


def test_a_chain_out_of_a_tree(records: Records) -> None:
    sub = records.steps[0].sub(TreePlan(2, 1, 3))
    assert tokens(records, sub) == [10, 11, 12]
    assert sub.nodes.tolist() == [0, 1, 3]
    assert sub.draft.tree.validate().parent.tolist() == [-1, 0, 1]
    assert sub.draft.tree.logq.exp().tolist() == pytest.approx([1.0, 0.5, 0.5])
    assert sub.draft.score is not None
    assert sub.draft.score.exp().tolist() == pytest.approx([1.0, 0.5, 0.25])
    assert sub.widths == (1,)  # the first level needs no pass
    assert sub.complete


def test_a_wider_tree_is_pruned_to_its_size(records: Records) -> None:
    # Scores: 11 .5, 12 .3, then .25, .125 below 11 and .12, .06 below 12.
    sub = records.steps[0].sub(TreePlan(2, 2, 5))
    assert tokens(records, sub) == [10, 11, 12, 12, 13]
    assert sub.nodes.tolist() == [0, 1, 2, 3, 4]
    assert sub.widths == (2,)
    assert sub.draft.rank is not None
    assert sub.draft.rank.tolist() == [0, 0, 1, 0, 1]
    assert sub.complete


@pytest.mark.parametrize(
    ("plan", "nodes", "complete"),
    [
        (TreePlan(1, 3, 4), [0, 1, 2], False),  # a third child was never offered
        (TreePlan(3, 1, 4), [0, 1, 3], False),  # a third level was never expanded
        (TreePlan(3, 1, 4, stop=Stop(min_confidence=0.6)), [0, 1], True),  # stops before it
        (TreePlan(2, 2, 99), [0, 1, 2, 3, 4, 5, 6], True),
        (TreePlan(2, 2, 99, keep=Keep(width=1)), [0, 1, 2, 3, 4], True),
        (TreePlan(2, 2, 1), [0], True),
        (TreePlan(0, 2, 4), [0], True),
        (TreePlan.fixed(((0,), (1,), (1, 1))), [0, 1, 2, 6], True),
        (TreePlan.fixed(((0,), (0, 0), (0, 2))), [0, 1, 3], False),
        (TreePlan.fixed(((2,), (2, 0))), [0], False),
    ],
)
def test_what_was_recorded_and_what_was_not(
    records: Records, plan: TreePlan, nodes: list[int], complete: bool
) -> None:
    sub = records.steps[0].sub(plan)
    assert sub.nodes.tolist() == nodes
    assert sub.complete is complete
    sub.draft.tree.validate()


def test_plans_are_grown_once_but_for_those_that_learn(records: Records) -> None:
    record, plan = records.steps[0], TreePlan(2, 2, 5)
    assert record.sub(plan) is record.sub(TreePlan(2, 2, 5))
    learning = TreePlan(2, 2, 5, acceptance=Calibration().acceptance())
    assert record.sub(learning) is not record.sub(learning)


def test_the_law_is_that_of_the_recorded_margins(records: Records) -> None:
    record = records.steps[1]  # after 11 the target says 12; drafted: 13 (m .5) and 14 (m .1)
    sub = record.sub(TreePlan(1, 1, 2))
    law = record.law(sub.nodes, records.vocab_size)
    assert isinstance(law, Law)
    row = dict(zip(records.vocabulary.tolist(), law.logits[0].tolist(), strict=True))
    assert row.pop(12) == 0.0
    assert row.pop(13) == pytest.approx(math.log(0.5))
    assert row.pop(14) == pytest.approx(math.log(0.1))
    assert set(row.values()) == {-math.inf}
    assert law.peak.tolist() == [0.0, 0.0]
    assert records.vocabulary[law.target].tolist() == [12, 14]
    drop = law.child_drop(sub.draft.tree).tolist()
    assert drop == [math.inf, pytest.approx(math.log(2))]
    assert law.target_drop.tolist() == [0.0, 0.0]


def test_a_tie_does_not_move_the_target() -> None:
    steps = trace().steps[:1]
    assert steps[0].nodes is not None
    nodes = {**steps[0].nodes, "margin": [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}
    nodes["target"] = [12, 13, 13, 14, 14, 14, 14]
    steps[0] = type(steps[0])(**{**vars(steps[0]), "nodes": nodes})
    records = Records(trace(steps))
    law = records.steps[0].law(torch.tensor([0, 1]), records.vocab_size)
    assert records.vocabulary[law.target].tolist() == [12, 13]

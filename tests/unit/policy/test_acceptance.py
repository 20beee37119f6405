import math
from dataclasses import replace

import pytest
import torch

from adaptivespec.core.draft import Draft
from adaptivespec.core.tree import DraftTree
from adaptivespec.policy.acceptance import Acceptance, Calibration, bins


def test_bins_of_depth_rank_and_logit():
    logq = torch.tensor(math.log(0.49))  # just below logit 0, the fifth edge: bin 4
    for depth, deep in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (9, 3)]:
        for rank, place in [(0, 0), (1, 1), (2, 2), (7, 2)]:
            index = bins(logq, torch.tensor(depth), torch.tensor(rank))
            assert int(index) == (deep * 3 + place) * 10 + 4
    one = torch.tensor(1)
    assert int(bins(torch.tensor(0.001).log(), one, one * 0)) == 0  # logit -6.9
    assert int(bins(torch.tensor(0.999).log(), one, one * 0)) == 9  # logit 6.9


def test_without_labels_c_is_q():
    logq = torch.tensor([[0.6, 0.3, 0.1], [0.9, 0.05, 0.01]]).log()
    c = Calibration().acceptance().log_of(logq, 1).exp()
    assert torch.allclose(c, logq.exp(), atol=1e-5)


def labelled(n_followed, n, prior=20.0):
    """A tree of a root and one child of q = 0.5, followed `n_followed` times of n."""
    calibration = Calibration(prior=prior, decay=1.0)
    tree = DraftTree.from_parents([1, 2], [-1, 0], [0.0, math.log(0.5)])
    draft = Draft(tree, rank=torch.tensor([0, 0]), score=tree.logq)
    for i in range(n):
        calibration.observe(draft, [0, 1] if i < n_followed else [0])
    return calibration


def test_c_is_pulled_towards_what_was_seen():
    acceptance = replace(labelled(8, 10).acceptance(), lift=())
    c = acceptance.log_of(torch.tensor([[math.log(0.5)]]), 1).exp()
    assert float(c) == pytest.approx((8 + 20 * 0.5) / (10 + 20))
    other = acceptance.log_of(torch.tensor([[math.log(0.5)]]), 2).exp()
    assert float(other) == pytest.approx(0.5)  # another depth, another bin


def test_a_shift_moves_the_logit():
    acceptance = Calibration().acceptance(shift=1.0)
    c = acceptance.log_of(torch.tensor([[math.log(0.5)]]), 1).exp()
    assert float(c) == pytest.approx(1 / (1 + math.exp(-1)))


def test_siblings_never_sum_above_one():
    logq = torch.tensor([[0.6, 0.4]]).log()
    c = Acceptance(torch.zeros(120), torch.ones(120), 3.0).log_of(logq, 1).exp()
    assert float(c.sum()) == pytest.approx(1.0)


def test_children_that_do_not_exist_are_never_followed():
    logc = labelled(8, 10).acceptance().log_of(torch.tensor([[-0.5, -math.inf]]), 1)
    assert logc[0, 1] == -math.inf
    assert logc[0, 0] > -1


def test_labels_come_from_followed_parents_alone():
    """Root -> 1 (followed) -> 3; root -> 2 -> 4: node 4 says nothing."""
    tree = DraftTree.from_parents(
        [9, 1, 2, 3, 4], [-1, 0, 0, 1, 2], [0.0, *torch.tensor([0.6, 0.3, 0.7, 0.7]).log().tolist()]
    )
    score = tree.logq.clone()
    score[3:] += score[1:3]
    draft = Draft(tree, rank=torch.tensor([0, 0, 1, 0, 0]), score=score)
    calibration = Calibration(decay=1.0)
    slope = calibration.observe(draft, [0, 1])
    assert float(calibration.labels.sum()) == 3
    assert float(calibration.follows.sum()) == 1
    assert slope == pytest.approx((1 - 0.6) + (0 - 0.3) + (0 - 0.7), abs=1e-6)
    assert calibration.error == pytest.approx((0.4 + 0.3 + 0.7) / 3, abs=1e-6)


def test_a_calibration_that_is_right_has_no_error():
    assert labelled(5, 10).error == pytest.approx(0.0)
    assert Calibration().error is None


def test_whole_paths_are_lifted_to_what_was_seen():
    """Paths of two nodes predicted 0.25 each round and followed always: c at depth 2 is lifted."""
    tree = DraftTree.from_parents([1, 2, 3], [-1, 0, 1], [0.0, math.log(0.5), math.log(0.5)])
    score = torch.tensor([0.0, math.log(0.5), math.log(0.25)])
    draft = Draft(tree, rank=torch.zeros(3, dtype=torch.int64), score=score)
    calibration = Calibration(decay=1.0)
    assert calibration.lift == [1.0] * 8
    for followed in (True, False) * 10:
        calibration.observe(draft, [0, 1, 2] if followed else [0])
    # Depth 1: 10 followed of 10 predicted. Depth 2: 10 of 5, at 0.02 a path.
    assert calibration.lift[0] == pytest.approx(1.0, abs=1e-4)
    assert calibration.lift[1] == pytest.approx(math.exp(0.02 * 5), abs=1e-4)
    assert calibration.lift[2] == 1.0
    for _ in range(200):
        calibration.observe(draft, [0, 1, 2])
    assert calibration.lift[1] == 2.0  # no further
    plain, lifted = (
        Acceptance(torch.zeros(120), torch.ones(120), lift=lift).log_of(score[1:2, None], 2)
        for lift in ((), (1.0, 1.5))
    )
    assert float(lifted.exp()) == pytest.approx(float(plain.exp()) * 1.5)


def test_counts_decay_per_round():
    calibration = Calibration(decay=0.5)
    tree = DraftTree.from_parents([1, 2], [-1, 0], [0.0, math.log(0.5)])
    draft = Draft(tree, rank=torch.tensor([0, 0]), score=tree.logq)
    for _ in range(3):
        calibration.observe(draft, [0, 1])
    assert float(calibration.labels.sum()) == pytest.approx(1 + 0.5 + 0.25)

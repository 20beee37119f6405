"""What the policy gets to see of the drafter, and when."""

from __future__ import annotations

from math import isnan

import pytest
import torch
from torch import Tensor

from adaptivespec.integrations.sglang.signals import Confidence


def top(*values: float) -> Tensor:
    """Two candidates for each request; the first counts."""
    return torch.tensor([[value, 0.1] for value in values])


class Group:
    """A tensor-parallel group in which rank 0 has other values."""

    world_size = 2

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def broadcast(self, tensor: Tensor, src: int) -> None:
        assert src == 0
        tensor.copy_(self.values)


def test_exact_reads_the_coming_round() -> None:
    confidence = Confidence("exact")
    confidence.store(["a"], top(0.2))
    assert confidence.read(["a", "b"], top(0.5, 0.75)) == [0.5, 0.75]


def test_history_reads_nothing() -> None:
    confidence = Confidence("history")
    confidence.store(["a"], top(0.2))
    assert confidence.read(["a"], top(0.5)) is None


def test_lag1_is_one_round_behind() -> None:
    confidence = Confidence("lag1")
    seen: list[list[float]] = []
    for value in (0.125, 0.25, 0.375, 0.5):
        confidence.store(["a"], top(value))  # the end of a round: values for the next
        seen.append(confidence.read(["a"], top(value)) or [])
    assert isnan(seen[0][0])  # not known yet
    assert seen[1:] == [[0.125], [0.25], [0.375]]


def test_lag1_follows_requests_not_rows() -> None:
    confidence = Confidence("lag1")
    confidence.store(["a", "b"], top(0.25, 0.75))
    confidence.store(["b"], top(0.875))
    known = confidence.read(["b", "c", "a"], top(0, 0, 0))
    assert known is not None
    assert (known[0], known[2]) == (0.75, 0.25)
    assert isnan(known[1])
    confidence.store(["b", "a"], top(0.125, 0.625))
    assert confidence.read(["a", "b"], top(0, 0)) == [0.25, 0.875]


def test_lag1_keeps_only_the_requests_of_the_batch() -> None:
    confidence = Confidence("lag1")
    for i in range(100):
        confidence.store([f"r{i}"], top(0.25))
        confidence.read([f"r{i}"], top(0.25))
    assert len(confidence._known) == 1
    assert len(confidence._copies) == 1


def test_rows_that_name_no_request_are_left_out() -> None:
    confidence = Confidence("lag1")
    confidence.store(["a"], None)
    confidence.store(["a", "b"], top(0.25))
    assert not confidence._copies


@pytest.mark.parametrize("mode", ["exact", "lag1"])
def test_every_rank_goes_by_rank_0(mode: str) -> None:
    confidence = Confidence(mode, Group(torch.tensor([0.125])))  # type: ignore[arg-type]
    confidence.store(["a"], top(0.75))
    confidence.store(["a"], top(0.75))
    assert confidence.read(["a"], top(0.75)) == [0.125]


def test_values_survive_the_buffer_they_came_from() -> None:
    confidence = Confidence("lag1")
    buffer = top(0.25)
    confidence.store(["a"], buffer)
    buffer.zero_()
    confidence.store(["a"], top(0.5))
    assert confidence.read(["a"], top(0)) == [0.25]

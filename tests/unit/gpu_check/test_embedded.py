"""Our own engine in the GPU check: graphs against passes without."""

from __future__ import annotations

import pytest
from gpu import embedded

from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from fakes import head_dialects, targets, tiny
from fakes.tape import Tape


class Wrong(Tape):
    """Replays nothing: what was captured first stays."""

    def capture(self, work):
        replays = super().capture(work)
        return lambda: replays() if self.replays == 0 else None


def test_graphs_that_compute_the_same_are_no_distance_apart():
    tape = Tape()
    assert embedded.deviation(targets.static(tape)) == pytest.approx(0.0, abs=1e-5)
    assert tape.replays == 2


def test_a_graph_that_is_not_replayed_is_found():
    assert embedded.deviation(targets.static(Wrong())) > 0.1


def test_without_graphs_there_is_nothing_to_compare():
    assert embedded.deviation(tiny.target()) is None


def test_a_pickled_head_is_read_from_a_copy(tmp_path):
    pickled, whole = (
        head_dialects.official(tmp_path / "one"),
        head_dialects.sglang(tmp_path / "two"),
    )
    copy = embedded.readable(str(pickled), tmp_path)
    assert Eagle3Checkpoint.load(copy).config.draft_vocab_size == 23
    assert embedded.readable(str(whole), tmp_path) == str(whole)

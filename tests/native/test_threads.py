"""The number of threads: what waiting is measured, and when fewer are taken. No result changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.engine.model.native_threads import LOST, Threads
from adaptivespec.native.library import Library, Mode, NativeModel, Rows
from fakes import targets, tiny
from native.chains import tokens_of

MakeTiny = Callable[..., Any]


def run(model: NativeModel, threads: int, rows: int = 8) -> list[float]:
    """What passes lose that run with `threads` threads."""
    lost: list[float] = []
    cache, tokens = model.new_cache(1), tokens_of(model, rows)
    for _ in range(30):
        batch = [Rows(cache, tokens)]
        model.forward(batch, mode=Mode.A8, threads=threads, stalled=lost.append)
    return lost


def test_what_waiting_costs_is_a_share(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    assert run(model, 1) == [0.0] * 30
    for threads in (2, 3, 8):
        assert all(0.0 <= lost <= 1.0 for lost in run(model, threads))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_threads_that_share_one_cpu_are_found_to_be_too_many(
    library: Library, make_tiny: MakeTiny
) -> None:
    mask = os.sched_getaffinity(0)

    def median_lost(attempt: int) -> float:
        model = make_tiny(layers=4, hidden=512, ffn=1024).native(library)
        # Workers that start now inherit it.
        os.sched_setaffinity(0, {sorted(mask)[attempt % len(mask)]})
        return sorted(run(model, 2, rows=64))[15]

    try:
        # One of two can work at a time. Wherever the other has to wait longer than it spins, that
        # counts: in all but the shortest phases. Where a third process has that CPU as well, the
        # worker may come too late for whole passes, which lose nothing then: hence the attempts.
        assert any(median_lost(attempt) > LOST for attempt in range(20))
    finally:
        os.sched_setaffinity(0, mask)


@pytest.mark.parametrize("threads", [2, 3, 5, 16])
def test_a_late_thread_changes_nothing(library: Library, make_tiny: MakeTiny, threads: int) -> None:
    """Passes end before all workers have come, and the next one begins, with other numbers too."""
    model = make_tiny(layers=1).native(library)
    mask = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mask)})  # most workers are late when they share a CPU
    try:
        caches = [model.new_cache(1) for _ in range(3)]
        tokens = [tokens_of(model, size, seed=size) for size in (1, 7, 40)]
        want = [c.forward(t, mode=Mode.A8, threads=1) for c, t in zip(caches, tokens, strict=True)]
        for _ in range(20):
            for number in (threads, 1, 2):
                for cache, ids, expected in zip(caches, tokens, want, strict=True):
                    got = cache.forward(ids, mode=Mode.A8, threads=number)
                    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    finally:
        os.sched_setaffinity(0, mask)


def test_a_callers_affinity_is_left_alone(library: Library, make_tiny: MakeTiny) -> None:
    before = os.sched_getaffinity(0)
    run(make_tiny().native(library), 3)
    assert os.sched_getaffinity(0) == before


# --- the choice ------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def passes(threads: Threads, lost: float, count: int = 1) -> list[int]:
    """The numbers of threads of `count` passes that lose `lost` unless they run alone."""
    taken = []
    for _ in range(count):
        taken.append(threads.now())
        threads.observe(taken[-1], lost if taken[-1] > 1 else 0.0)
    return taken


def test_a_busy_cpu_gets_one_thread_until_it_is_free_again() -> None:
    clock = Clock()
    threads = Threads(4, adaptive=True, clock=clock)
    assert passes(threads, 0.05, 20) == [4] * 20
    taken = passes(threads, 0.95, 20)
    assert taken[0] == 4
    assert taken[-1] == 1
    assert taken.count(4) <= 4  # four passes make up most of the level
    clock.now += 0.3
    assert passes(threads, 0.95, 5) == [4, 1, 1, 1, 1]  # one trial is enough
    clock.now += 0.3
    assert passes(threads, 0.95, 2) == [1, 1]  # and the next pause is longer
    clock.now += 10
    assert passes(threads, 0.0, 50) == [4] * 50


def test_pauses_stay_bounded_and_become_short_again() -> None:
    clock = Clock()
    threads = Threads(2, adaptive=True, clock=clock)
    passes(threads, 1.0, 10)
    for _ in range(20):
        clock.now += 8.1
        assert passes(threads, 1.0, 3) == [2, 1, 1]
    clock.now += 8.1
    passes(threads, 0.0, 30)
    passes(threads, 1.0, 30)
    clock.now += 0.3
    assert threads.now() == 2


def test_a_single_slow_pass_changes_nothing() -> None:
    threads = Threads(2, adaptive=True)
    for _ in range(10):
        assert passes(threads, 1.0) == [2]
        assert passes(threads, 0.1, 10) == [2] * 10


def test_a_fixed_number_is_fixed() -> None:
    assert passes(Threads(3), 1.0, 20) == [3] * 20
    assert passes(Threads(1, adaptive=True), 1.0, 20) == [1] * 20


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(1, 8))
def test_the_number_is_the_most_or_one(losses: list[float], most: int) -> None:
    clock = Clock()
    threads = Threads(most, adaptive=True, clock=clock)
    for lost in losses:
        assert passes(threads, lost) in ([1], [most])
        clock.now += lost


def test_auto_takes_no_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5})
    assert Threads.auto().most == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert Threads.auto().most == 2


def test_switching_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    targets.native()  # skips without a compiler
    weights = targets.native_weights(tiny.weights(targets.CONFIG))
    target = NativeTarget(weights, targets.CONFIG, tiny.MAX_LEN, Mode.A8, "auto")
    alone = targets.target("A8")
    random = np.random.default_rng(0)
    monkeypatch.setattr(target.threads, "now", lambda: int(random.integers(1, 4)))
    cache, other = target.new_cache(4), alone.new_cache(4)
    text = [5]
    for _ in range(30):
        tree = DraftTree.chain(text[-1:] + random.integers(0, 61, 3).tolist())
        got, want = target.verify(cache, tree), alone.verify(other, tree)
        assert torch.equal(got.logits, want.logits)
        text.append(int(got.logits[0].argmax()))
        target.commit(cache, [0])
        alone.commit(other, [0])


def test_more_threads_than_cpus_end_in_time() -> None:
    """Twelve threads on a few CPUs: all of them come to an end."""
    target = targets.native("A8", threads=4)
    want = targets.logits(target, [3, 1, 4])

    def decode(_: int) -> bool:
        return all(torch.equal(targets.logits(target, [3, 1, 4]), want) for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(decode, range(3)))

"""Rows of several sequences in one pass: each as if alone, bit for bit, and all or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model import native_target
from adaptivespec.engine.model.native_passes import groups
from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.native.library import (
    MAX_ROWS,
    Library,
    Mode,
    NativeCache,
    NativeError,
    NativeModel,
    Rows,
)
from fakes import targets
from native.chains import chain, tokens_of

MakeTiny = Callable[..., Any]


def random_tree(size: int, random: np.random.Generator) -> Any:
    return np.array([random.integers(-1, i) if i else -1 for i in range(size)], np.int32)


def filled(model: NativeModel, length: int, seed: int, mode: Mode) -> NativeCache:
    """A cache of `length` committed rows."""
    if not length:
        return model.new_cache(1)
    return chain(model, tokens_of(model, length, seed), [64], mode)[0]


@pytest.mark.parametrize("mode", [Mode.A8, Mode.A16])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("head_dim", [16, 32, 48])
def test_a_sequence_does_not_depend_on_the_others(
    library: Library, make_tiny: MakeTiny, head_dim: int, family: str, mode: Mode
) -> None:
    model = make_tiny(head_dim=head_dim, heads=4, family=family).native(library)
    random = np.random.default_rng(head_dim)
    for lengths, sizes in (
        ([5, 5, 5, 5, 5, 5, 5, 5], [1] * 8),
        ([0, 130, 16, 1, 63], [9, 1, 17, 33, 64]),
        ([7, 0], [200, 56]),
    ):
        asked = [None, [], *([random.integers(0, s, min(s, 3)).tolist() for s in sizes[2:]])]
        trees = [random_tree(size, random) for size in sizes]
        trees[0] = None
        drafted = [tokens_of(model, size, seed=size) for size in sizes]
        for threads in (1, 2, 3):
            caches = [filled(model, length, length, mode) for length in lengths]
            alone = [
                cache.forward(t, p, mode=mode, threads=1, tap_layers=[1, 0], asked=a)
                for cache, t, p, a in zip(caches, drafted, trees, asked, strict=True)
            ]
            batch = [Rows(*rows) for rows in zip(caches, drafted, trees, asked, strict=True)]
            together = model.forward(batch, mode=mode, threads=threads, tap_layers=[1, 0])
            for ours, want in zip(together, alone, strict=True):
                for got, expected in zip(ours, want, strict=True):
                    assert np.array_equal(got, expected)


def test_every_sequence_commits_its_own_path(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    texts = [list(tokens_of(model, 4 + 3 * i, seed=i)) for i in range(4)]
    caches = [filled(model, 4 + 3 * i, i, Mode.A8) for i in range(4)]
    random = np.random.default_rng(0)
    for _ in range(6):
        batch, paths = [], []
        for i, cache in enumerate(caches):
            size = int(random.integers(1, 9))
            tree, tokens = random_tree(size, random), random.integers(0, 75, size, dtype=np.int32)
            batch.append(Rows(cache, tokens, tree))
            path, node = [], int(random.integers(0, size))
            while node >= 0:
                path, node = [node, *path], int(tree[node])
            paths.append(path)
            texts[i] += tokens[path].tolist()
        model.forward(batch, mode=Mode.A8, threads=2)
        for cache, path in zip(caches, paths, strict=True):
            cache.commit(path)
    for cache, text in zip(caches, texts, strict=True):
        got = cache.forward(np.array([3], np.int32), mode=Mode.A8, threads=1)[0]
        ids = np.array([*text, 3], np.int32)
        assert np.array_equal(got[0], chain(model, ids, [64], Mode.A8)[1][-1])


def test_a_refused_batch_keeps_all_committed_rows(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny(max_len=40).native(library)
    first, second = (filled(model, 20, seed, Mode.A8) for seed in (1, 2))
    good = np.array([1, 2], np.int32)
    want = [c.forward(good, mode=Mode.A8, threads=1)[0] for c in (first, second)]

    def run(*batch: Rows) -> object:
        return model.forward(batch, mode=Mode.A8, threads=1)

    foreign = make_tiny(max_len=40).native(library).new_cache(1)
    for message, call in {
        "a token is 75": lambda: run(Rows(first, good), Rows(second, np.array([75], np.int32))),
        "a position is 40": lambda: run(Rows(first, good), Rows(second, np.ones(21, np.int32))),
        "sequences 0 and 1 have the same cache": lambda: run(Rows(first, good), Rows(first, good)),
        "of another model": lambda: run(Rows(first, good), Rows(foreign, good)),
        "an asked row is 2": lambda: run(Rows(first, good), Rows(second, good, None, [2])),
        "sequence_count is 0": lambda: run(),
        f"rows of all sequences is {MAX_ROWS + 1}": lambda: run(
            Rows(first, np.ones(MAX_ROWS, np.int32), np.full(MAX_ROWS, -1, np.int32)),
            Rows(second, np.ones(1, np.int32)),
        ),
    }.items():
        with pytest.raises(NativeError, match=message):
            call()
        assert first.length == second.length == 20
    with pytest.raises(NativeError, match="count is 1, expected 0 to 0"):
        second.commit([0])
    again = model.forward([Rows(first, good), Rows(second, good)], mode=Mode.A8, threads=2)
    assert all(np.array_equal(a[0], b) for a, b in zip(again, want, strict=True))


def test_a_cache_in_use_refuses_the_batch_and_nothing_changes(
    library: Library, make_tiny: MakeTiny
) -> None:
    model = make_tiny(layers=8, hidden=256, ffn=512, max_len=2048).native(library)
    busy, free = model.new_cache(1), filled(model, 9, 3, Mode.A8)
    rows = np.ones(2, np.int32)
    free.forward(rows, mode=Mode.A8, threads=1)  # its rows stay committable all the time
    refused, stop = [], threading.Event()

    def occupy() -> None:
        while not stop.is_set():
            with suppress(NativeError):  # the batch may be first
                busy.forward(np.ones(MAX_ROWS, np.int32), mode=Mode.A8, threads=1)

    worker = threading.Thread(target=occupy)
    worker.start()
    try:
        for _ in range(2000):
            try:
                model.forward([Rows(free, rows), Rows(busy, rows)], mode=Mode.A8, threads=1)
            except NativeError as error:
                refused.append(str(error))
                break
    finally:
        stop.set()
        worker.join()
    assert refused
    assert "in use by another call" in refused[0]
    free.commit([0, 1])
    assert free.length == 11


# --- the target ------------------------------------------------------------------------------

TAPS = (0, 2)


def trees_of(sizes: list[int], seed: int) -> list[DraftTree]:
    random = np.random.default_rng(seed)
    found = []
    for size in sizes:
        parents = [-1, *(int(random.integers(0, i)) for i in range(1, size))]
        found.append(DraftTree.from_parents(random.integers(0, 61, size).tolist(), parents))
    return found


@pytest.mark.parametrize("most", [4, 24, MAX_ROWS])
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    lengths=st.lists(st.integers(1, 40), min_size=6, max_size=6),
)
def test_verify_many_is_verify(most: int, sizes: list[int], lengths: list[int]) -> None:
    """Also where trees are wider or deeper than a pass, whose size is made smaller for this."""
    target = targets.target("A8")
    assert isinstance(target, NativeTarget)
    trees = trees_of(sizes, sum(lengths))
    caches = [target.new_cache(4) for _ in sizes]
    for cache, length in zip(caches, lengths, strict=False):
        target.prefill(cache, [(3 * length + i) % 61 for i in range(length)])
    want = [target.verify(*pair, TAPS) for pair in zip(caches, trees, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_target, "MAX_ROWS", most)
        got = target.verify_many(caches, trees, TAPS)
        for ours, alone in zip(got, want, strict=True):
            assert torch.equal(ours.logits, alone.logits)
            assert torch.equal(ours.taps, alone.taps)
            assert torch.equal(ours.hidden, alone.hidden)  # type: ignore[arg-type]
        for cache, tree in zip(caches, trees, strict=True):
            node, path = tree.num_nodes - 1, []
            while node >= 0:
                path, node = [node, *path], int(tree.parent[node])
            before = target.length(cache)
            target.commit(cache, path)
            assert target.length(cache) == before + len(path)


@given(st.lists(st.integers(1, MAX_ROWS), max_size=40))
def test_groups_fit_a_pass_and_are_few(sizes: list[int]) -> None:
    found = groups(dict(enumerate(sizes)), MAX_ROWS)
    assert sorted(at for group in found for at in group) == list(range(len(sizes)))
    totals = [sum(sizes[at] for at in group) for group in found]
    assert max(totals, default=0) <= MAX_ROWS
    # First fit leaves no two groups that would fit in one.
    assert all(a + b > MAX_ROWS for i, a in enumerate(totals) for b in totals[:i])

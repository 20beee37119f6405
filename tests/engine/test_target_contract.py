"""What every backend of the target interface promises: trees equal chains, steps equal prefills.

Torch is held to it up to rounding, the native engine bit for bit.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model import native_target, torch_target
from adaptivespec.engine.target import Target
from fakes import targets

TAPS = (1, 2, 4)
PROMPT = [5, 9, 11, 2, 40]

pytestmark = pytest.mark.parametrize("backend", targets.BACKENDS)


def same(backend: str, got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal, for torch nearly."""
    if backend in targets.ROUNDING:
        return torch.allclose(got, want, atol=1e-4)
    return torch.equal(got, want)


def fresh(target: Target[Any], ids: list[int]) -> Any:
    """One prefill of `ids` into an empty cache."""
    return target.prefill(target.new_cache(len(ids)), ids, TAPS)


@given(
    ids=st.lists(st.integers(0, 60), min_size=1, max_size=100),
    cuts=st.lists(st.integers(1, 12), min_size=0, max_size=4),
)
@settings(max_examples=25, deadline=None)
def test_prefill_does_not_depend_on_its_chunks(
    backend: str, ids: list[int], cuts: list[int]
) -> None:
    target = targets.target(backend)
    parts, taps, rest = target.new_cache(4), [], list(ids)
    want = fresh(target, ids)
    for cut in [*cuts, len(ids)]:
        if rest[:cut]:
            got = target.prefill(parts, rest[:cut], TAPS)
            taps.append(got.taps)
            rest = rest[cut:]
    assert same(backend, got.logits, want.logits)
    assert same(backend, got.hidden, want.hidden)
    assert same(backend, torch.cat(taps), want.taps)
    assert target.length(parts) == len(ids)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Random trees of up to 9 nodes in a topological order."""
    n = draw(st.integers(0, 8))
    parents = [-1, *(draw(st.integers(0, i)) for i in range(n))]
    return DraftTree.from_parents([draw(st.integers(0, 60)) for _ in range(n + 1)], parents)


def lineage(tree: DraftTree, node: int) -> list[int]:
    """Nodes from the root to `node`."""
    path, parents = [node], tree.parent.tolist()
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


@given(tree=trees())
@settings(max_examples=30, deadline=None)
def test_every_node_equals_its_path_as_a_chain(backend: str, tree: DraftTree) -> None:
    target = targets.target(backend)
    cache, tokens = target.new_cache(64), tree.token.tolist()
    target.prefill(cache, PROMPT)
    got = target.verify(cache, tree, TAPS)
    assert got.hidden is not None
    for node in range(tree.num_nodes):
        chain = fresh(target, [*PROMPT, *(tokens[i] for i in lineage(tree, node))])
        assert same(backend, got.logits[node], chain.logits[0])
        assert same(backend, got.hidden[node], chain.hidden[0])
        assert same(backend, got.taps[node], chain.taps[-1])
    assert target.length(cache) == len(PROMPT)


@pytest.mark.parametrize("path", [[0], [0, 2], [0, 2, 5], [0, 1, 3]])
def test_after_a_step_the_cache_is_that_of_a_fresh_prefill(backend: str, path: list[int]) -> None:
    target = targets.target(backend)
    tree = DraftTree.from_parents([7, 3, 4, 8, 8, 9], [-1, 0, 0, 1, 2, 2])
    cache = target.new_cache(6)
    target.prefill(cache, PROMPT)
    target.verify(cache, tree)
    target.verify(cache, tree)  # the rows of the first pass are forgotten
    target.commit(cache, path)
    ids = [*PROMPT, *(int(tree.token[i]) for i in path)]
    assert target.length(cache) == len(ids)
    got = target.verify(cache, DraftTree.root_only(13), TAPS)
    want = fresh(target, [*ids, 13])
    assert same(backend, got.logits, want.logits)
    assert same(backend, got.taps, want.taps[-1:])


def test_truncated_rows_are_forgotten(backend: str) -> None:
    target = targets.target(backend)
    cache = target.new_cache(4)
    target.prefill(cache, [*PROMPT, 1, 2, 3])
    target.truncate(cache, 99)
    assert target.length(cache) == len(PROMPT) + 3
    target.truncate(cache, len(PROMPT))
    assert target.length(cache) == len(PROMPT)
    got = target.prefill(cache, [17], TAPS)
    want = fresh(target, [*PROMPT, 17])
    assert same(backend, got.logits, want.logits)
    target.truncate(cache, 0)
    assert same(backend, target.prefill(cache, PROMPT).logits, fresh(target, PROMPT).logits)


def test_caches_take_turns(backend: str) -> None:
    target = targets.target(backend)
    caches = [target.new_cache(4) for _ in range(3)]
    texts: list[list[int]] = [[3 * i + 1] for i in range(3)]
    for step in range(20):
        for cache, text in zip(caches, texts, strict=True):
            out = target.prefill(cache, text[target.length(cache) :])
            text.append((int(out.logits.argmax()) + step) % 61)
    for cache, text in zip(caches, texts, strict=True):
        got = target.verify(cache, DraftTree.root_only(text[-1]))
        assert same(backend, got.logits, fresh(target, text).logits)


def test_untapped_layers_give_no_columns(backend: str) -> None:
    target = targets.target(backend)
    cache, width = target.new_cache(4), target.limits.hidden_size
    assert target.prefill(cache, PROMPT).taps.shape == (len(PROMPT), 0)
    tapped = target.verify(cache, DraftTree.chain([4, 5]), (0,)).taps
    assert tapped.shape == (2, width)


def test_a_prefill_tells_how_far_it_is(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, told = targets.target(backend), []
    for module in (torch_target, native_target):
        monkeypatch.setattr(module, "PREFILL_ROWS", 8)
    ids = [(7 * i) % 61 for i in range(20)]
    got = target.prefill(target.new_cache(4), ids, TAPS, progress=lambda *of: told.append(of))
    assert told == [(8, 20), (16, 20), (20, 20)]
    assert same(backend, got.logits, fresh(target, ids).logits)
    assert got.taps.shape[0] == 20


@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_a_large_tree_equals_its_paths(backend: str, shape: str) -> None:
    """Of more nodes than any policy drafts."""
    target = targets.target(backend)
    parents = [-1, *([max(0, i - 3) for i in range(1, 90)] if shape == "wide" else range(80))]
    tree = DraftTree.from_parents([(7 * i + 3) % 61 for i in range(len(parents))], parents)
    cache, tokens = target.new_cache(16), tree.token.tolist()
    target.prefill(cache, PROMPT)
    got = target.verify(cache, tree, TAPS)
    last = tree.num_nodes - 1
    for node in (0, 1, 63, 64, 70, last):
        want = fresh(target, [*PROMPT, *(tokens[i] for i in lineage(tree, node))])
        assert same(backend, got.logits[node], want.logits[0])
        assert same(backend, got.taps[node], want.taps[-1])
    path = lineage(tree, last)
    target.commit(cache, path)
    assert target.length(cache) == len(PROMPT) + len(path)
    after = target.verify(cache, DraftTree.root_only(6))
    ids = [*PROMPT, *(tokens[i] for i in path), 6]
    assert same(backend, after.logits, fresh(target, ids).logits)


@given(rows=st.integers(0, 40), held=st.integers(0, 30), more=st.integers(1, 5))
@settings(max_examples=25)
def test_copied_rows_are_those_of_a_prefill(backend: str, rows: int, held: int, more: int) -> None:
    target = targets.target(backend)
    ids = [(7 * i + 3) % 61 for i in range(40)]
    source, cache = target.new_cache(4), target.new_cache(2)
    target.prefill(source, ids)
    if held:
        target.prefill(cache, ids[::-1][:held])
    assert target.copy(cache, source, rows)
    assert target.length(cache) == rows
    target.truncate(source, 0)
    target.prefill(source, [9] * 45)  # the two have nothing in common any more
    tail = [5, 11, 2, 8, 1][:more]
    got = target.prefill(cache, tail, TAPS)
    want = fresh(target, [*ids[:rows], *tail])
    assert same(backend, got.logits, want.logits)
    assert same(backend, got.taps, want.taps[rows:])

"""Prompt lookup: what is looked up, at which odds, and what taking tokens back leaves."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.draft import ngram_index
from adaptivespec.draft.ngram_index import LONGEST, NgramIndex
from adaptivespec.policy.plan import Keep, Stop, TreePlan
from fakes.drafters import NO_TAPS, VOCAB, ngram, state_of

texts = st.lists(st.integers(0, 3), max_size=60)
CHAIN = TreePlan(6, 1, 7)
TREE = TreePlan(4, 3, 12)


def occurrences(tokens: list[int], context: list[int]) -> list[int]:
    """What followed `context`, the latest first."""
    size = len(context)
    ends = range(len(tokens) - 1, size - 1, -1)
    return [tokens[end] for end in ends if tokens[end - size : end] == context]


def reference(tokens: list[int], path: list[int], window: int) -> dict[int, float]:
    """Partial matching by searching the whole text at every length."""

    def rate(length: int) -> float:
        hits = tries = 0
        for here in range(max(1, len(tokens) - window), len(tokens)):
            before = tokens[:here]
            for asked in range(min(LONGEST, here), 0, -1):
                followed = occurrences(before, before[here - asked :])
                hit = tokens[here] in followed
                if followed and asked == length:
                    tries, hits = tries + 1, hits + hit
                if hit:
                    break
        return (hits + 1) / (tries + 2)

    odds: dict[int, float] = {}
    left, tail = 1.0, [*tokens, *path]
    for length in range(min(LONGEST, len(tail)), 0, -1):
        followed = occurrences(tokens, tail[len(tail) - length :])[: ngram_index.MOST_READ]
        if not followed:
            continue
        counts = Counter(token for token in followed if token not in odds)
        for token, count in counts.items():
            odds[token] = left * rate(length) * count / counts.total()
        left *= 1 - rate(length)
    return odds


@given(tokens=texts, path=st.lists(st.integers(0, 3), max_size=4), most=st.integers(1, 5))
def test_odds_are_those_of_partial_matching(tokens: list[int], path: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_index, "WINDOW", 6)
        patch.setattr(ngram_index, "MOST_READ", 3)
        got = NgramIndex(tokens).offers(path, most)
        want = reference(tokens, path, 6)
    assert [q for _, q in got] == pytest.approx(sorted(want.values(), reverse=True)[:most])
    assert dict(got) == pytest.approx({token: want[token] for token, _ in got})
    assert all(0 < q < 1 for _, q in got)
    assert sum(want.values()) < 1


@given(tokens=texts, more=texts, size=st.integers(0, 60))
def test_taking_back_leaves_no_trace(tokens: list[int], more: list[int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_index, "WINDOW", 6)
        index = NgramIndex(tokens)
        index.truncate(size)
        kept = tokens[:size]
        assert vars(index) == vars(NgramIndex(kept))
        index.extend(more)
        assert vars(index) == vars(NgramIndex([*kept, *more]))
        taken = NgramIndex(tokens).copy(size)
        assert vars(taken) == vars(NgramIndex(kept))


def test_a_copy_stands_alone() -> None:
    index = NgramIndex([1, 2, 3] * 5)
    copies = [index.copy(15), index.copy(2)]
    index.extend([3, 3, 3])
    assert [vars(copy) for copy in copies] == [
        vars(NgramIndex([1, 2, 3] * 5)),
        vars(NgramIndex([1, 2])),
    ]


def test_what_is_copied_word_for_word_is_soon_nearly_certain() -> None:
    rng = random.Random(0)
    once = [rng.randrange(50) for _ in range(150)]
    index = NgramIndex([*once, *once[:80]])
    (token, q), *_ = index.offers((), 3)
    assert token == once[80]
    assert q > 0.95
    fresh = NgramIndex([*once, *once[:1]]).offers((), 1)
    assert fresh[0][1] < 0.5


def test_a_repetition_is_drafted_to_its_end() -> None:
    drafter = ngram()
    draft = drafter.draft(state_of(drafter, [5, 1, 2, 3, 4, 9, 9, 5, 1]), CHAIN)
    assert draft.tree.validate().token.tolist() == [1, 2, 3, 4, 9, 9, 5]
    assert draft.tree.parent.tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert draft.num_levels == 6


def test_several_continuations_make_a_tree() -> None:
    drafter = ngram()
    text = [7, 1, 30, 9, 7, 2, 40, 8, 7, 1, 30, 6, 7]
    draft = drafter.draft(state_of(drafter, text), TreePlan(2, 2, 5))
    tree = draft.tree.validate()
    assert tree.token.tolist() == [7, 1, 2, 30, 40]
    assert tree.parent.tolist() == [-1, 0, 0, 1, 2]
    assert draft.rank is not None
    assert draft.rank.tolist() == [0, 0, 1, 0, 0]


def test_where_nothing_repeats_nothing_is_drafted() -> None:
    drafter = ngram()
    state = state_of(drafter, [1, 2, 3, 4])
    assert drafter.confidence(state) == 0.0
    for plan in (CHAIN, TREE, TreePlan.fixed(((0,), (1,), (0, 0), (0, 1)))):
        draft = drafter.draft(state, plan)
        assert draft.tree.num_nodes == 1
        assert draft.num_candidates == 0


def test_the_first_token_of_a_prompt_counts() -> None:
    drafter = ngram()
    state = state_of(drafter, [8, 6, 8])
    assert drafter.draft(state, CHAIN).tree.token.tolist()[:2] == [8, 6]
    assert drafter.length(state) == 2
    drafter.truncate(state, 0)
    drafter.begin(state, 3)
    drafter.observe(state, [4, 3], NO_TAPS)
    assert drafter.draft(state, CHAIN).tree.token.tolist()[:2] == [3, 4]


plans = st.sampled_from(
    [
        CHAIN,
        TREE,
        TreePlan(5, 4, 60),
        TreePlan(0, 1, 9),
        replace(TREE, keep=Keep(width=2, relative=0.3, drop=True)),
        replace(CHAIN, stop=Stop(min_confidence=0.4)),
        replace(TREE, stop=Stop(min_gain=0.1, min_path=0.05, full=True)),
        replace(TREE, prices=((1, 0.0), (2, 0.2), (4, 0.5), (8, 1.5))),
        TreePlan.fixed(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))),
    ]
)


@given(tokens=st.lists(st.integers(0, 5), min_size=1, max_size=40), plan=plans)
def test_plans_are_bounds(tokens: list[int], plan: TreePlan) -> None:
    drafter = ngram()
    draft = drafter.draft(state_of(drafter, tokens), plan)
    tree = draft.tree.validate()
    assert tree.num_nodes <= max(1, plan.num_draft_tokens)
    assert tree.max_depth <= plan.num_steps
    counts = Counter(tree.parent.tolist()[1:])
    assert max(counts.values(), default=0) <= plan.topk
    assert tree.num_nodes - 1 <= draft.num_candidates
    if draft.score is not None and draft.rank is not None:
        assert torch.isfinite(draft.score).all()
        assert len({*zip(tree.parent.tolist(), draft.rank.tolist(), strict=True)}) == tree.num_nodes
        path = tree.logq.clone()
        for node, parent in enumerate(tree.parent.tolist()):
            path[node] += path[parent] if parent >= 0 else 0.0
        assert draft.score.tolist() == pytest.approx(path.tolist(), abs=1e-5)


@given(tokens=st.lists(st.integers(0, 5), min_size=1, max_size=40), seed=st.integers(0, 9))
def test_drawn_drafts_are_whole_and_carry_their_law(tokens: list[int], seed: int) -> None:
    drafter = ngram()
    sampler = Sampler(SamplingParams(temperature=1.0, seed=seed), VOCAB, frozenset(), tokens)
    plan = TreePlan.fixed(((0,), (1,), (0, 0), (0, 1)))
    tree = drafter.draft(state_of(drafter, tokens), plan, sampler).tree.validate()
    assert tree.num_nodes == 5
    assert tree.q is not None
    assert tree.q[[0, int((tree.depth == 1).nonzero()[0])]].sum(-1).tolist() == pytest.approx(
        [1, 1]
    )
    for node in range(1, 5):
        want = float(tree.logq[node].exp())
        assert float(tree.q[tree.parent[node], tree.token[node]]) == pytest.approx(want)


@given(
    tokens=st.lists(st.integers(0, 4), min_size=2, max_size=40),
    read=st.integers(1, 40),
    rows=st.integers(0, 40),
)
def test_states_are_cut_and_copied_by_rows(tokens: list[int], read: int, rows: int) -> None:
    drafter = ngram()
    state = state_of(drafter, tokens[:read])
    drafter.confidence(state)  # indexes
    drafter.observe(state, tokens[read:], NO_TAPS)
    rows = min(rows, drafter.length(state))
    other = drafter.new_state(1)
    assert drafter.copy(other, state, rows)
    drafter.truncate(state, rows)
    for cut in (state, other):
        assert drafter.length(cut) == rows
        drafter.observe(cut, [3, 1], NO_TAPS)
        assert vars(cut.read()) == vars(NgramIndex([*tokens[: rows + 1], 3, 1]))

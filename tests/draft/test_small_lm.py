"""A small model as drafter: its laws are the model's own, however it came by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptivespec.core.errors import CheckpointError
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.small_lm import SmallLMDrafter, check_vocabulary
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.policy.plan import TreePlan
from fakes import targets, tiny
from fakes.drafters import NO_TAPS, VOCAB, small_lm, state_of

PROMPT = [5, 9, 11, 2, 40, 7, 33]
TREE = TreePlan(4, 3, 14)


def log_law(model: Any, ids: list[int]) -> torch.Tensor:
    """f32[V]: the model's law after `ids`, in one pass."""
    return targets.logits(model, ids)[-1].float().log_softmax(-1)


def check(draft: Any, model: Any, before: list[int]) -> None:
    """Every node's log q is the model's, given the whole path."""
    tree = draft.tree.validate()
    paths: list[list[int]] = [before]
    tokens, parents = tree.token.tolist(), tree.parent.tolist()
    for node in range(1, tree.num_nodes):
        above = paths[parents[node]]
        want = float(log_law(model, above)[tokens[node]])
        assert float(tree.logq[node]) == pytest.approx(want, abs=1e-3)
        paths.append([*above, tokens[node]])


@pytest.mark.parametrize("backend", ["torch", "captured", "A16"])
@pytest.mark.parametrize("plan", [TREE, TreePlan(5, 1, 6), TreePlan(3, 8, 40)])
def test_q_is_the_models_own(backend: str, plan: TreePlan) -> None:
    model = targets.target(backend)
    drafter = SmallLMDrafter(model, VOCAB)
    state = state_of(drafter, PROMPT)
    draft = drafter.draft(state, plan)
    assert draft.tree.num_nodes == plan.num_draft_tokens
    check(draft, model, PROMPT)
    again = drafter.draft(state, plan)
    assert torch.equal(draft.tree.token, again.tree.token)
    assert drafter.length(state) == len(PROMPT) - 1


def test_confidence_is_the_likeliest_at_the_root() -> None:
    drafter = small_lm()
    state = state_of(drafter, PROMPT)
    want = float(log_law(drafter.model, PROMPT).max().exp())
    assert drafter.confidence(state) == pytest.approx(want, abs=1e-4)
    drafter.draft(state, TREE)
    assert drafter.confidence(state) == pytest.approx(want, abs=1e-4)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["observe", "draft", "follow", "truncate", "copy", "confidence"]),
            st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4),
        ),
        max_size=8,
    )
)
@settings(max_examples=15)
def test_whatever_happened_the_law_is_that_of_the_tokens(steps: Any) -> None:
    drafter = small_lm()
    state, tokens = state_of(drafter, PROMPT), list(PROMPT)
    for name, more in steps:
        if name == "truncate" and len(tokens) > 2:
            rows = max(1, len(tokens) - 1 - len(more))
            drafter.truncate(state, rows)
            tokens = tokens[: rows + 1]
        elif name == "draft":
            drafter.draft(state, TREE)
        elif name == "confidence":
            drafter.confidence(state)
        elif name == "copy":
            other, rows = drafter.new_state(1), max(1, len(tokens) - len(more))
            assert drafter.copy(other, state, rows)
            state, tokens = other, tokens[: rows + 1]
        else:
            if name == "follow":
                more = drafter.draft(state, TreePlan(len(more), 1, 9)).tree.token.tolist()[1:]
            drafter.observe(state, more, NO_TAPS)
            tokens += more
        assert drafter.length(state) == len(tokens) - 1
    check(drafter.draft(state, TreePlan(3, 2, 7)), drafter.model, tokens)


def test_what_was_cut_and_said_otherwise_is_read_again() -> None:
    drafter = small_lm()
    state = state_of(drafter, PROMPT)
    drafter.draft(state, TREE)
    drafter.truncate(state, 3)
    drafter.observe(state, [50, 51, 52, 53, 54], NO_TAPS)
    check(drafter.draft(state, TREE), drafter.model, [*PROMPT[:4], 50, 51, 52, 53, 54])


def test_a_chain_runs_a_row_per_level(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = small_lm()
    state = state_of(drafter, PROMPT)
    rows: list[int] = []
    verify = TorchTarget.verify

    def counted(self: Any, cache: Any, tree: DraftTree, *more: Any) -> Any:
        rows.append(tree.num_nodes)
        return verify(self, cache, tree, *more)

    monkeypatch.setattr(TorchTarget, "verify", counted)
    drafted = drafter.draft(state, TreePlan(5, 1, 6)).tree.token.tolist()[1:]
    assert rows == [1] * 5
    drafter.observe(state, [*drafted[:3], 60], NO_TAPS)
    prefilled: list[int] = []
    prefill = TorchTarget.prefill

    def read(self: Any, cache: Any, tokens: Any, *more: Any) -> Any:
        prefilled.extend(tokens)
        return prefill(self, cache, tokens, *more)

    monkeypatch.setattr(TorchTarget, "prefill", read)
    drafter.confidence(state)
    assert prefilled == []  # root and followed drafts were run while drafting


def test_drawn_drafts_carry_the_models_law() -> None:
    drafter = small_lm()
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1), VOCAB, frozenset(), PROMPT)
    tree = drafter.draft(state_of(drafter, PROMPT), TreePlan(3, 1, 4), sampler).tree
    assert tree.q is not None
    assert tree.q.shape == (4, VOCAB)
    want = log_law(drafter.model, PROMPT).exp()
    assert torch.allclose(tree.q[0], want, atol=1e-4)


def test_features_are_the_models_last_stream() -> None:
    drafter = small_lm()
    tree = drafter.draft(state_of(drafter, PROMPT), TREE, keep_hidden=True).tree
    assert tree.hidden is not None
    assert tree.hidden.shape == (TREE.num_draft_tokens, tiny.CONFIG.hidden_size)
    first, second = (int(node) for node in (tree.depth == 1).nonzero()[:2])
    assert torch.equal(tree.hidden[first], tree.hidden[second])


@pytest.mark.parametrize("more", [0, 1, 2, 5])
def test_nothing_is_drafted_past_the_small_models_context(more: int) -> None:
    model = tiny.target()
    model.limits = replace(model.limits, max_model_len=8)
    drafter = SmallLMDrafter(model, VOCAB)
    state = state_of(drafter, [*PROMPT, *range(more)])
    room = max(0, 8 - len(PROMPT) - more + 1)
    assert drafter.draft(state, TreePlan(5, 2, 30)).tree.max_depth == room
    assert (drafter.confidence(state) > 0) == (room > 0)


@pytest.mark.parametrize("size", [40, 61, 80])
def test_vocabularies_may_be_padded(size: int) -> None:
    model = tiny.target(replace(tiny.CONFIG, vocab_size=size))
    drafter = SmallLMDrafter(model, VOCAB)
    state = state_of(drafter, [*PROMPT, 60])  # a token that the smallest does not have
    tree = drafter.draft(state, TreePlan(3, 4, 20)).tree.validate()
    assert int(tree.token[1:].max()) < min(size, VOCAB)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1), VOCAB, frozenset(), PROMPT)
    drawn = drafter.draft(state, TreePlan(2, 1, 3), sampler).tree
    assert drawn.q is not None
    assert drawn.q.shape[-1] == VOCAB


def test_vocabularies_that_agree_pass() -> None:
    words = {"a": 0, "b": 1, "c": 2}
    check_vocabulary(words, words)
    check_vocabulary(words, words | {"<pad>": 3})
    check_vocabulary(words | {"<pad>": 3}, words)


@pytest.mark.parametrize("small", [{"a": 0, "c": 1}, {"a": 1, "b": 0, "c": 2}, {"a": 5}])
def test_vocabularies_that_differ_are_refused(small: dict[str, int]) -> None:
    with pytest.raises(CheckpointError, match=r"draft_model.*token"):
        check_vocabulary(small, {"a": 0, "b": 1, "c": 2})

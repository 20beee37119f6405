"""Grafting: two trees under one law, chosen from as the plan says."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.draft.graft import GraftDrafter, grafted, merged
from adaptivespec.draft.ngram_index import NgramIndex
from adaptivespec.policy.acceptance import Calibration
from adaptivespec.policy.plan import Keep, Stop, TreePlan
from fakes import tiny
from fakes.drafters import VOCAB, ngram, state_of
from fakes.offers import FIRST, ROOT, SECOND, grow
from fakes.scripted import ScriptedDrafter

#: Tokens 30, 31, ... are what the text repeats.
COPY = [ROOT, *range(30, 40)]


def copied(times: int) -> NgramIndex:
    """A text that has repeated itself so often, and has just said the root again."""
    return NgramIndex([*COPY * times, ROOT])


def main_draft(plan: TreePlan) -> Draft:
    """Tokens 100, 101, 102 at the root, 200 to 202 and 203 to 205 below the first two."""
    return grow(plan, FIRST, SECOND).draft()


def paths(draft: Draft) -> set[tuple[int, ...]]:
    tokens, parents = draft.tree.token.tolist(), draft.tree.parent.tolist()
    made: list[tuple[int, ...]] = [()]
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        made.append((*made[parent], token))
    return {*made}


offers = st.dictionaries(st.integers(0, 6), st.floats(0.01, 0.3), max_size=3).map(
    lambda odds: sorted(odds.items(), key=lambda pair: -pair[1])
)


@given(ours=offers, theirs=offers, most=st.integers(1, 6))
def test_one_law_of_two(ours: Any, theirs: Any, most: int) -> None:
    law = merged(ours, theirs, most)
    values = [q for _, q in law]
    assert values == sorted(values, reverse=True)
    assert len(dict(law)) == len(law) == min(most, len({*dict(ours), *dict(theirs)}))
    assert sum(values) <= 1 + 1e-9
    both = {
        token: max(dict(ours).get(token, 0), dict(theirs).get(token, 0))
        for token in {*dict(ours), *dict(theirs)}
    }
    scale = max(1.0, sum(both.values()))
    assert dict(law) == pytest.approx({token: both[token] / scale for token, _ in law})


def test_siblings_whose_sum_is_too_large_are_scaled_down() -> None:
    law = merged([(1, 0.6), (2, 0.3)], [(3, 0.9)], 3)
    assert [token for token, _ in law] == [3, 1, 2]
    assert [q for _, q in law] == pytest.approx([0.5, 0.6 / 1.8, 0.3 / 1.8])
    assert merged([(1, 0.6)], [], 3) == [(1, 0.6)]


def test_a_copy_displaces_the_least() -> None:
    plan = TreePlan(2, 3, 7, keep=Keep(width=2))
    before = main_draft(plan)
    draft = grafted(before, copied(6), plan)
    tree = draft.tree.validate()
    assert tree.num_nodes == 7
    assert {(30,), (30, 31)} <= paths(draft)
    assert draft.reason["grafted"] == len(paths(draft) - paths(before)) >= 2
    assert draft.reason["stopped"] == before.reason["stopped"]
    assert draft.num_levels == before.num_levels
    assert draft.num_candidates > before.num_candidates
    assert draft.score is not None
    dropped = paths(before) - paths(draft)
    assert (100,) not in dropped


def test_a_weak_repetition_displaces_nothing_that_is_likelier() -> None:
    plan = TreePlan(1, 3, 4)
    before = grow(plan, [[0.6, 0.3, 0.09]]).draft()
    draft = grafted(before, NgramIndex([ROOT, 50, 51, ROOT]), plan)
    assert draft.score is not None
    scores = draft.score.exp().tolist()
    assert scores[1] == max(scores[1:])
    assert int(draft.tree.token[1]) == 100


def test_a_chain_stays_a_chain() -> None:
    plan = TreePlan(4, 1, 5)
    before = grow(plan, [[0.5]], [[0.5]], [[0.5]], [[0.5]]).draft()
    draft = grafted(before, copied(6), plan)
    assert draft.tree.validate().parent.tolist() == [-1, 0, 1, 2, 3]
    assert draft.tree.token.tolist() == [ROOT, 30, 31, 32, 33]


def test_a_graft_grows_below_the_main_drafters_nodes() -> None:
    plan = TreePlan(4, 1, 5)
    before = grow(plan, [[0.9]], [[0.1]], [[0.9]], [[0.9]]).draft()  # tokens 100, 200, 300, 400
    text = NgramIndex([*[100, 31, 32, 33] * 8, ROOT])
    assert grafted(before, text, plan).tree.token.tolist() == [ROOT, 100, 31, 32, 33]


def test_grafted_nodes_are_priced_like_any() -> None:
    prices = tuple((size, 0.3 * (size - 1)) for size in range(1, 9))
    plan = TreePlan(5, 3, 8, prices=prices)
    alone = grow(plan, [[0.5, 0.1, 0.1]], [[0.2, 0.1, 0.1]] * 3, [[0.1, 0.1, 0.1]] * 3).draft()
    assert alone.tree.num_nodes == 2  # a node must score 0.3
    draft = grafted(alone, copied(8), plan)
    assert draft.score is not None
    assert float(draft.score.min().exp()) >= 0.3
    assert draft.tree.num_nodes > 2
    assert draft.reason["nodes"] == draft.tree.num_nodes
    dear = TreePlan(5, 3, 8, keep=Keep(width=2), prices=((1, 0.0), (2, 5.0)))
    assert grafted(grow(dear, FIRST, SECOND).draft(), copied(8), dear).tree.num_nodes == 1


@given(
    text=st.lists(st.sampled_from([ROOT, 100, 101, 102, 200, 203]), max_size=30),
    plan=st.sampled_from(
        [
            TreePlan(3, 3, 9, keep=Keep(width=2)),
            TreePlan(2, 3, 30, keep=Keep(width=2, relative=0.5, drop=True)),
            TreePlan(3, 3, 8, keep=Keep(width=2), stop=Stop(min_gain=0.2)),
            TreePlan(3, 3, 9, keep=Keep(width=2), acceptance=Calibration().acceptance()),
            TreePlan.fixed(((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 2))),
        ]
    ),
)
def test_plans_are_bounds(text: list[int], plan: TreePlan) -> None:
    levels = [FIRST, SECOND[:2]] if not plan.positions else [FIRST, SECOND]
    before = grow(plan, *levels).draft()
    draft = grafted(before, NgramIndex([*text, ROOT]), plan)
    tree = draft.tree.validate()  # siblings distinct, parents before children
    assert tree.num_nodes <= plan.num_draft_tokens
    assert tree.max_depth <= plan.num_steps
    assert draft.rank is not None
    assert draft.score is not None
    parents = tree.parent.tolist()
    assert len({*zip(parents, draft.rank.tolist(), strict=True)}) == tree.num_nodes
    assert int(draft.rank.max()) < plan.topk
    for node in range(1, tree.num_nodes):
        assert draft.score[node] <= draft.score[parents[node]] + 1e-5
    for node in range(tree.num_nodes):
        children = [i for i, parent in enumerate(parents) if parent == node]
        assert sum(math.exp(float(tree.logq[i])) for i in children) <= 1 + 1e-5


@pytest.mark.parametrize("asked", ["drawn", "features"])
def test_what_has_no_law_or_feature_is_not_grafted(asked: str) -> None:
    target = tiny.target()
    drafter = GraftDrafter(tiny.drafter(target), ngram())
    prompt = [*[5, 9, 11, 2, 40] * 4, 5]
    taps = target.prefill(target.new_cache(64), prompt[:-1], drafter.tap_layers).taps
    state = drafter.new_state(4)
    drafter.begin(state, prompt[0])
    drafter.observe(state, prompt[1:], taps)
    plan = TreePlan(3, 1, 4)
    assert drafter.draft(state, plan).reason["grafted"] == 3
    if asked == "drawn":
        sampler = Sampler(SamplingParams(temperature=1.0, seed=1), VOCAB, frozenset(), prompt)
        draft = drafter.draft(state, plan, sampler)
        assert draft.tree.q is not None
    else:
        draft = drafter.draft(state, plan, keep_hidden=True)
        assert draft.tree.hidden is not None
    assert "grafted" not in draft.reason


class OneToken(ScriptedDrafter):
    """Drafts one token that nothing repeats."""

    def __init__(self) -> None:
        super().__init__(lambda prefix: [(50, -1)])


def drafted(text: list[int], plan: TreePlan) -> tuple[Draft, int]:
    """The draft after a text, and how often the main drafter was asked."""
    main = OneToken()
    drafter = GraftDrafter(main, ngram())
    draft = drafter.draft(state_of(drafter, text), plan)
    return draft, main.drafts


def test_a_continuation_that_suffices_saves_the_main_drafters_passes() -> None:
    draft, asked = drafted([*COPY * 8, ROOT], TreePlan(4, 1, 5))
    assert asked == 0
    assert draft.tree.validate().token.tolist() == [ROOT, 30, 31, 32, 33]
    assert draft.reason["grafted"] == 4
    assert draft.num_levels == 1


def test_a_single_level_is_grafted_as_it_costs_no_pass() -> None:
    draft, asked = drafted([*COPY * 8, ROOT, 30, 31], TreePlan(1, 2, 3))
    assert asked == 1
    assert sorted(draft.tree.token.tolist()) == [31, 32, 50]
    assert draft.reason["grafted"] == 1


def test_a_copy_that_does_not_reach_as_deep_as_the_plan_is_grafted() -> None:
    plan = TreePlan(4, 2, 9, stop=Stop(min_path=0.99))
    draft, asked = drafted([*COPY * 8, ROOT], plan)
    assert asked == 1
    assert {(30,), (50,)} <= paths(draft)


@pytest.mark.parametrize("text", [[ROOT, 30, 31], [ROOT, 30, ROOT, 31, ROOT, 32, 33, 34, ROOT]])
def test_where_nothing_is_likely_to_repeat_the_main_drafter_drafts_alone(text: list[int]) -> None:
    draft, asked = drafted(text, TreePlan(4, 2, 9))
    assert asked == 1
    assert draft.tree.token.tolist() == [text[-1], 50]
    assert "grafted" not in draft.reason


def test_both_states_are_cut_and_copied_together() -> None:
    drafter = GraftDrafter(ngram(), ngram())
    state, other = state_of(drafter, [*COPY, *COPY]), drafter.new_state(1)
    assert drafter.copy(other, state, 15)
    drafter.truncate(state, 15)
    for cut in (state, other):
        assert drafter.length(cut) == 15
        assert vars(cut.ngram.read()) == vars(NgramIndex([*COPY, *COPY[:5]]))
        assert drafter.confidence(cut) > 0


def test_a_main_drafter_that_cannot_copy_leaves_both_as_they_were() -> None:
    drafter = GraftDrafter(OneToken(), ngram())
    state, other = state_of(drafter, COPY), state_of(drafter, [1, 2, 3])
    assert not drafter.copy(state, other, 1)
    assert state.ngram.read().tokens == COPY


def test_a_continuation_that_the_main_drafter_has_too_changes_nothing() -> None:
    drafter = GraftDrafter(ScriptedDrafter(lambda prefix: [(30, -1), (50, -1)]), ngram())
    draft = drafter.draft(state_of(drafter, [*COPY * 8, ROOT]), TreePlan(1, 2, 3))
    assert draft.tree.token.tolist() == [ROOT, 30, 50]
    assert "grafted" not in draft.reason

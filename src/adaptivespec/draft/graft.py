"""Two drafters in one tree: where the text repeats itself, its earlier continuation is grafted on.

A node of the main drafter's tree and what followed the same tokens before are offered together,
under one law: a token that both know keeps the larger of its probabilities, and siblings are
scaled down where their sum would exceed 1.  `Growth` then chooses among them as the plan says, so
that a grafted node competes and is priced like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.growth import Growth
from adaptivespec.draft.ngram import NgramDrafter, NgramState, Offers, next_paths, padded
from adaptivespec.draft.ngram_index import NgramIndex
from adaptivespec.policy.base import TreePlan

#: Probability that an earlier continuation must exceed to be grafted on: less likely ones saved no
#: step worth their time where it was measured (docs/drafters.md).
REPEATS = 0.35
#: And that of a whole path that makes the main drafter's passes needless: more likely than not.
SUFFICES = 0.5

_Path = tuple[int, ...]


@dataclass
class GraftState:
    """One sequence: what each of the two knows of it."""

    main: Any
    ngram: NgramState


class GraftDrafter(Drafter[GraftState]):
    """A main drafter, with the n-grams of the text grafted onto its trees.

    Its confidence and features are the main drafter's.  Drawn drafts and trees that carry features
    are the main drafter's alone: a grafted node has neither a law it was drawn from nor a feature.

    Where a continuation as deep as the plan is more likely than not, the main drafter's passes are
    saved.  Levels of a tree are counted as the main drafter grew them: a grafted one costs no pass.

    Args:
        main: grows the tree that is grafted on.
        ngram: knows what followed before.
    """

    def __init__(self, main: Drafter[Any], ngram: NgramDrafter) -> None:
        self.main, self.ngram = main, ngram
        self.tap_layers = main.tap_layers

    def new_state(self, capacity: int) -> GraftState:
        return GraftState(self.main.new_state(capacity), self.ngram.new_state(capacity))

    def begin(self, state: GraftState, first: int) -> None:
        self.main.begin(state.main, first)
        self.ngram.begin(state.ngram, first)

    def length(self, state: GraftState) -> int:
        return self.main.length(state.main)

    def observe(self, state: GraftState, tokens: Sequence[int], taps: Tensor) -> None:
        self.main.observe(state.main, tokens, taps)
        self.ngram.observe(state.ngram, tokens, taps)

    def truncate(self, state: GraftState, length: int) -> None:
        self.main.truncate(state.main, length)
        self.ngram.truncate(state.ngram, length)

    def copy(self, state: GraftState, other: GraftState, rows: int) -> bool:
        copied = self.main.copy(state.main, other.main, rows)
        return copied and self.ngram.copy(state.ngram, other.ngram, rows)

    def confidence(self, state: GraftState) -> float:
        return self.main.confidence(state.main)

    @torch.inference_mode()
    def draft(
        self,
        state: GraftState,
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        index = state.ngram.read()
        if sampler is not None or keep_hidden or plan.draft_nothing:
            return self.main.draft(state.main, plan, sampler, keep_hidden)
        path, likely = _likely_path(index, plan.num_steps)
        if len(path) == plan.num_steps > 1 and likely > SUFFICES:
            copied = self.ngram.draft(state.ngram, plan)
            if copied.tree.max_depth == plan.num_steps:
                reason = {**copied.reason, "grafted": copied.tree.num_nodes - 1}
                return replace(copied, num_levels=1, reason=reason)
        draft = self.main.draft(state.main, plan)
        return draft if path in _paths(draft) else grafted(draft, index, plan)


def _likely_path(index: NgramIndex, levels: int) -> tuple[_Path, float]:
    """The likeliest continuation while it is worth grafting, and its probability."""
    path: _Path = ()
    likely = 1.0
    while len(path) < levels:
        best = index.offers(path, 1)
        if not best or likely * best[0][1] <= REPEATS:
            break
        path, likely = (*path, best[0][0]), likely * best[0][1]
    return path, likely


def grafted(draft: Draft, index: NgramIndex, plan: TreePlan) -> Draft:
    """The tree that `plan` makes of `draft` and of what `index` knows to follow its paths.

    ``reason["grafted"]`` is the number of its nodes that `draft` does not have.
    """
    tree = draft.tree
    root, device = int(tree.token[0]), tree.device
    known = _children(draft)
    mine = {(*path, token) for path, row in known.items() for token, _ in row}
    more = 0  # offers that are not the main drafter's
    # The main drafter has decided already whether its own next passes pay; ours cost none.
    growth = Growth(root, replace(plan, stop=replace(plan.stop, lookahead=None)), device, True)
    paths: list[_Path] = [()]
    while not growth.stopped:
        rows = [
            merged(known.get(path, ()), index.offers(path, plan.topk), plan.topk) for path in paths
        ]
        for path, row in zip(paths, rows, strict=True):
            more += sum((*path, token) not in mine for token, _ in row)
        source = growth.expand(*padded(rows, plan.topk, device))
        paths = next_paths(paths, source, growth)
    made = growth.draft()
    theirs = sum(path not in mine for path in _paths(made)[1:])
    return replace(
        made,
        num_candidates=draft.num_candidates + more,
        num_levels=draft.num_levels,
        reason={**made.reason, "stopped": draft.reason.get("stopped", ""), "grafted": theirs},
    )


def merged(ours: Offers, theirs: Offers, most: int) -> list[tuple[int, float]]:
    """One law of two: the larger probability of each token, their sum at most 1; the best `most`.

    Each is a list of tokens, likeliest first; so is the result, with ours before theirs in ties.
    """
    if not theirs:
        return list(ours)[:most]
    odds = dict(ours)
    for token, q in theirs:
        odds[token] = max(q, odds.get(token, 0.0))
    total = max(1.0, sum(odds.values()))
    best = sorted(odds.items(), key=lambda pair: -pair[1])[:most]
    return [(token, q / total) for token, q in best]


def _paths(draft: Draft) -> list[_Path]:
    """The tokens from below the root to each node."""
    tokens, parents = draft.tree.token.tolist(), draft.tree.parent.tolist()
    paths: list[_Path] = [()]
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths


def _children(draft: Draft) -> dict[_Path, list[tuple[int, float]]]:
    """The children of each node with their q, by its path, likeliest first."""
    children: dict[_Path, list[tuple[int, float]]] = {}
    for path, q in list(zip(_paths(draft), draft.tree.logq.exp().tolist(), strict=True))[1:]:
        children.setdefault(path[:-1], []).append((path[-1], q))
    return children

"""Prompt lookup: what followed the last few tokens before is drafted again, without any weights.

Chains where one continuation is known, trees where several are.  Prompt lookup is due to Saxena
(2023); its odds, by which policies choose, are `NgramIndex`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.growth import Growth
from adaptivespec.draft.ngram_index import NgramIndex
from adaptivespec.draft.offers import offers
from adaptivespec.policy.base import TreePlan

#: Tokens that may follow, with the probability of each, likeliest first.
Offers = Sequence[tuple[int, float]]


@dataclass
class NgramState:
    """One sequence: its index, and what is yet to be indexed.

    `first` is 1 where the index begins with the prompt's first token, which no row observes.
    """

    index: NgramIndex = field(default_factory=NgramIndex)
    pending: list[int] = field(default_factory=list)
    first: int = 0

    def read(self) -> NgramIndex:
        """The index of all that was observed."""
        if self.pending:
            self.index.extend(self.pending)
            self.pending.clear()
        return self.index


class NgramDrafter(Drafter[NgramState]):
    """Drafts what followed the same tokens earlier in prompt or answer.

    A sequence in which nothing repeats drafts nothing.  It has no features for rules that read
    them.

    Args:
        vocab_size: V of the target, for laws of drawn drafts.
        device: of the trees.
    """

    def __init__(self, vocab_size: int, device: torch.device | None = None) -> None:
        self.vocab_size, self.device = vocab_size, device

    def new_state(self, capacity: int) -> NgramState:
        return NgramState()

    def begin(self, state: NgramState, first: int) -> None:
        if self.length(state) == 0:
            state.index, state.first = NgramIndex([first]), 1

    def length(self, state: NgramState) -> int:
        return len(state.index.tokens) + len(state.pending) - state.first

    def observe(self, state: NgramState, tokens: Sequence[int], taps: Tensor) -> None:
        state.pending.extend(tokens)

    def truncate(self, state: NgramState, length: int) -> None:
        size = length + state.first
        del state.pending[max(size - len(state.index.tokens), 0) :]
        state.index.truncate(size)

    def copy(self, state: NgramState, other: NgramState, rows: int) -> bool:
        size = rows + other.first
        indexed = min(size, len(other.index.tokens))
        state.index, state.first = other.index.copy(indexed), other.first
        state.pending = other.pending[: size - indexed]
        return True

    def confidence(self, state: NgramState) -> float:
        best = state.read().offers((), 1)
        return best[0][1] if best else 0.0

    @torch.inference_mode()
    def draft(
        self,
        state: NgramState,
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        index = state.read()
        root, sampled = index.tokens[-1], sampler is not None
        if not sampled and not plan.draft_nothing and not index.offers((), 1):
            return Draft(
                DraftTree.root_only(root, self.device), reason={"stopped": "nothing known"}
            )
        growth = Growth(root, plan, self.device, sparse=not sampled, sampled=sampled)
        paths: list[tuple[int, ...]] = [()]
        while not growth.stopped:
            rows = [index.offers(path, plan.topk) for path in paths]
            law = None
            if sampler is None:
                tokens, logq = padded(rows, plan.topk, self.device)
            else:
                tokens, logq, law = self._drawn(rows, plan.topk, sampler)
            source = growth.expand(tokens, logq, None, law)
            paths = next_paths(paths, source, growth)
        return growth.draft()

    def _drawn(
        self, rows: Sequence[Offers], topk: int, sampler: Sampler
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Drafts drawn from the odds of each row, and their law.

        Where nothing is known the law is uniform over some tokens: trees of drawn drafts are
        always whole.
        """
        topk = min(topk, self.vocab_size)
        words = dict.fromkeys(token for row in rows for token, _ in row)
        words |= dict.fromkeys(range(topk))
        place = {token: column for column, token in enumerate(words)}
        logits = torch.full((len(rows), len(words)), -math.inf)
        for line, row in enumerate(rows):
            for token, q in row:
                logits[line, place[token]] = math.log(q)
            if not row:
                logits[line] = 0.0
        ids = torch.tensor(list(words), device=self.device)
        return offers(logits.to(ids.device), topk, ids, self.vocab_size, sampler)


def padded(rows: Sequence[Offers], k: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """Offers as `Growth` takes them, i64 and f32 `[R, k]`; log q is -inf where a row has fewer."""
    tokens = [[token for token, _ in row] + [0] * (k - len(row)) for row in rows]
    logq = [
        [math.log(q) if q else -math.inf for _, q in row] + [-math.inf] * (k - len(row))
        for row in rows
    ]
    return torch.tensor(tokens, device=device), torch.tensor(logq, device=device)


def next_paths(
    paths: Sequence[tuple[int, ...]], source: Tensor, growth: Growth
) -> list[tuple[int, ...]]:
    """The tokens from below the root to each node of the new frontier."""
    pairs = zip(source.tolist(), growth.frontier_tokens.tolist(), strict=True)
    return [(*paths[row], token) for row, token in pairs]

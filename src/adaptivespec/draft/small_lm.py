"""A small language model of the same tokenizer as drafter (Leviathan et al., 2211.17192).

A level of the tree is one pass of the model over the nodes that are expanded next and what leads to
them.  What those paths share is committed for the time being, so that a chain runs one row per
level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.errors import CheckpointError
from adaptivespec.core.sampling import Sampler
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.growth import Growth
from adaptivespec.draft.ngram import next_paths
from adaptivespec.draft.offers import offers
from adaptivespec.policy.base import NOTHING, TreePlan


class ModelPass(Protocol):
    """What a pass gives: `logits [rows, vocab]`, and features `[rows, H]` where the model has them.

    Valid until the next pass over the same cache.
    """

    @property
    def logits(self) -> Tensor:
        """Raw, in the model's dtype."""

    @property
    def hidden(self) -> Tensor | None:
        """The stream leaving the last layer."""


class ModelLimits(Protocol):
    """Sizes of a model."""

    @property
    def vocab_size(self) -> int:
        """Width of its logits."""

    @property
    def max_model_len(self) -> int:
        """Positions it has."""


class DraftModel(Protocol):
    """What is asked of the small model: a part of what the engine's targets do.

    `verify` runs a tree and commits nothing; `commit` keeps a path of it.
    """

    @property
    def limits(self) -> ModelLimits:
        """Its sizes."""

    @property
    def device(self) -> torch.device:
        """Where its logits are."""

    def new_cache(self, capacity: int) -> Any:
        """A cache for one sequence; it grows when it must."""

    def prefill(self, cache: Any, tokens: Sequence[int]) -> ModelPass:
        """Append committed tokens."""

    def verify(self, cache: Any, tree: DraftTree) -> ModelPass:
        """Run every node of a tree, each seeing the cache and its ancestors."""

    def commit(self, cache: Any, path: Sequence[int]) -> None:
        """Keep the rows of a path of the last tree, from its root."""

    def truncate(self, cache: Any, length: int) -> None:
        """Forget rows from `length` on."""

    def copy(self, cache: Any, other: Any, rows: int) -> bool:
        """Take over the first rows of another cache; False where it cannot."""


@dataclass
class SmallLMState:
    """One sequence: all its tokens, the model's cache, and the tokens whose rows that holds.

    Of `held` the first `agreed` are known to be those of `tokens`; the rest was drafted.  `first`
    is 1 where `tokens` begins with the prompt's first token, which no row observes.
    """

    cache: Any
    tokens: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    agreed: int = 0
    first: int = 0
    #: Logits `[1, V]` after the root, and its feature, while its pass is the cache's last.
    view: tuple[Tensor, Tensor | None] | None = None


class SmallLMDrafter(Drafter[SmallLMState]):
    """Drives a small model beside a target that reads the same tokens.

    Past the small model's own context nothing is drafted.  A token that the small model does not
    have is read as its last one: what is drafted after it is worse, and never wrong.

    Args:
        model: any target of the engine.
        vocab_size: V of the target; `check_vocabulary` says whether the two fit.
    """

    def __init__(self, model: DraftModel, vocab_size: int) -> None:
        self.model, self.vocab_size = model, vocab_size
        self.words = min(vocab_size, model.limits.vocab_size)
        self.target_ids = torch.arange(self.words, device=model.device)

    def new_state(self, capacity: int) -> SmallLMState:
        return SmallLMState(self.model.new_cache(min(capacity, self.model.limits.max_model_len)))

    def begin(self, state: SmallLMState, first: int) -> None:
        if self.length(state) == 0:
            self._forget(state, 0)
            state.tokens, state.first, state.view = [first], 1, None

    def length(self, state: SmallLMState) -> int:
        return len(state.tokens) - state.first

    def observe(self, state: SmallLMState, tokens: Sequence[int], taps: Tensor) -> None:
        state.tokens.extend(tokens)
        state.view = None

    def truncate(self, state: SmallLMState, length: int) -> None:
        del state.tokens[length + state.first :]
        state.agreed = min(state.agreed, len(state.tokens))
        state.view = None

    def copy(self, state: SmallLMState, other: SmallLMState, rows: int) -> bool:
        size = rows + other.first
        agreed = min(other.agreed, size)
        if not self.model.copy(state.cache, other.cache, agreed):
            return False
        state.tokens, state.held = other.tokens[:size], other.held[:agreed]
        state.agreed, state.first, state.view = agreed, other.first, None
        return True

    def confidence(self, state: SmallLMState) -> float:
        if not self._room(state):
            return 0.0
        logits, _ = self._read(state)
        return float((logits.amax(-1) - logits.logsumexp(-1)).exp())

    @torch.inference_mode()
    def draft(
        self,
        state: SmallLMState,
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        room = self._room(state)
        plan = plan.capped(room + 1) if room else NOTHING
        sampled = sampler is not None
        growth = Growth(state.tokens[-1], plan, self.model.device, sampled=sampled)
        if growth.stopped:
            return growth.draft()
        logits, hidden = self._read(state)
        root = self._known(state.tokens[-1])
        walk = _Walk(self.model, state, root)
        below: list[tuple[int, ...]] = [()]
        while True:
            tokens, logq, q = offers(logits, plan.topk, self.target_ids, self.vocab_size, sampler)
            source = growth.expand(tokens, logq, hidden if keep_hidden else None, q)
            if growth.stopped:
                return growth.draft()
            below = next_paths(below, source, growth)
            logits, hidden = self._seen(*walk.run([(root, *path) for path in below]))

    def _room(self, state: SmallLMState) -> int:
        """Levels that the model's context has room for."""
        return max(0, self.model.limits.max_model_len - len(state.tokens) + 1)

    @torch.inference_mode()
    def _read(self, state: SmallLMState) -> tuple[Tensor, Tensor | None]:
        """Run what was observed since; logits after the root, whose own row is not committed."""
        if state.view is not None:
            return state.view
        tokens, held = state.tokens, state.held
        base, keep = len(tokens) - 1, min(state.agreed, len(tokens) - 1)
        while keep < min(len(held), base) and held[keep] == tokens[keep]:
            keep += 1
        self._forget(state, keep)
        if keep < base:
            self.model.prefill(state.cache, [self._known(token) for token in tokens[keep:base]])
            held += tokens[keep:base]
        state.agreed = base
        root = DraftTree.root_only(self._known(tokens[-1]), self.model.device)
        out = self.model.verify(state.cache, root)
        logits, hidden = self._seen(out.logits, out.hidden)
        state.view = logits.clone(), None if hidden is None else hidden.clone()
        return state.view

    def _seen(self, logits: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Logits of the words that both models have, f32."""
        return logits[:, : self.words].float(), hidden

    def _known(self, token: int) -> int:
        return min(token, self.model.limits.vocab_size - 1)

    def _forget(self, state: SmallLMState, rows: int) -> None:
        """Drop rows of the cache from `rows` on."""
        self.model.truncate(state.cache, rows)
        del state.held[rows:]
        state.agreed = min(state.agreed, rows)


class _Walk:
    """The passes of one draft: what its paths share is committed on the way."""

    def __init__(self, model: DraftModel, state: SmallLMState, root: int) -> None:
        self.model, self.state = model, state
        self.held = 0  # tokens of the paths whose rows are committed
        self.node: dict[tuple[int, ...], int] = {(root,): 0}  # of the last tree, by path

    def run(self, paths: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor | None]:
        """Logits `[len(paths), V]` after each path, which begins with the root, and features.

        A path is one token longer than those of the last call, and continues one of them.
        """
        first, cache = paths[0], self.state.cache
        self.state.view = None  # another draft has to run the root anew, to commit it
        shared = len(first)
        while any(path[:shared] != first[:shared] for path in paths):
            shared -= 1
        shared -= 1  # the last token they share is the root of the tree to be run
        if shared > self.held:
            ends = range(self.held + 1, shared + 1)
            self.model.commit(cache, [self.node[first[:end]] for end in ends])
            self.state.held += first[self.held : shared]
            self.held = shared
        self.node = {}
        tokens: list[int] = []
        parents: list[int] = []
        for path in paths:
            for end in range(shared + 1, len(path) + 1):
                if path[:end] not in self.node:
                    parents.append(self.node.get(path[: end - 1], -1))
                    self.node[path[:end]] = len(tokens)
                    tokens.append(path[end - 1])
        tree = DraftTree.from_parents(tokens, parents, device=self.model.device)
        out = self.model.verify(cache, tree)
        rows = torch.tensor([self.node[path] for path in paths], device=self.model.device)
        hidden = None if out.hidden is None else out.hidden.index_select(0, rows)
        return out.logits.index_select(0, rows), hidden


def check_vocabulary(small: Mapping[str, int], target: Mapping[str, int]) -> None:
    """Refuse a small model that reads other tokens than the target.

    Args:
        small, target: the id of every token. One may have more than the other, as padding and added
            tokens are; where both use an id, it must be for the same token.

    Raises:
        CheckpointError: they differ; it names a token.
    """
    names = {index: token for token, index in target.items()}
    for token, index in small.items():
        if names.get(index, token) != token or target.get(token, index) != index:
            other = names.get(index)
            there = "no such id" if other is None else f"{other!r} there"
            raise CheckpointError(
                f"the small model's token {index} is {token!r}, and the target has {there}",
                field="draft_model",
                remedy="Give a model of the same tokenizer, an EAGLE-3 head, or ngram",
            )

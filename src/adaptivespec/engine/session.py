"""One sequence in memory: the target's cache, the drafter's state, and the tokens they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter
from adaptivespec.engine.target import Pass, PrefillProgress, Target
from adaptivespec.policy.base import TreePlan

#: Rows set aside at first; caches grow by half when they must.
INITIAL_ROWS = 1024
#: Rows that a copy from another session must spare the target.
_WORTH_COPYING = 8


class Session:
    """Keeps target and drafter in step, and reuses what a new prompt shares with the last one.

    `tokens` are the ids whose rows the target's cache holds.  Between steps the last emitted token
    is not among them: it is the root of the next tree.
    """

    def __init__(self, target: Target[Any], drafter: Drafter[Any] | None) -> None:
        self.target, self.drafter = target, drafter
        rows = min(INITIAL_ROWS, target.limits.max_model_len)
        self.cache = target.new_cache(rows)
        self.draft_state = drafter.new_state(rows) if drafter else None
        self.tokens: list[int] = []
        self._active: Drafter[Any] | None = None  # the drafter, while the request drafts
        self.unread: list[int] = []  # tokens of the prompt whose rows are yet to come
        self._last: tuple[list[int], Tensor] | None = None  # the part read last, with its taps

    def begin(
        self, prompt: Sequence[int], drafting: bool, progress: PrefillProgress | None = None
    ) -> Pass:
        """Make the cache hold `prompt`; logits `[1, V]` after its last token.

        `open` and then `read` to the end.
        """
        self.open(prompt, drafting)
        out = self.read(progress=progress)
        if out is None:
            raise ValueError("a prompt needs at least one token")
        return out

    def open(self, prompt: Sequence[int], drafting: bool) -> int:
        """Prepare to `read` `prompt`; the number of its tokens whose rows are kept.

        Rows that the previous contents share with the prompt are kept.  With `drafting` the
        drafter follows; without, the target is not tapped at all.
        """
        keep = common_prefix(self.tokens, prompt)
        self._active = self.drafter if drafting else None
        if self._active is not None:
            keep = min(keep, self._active.length(self.draft_state) + 1)
        # The last shared row is run again: its logits are needed, and the drafter's row of a
        # token reads the token after it.
        keep = max(keep - 1, 0)
        self.target.truncate(self.cache, keep)
        if self.drafter is not None:
            self.drafter.truncate(self.draft_state, keep)
        if self._active is not None:
            self._active.begin(self.draft_state, prompt[0])
        del self.tokens[keep:]
        self.unread, self._last = list(prompt[keep:]), None
        return keep

    def read(self, most: int | None = None, progress: PrefillProgress | None = None) -> Pass | None:
        """Read on in the prompt, all of it or `most` tokens; None while there is more.

        At the end logits `[1, V]` after its last token.  `progress` is called with the tokens read
        and all that have to be.
        """
        part = self.unread[:most]
        out = self.target.prefill(self.cache, part, self.taps, progress)
        self.tokens.extend(part)
        del self.unread[: len(part)]
        if self.unread:
            self._observe([*part[1:], self.unread[0]], out.taps)
            return None
        self._last = part, out.taps  # the token after it is not known yet
        return out

    def reusable(self, drafting: bool) -> int:
        """Tokens whose rows are all there: with `drafting` the drafter's, too."""
        if not drafting or self.drafter is None:
            return len(self.tokens)
        return min(len(self.tokens), self.drafter.length(self.draft_state) + 1)

    def borrow(self, prompt: Sequence[int], others: Iterable[Session], drafting: bool) -> int:
        """`open`, with rows copied from the one of `others` that shares most of `prompt`.

        Only where that saves enough to be worth the copy; its own rows are given up for it.
        """
        own = self.open(prompt, drafting)
        shared = {
            other: min(common_prefix(other.tokens, prompt), other.reusable(drafting))
            for other in others
        }
        best = max(shared, key=lambda other: shared[other], default=self)
        rows = shared.get(best, 0)
        if best is self or rows < own + _WORTH_COPYING:
            return own
        if not self.target.copy(self.cache, best.cache, rows):
            return own
        self.tokens = best.tokens[:rows]
        if self.drafter is not None:
            held = min(rows, self.drafter.length(best.draft_state))
            if not self.drafter.copy(self.draft_state, best.draft_state, held):
                self.drafter.truncate(self.draft_state, 0)
        return self.open(prompt, drafting)

    def clear(self) -> None:
        """Forget everything."""
        self.target.truncate(self.cache, 0)
        if self.drafter is not None:
            self.drafter.truncate(self.draft_state, 0)
        self.tokens.clear()
        self.unread.clear()
        self._last = None

    def begin_output(self, tokens: Sequence[int]) -> None:
        """Tell the drafter the first token after the prompt (none when it ended at once)."""
        if self._last is not None:
            part, taps = self._last
            self._last = None
            self._observe([*part[1:], *tokens], taps)

    def confidence(self) -> float | None:
        """The drafter's top-1 probability after the root; None when the request drafts nothing."""
        return None if self._active is None else self._active.confidence(self.draft_state)

    def draft(
        self, plan: TreePlan, sampler: Sampler | None = None, keep_hidden: bool = False
    ) -> Draft:
        """A tree under the last emitted token; arguments as in `Drafter.draft`."""
        if self._active is None:
            raise ValueError("the request was begun without drafting")
        return self._active.draft(self.draft_state, plan, sampler, keep_hidden)

    def verify(self, tree: DraftTree) -> Pass:
        """Run the tree; nothing is committed."""
        return self.target.verify(self.cache, tree, self.taps)

    def commit(
        self, path: Sequence[int], rows: Sequence[int], emitted: Sequence[int], out: Pass
    ) -> None:
        """Keep the nodes `path` of the verified tree, whose token ids are `rows`.

        `emitted` are the tokens after each of them; one fewer when the text ended on the path.
        """
        self.target.commit(self.cache, path)
        self.tokens.extend(rows)
        kept = torch.tensor(path, device=out.taps.device)
        # Indexing by a list would wake a pool of threads, which then spin beside the next pass.
        self._observe(emitted, out.taps.index_select(0, kept))

    @property
    def taps(self) -> tuple[int, ...]:
        """Layers of the target that the drafter reads; none when the request drafts nothing."""
        return () if self._active is None else self._active.tap_layers

    def _observe(self, tokens: Sequence[int], taps: Tensor) -> None:
        if self._active is not None and tokens:
            self._active.observe(self.draft_state, tokens, taps[: len(tokens)])


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens both begin with."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count

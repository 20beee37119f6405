"""One sequence in memory: the target's cache, the drafter's state, and the tokens they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter
from adaptivespec.engine.target import Pass, Target

#: Rows set aside at first; caches grow by half when they must.
INITIAL_ROWS = 1024


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
        self._fresh: tuple[list[int], Tensor | None] = ([], None)
        self._drafting = False

    def begin(self, prompt: Sequence[int], drafting: bool) -> Pass:
        """Make the cache hold `prompt`; logits `[1, V]` after its last token.

        Rows that the previous contents share with the prompt are kept.  With `drafting` the
        drafter follows; without, the target is not tapped at all.
        """
        keep = _common_prefix(self.tokens, prompt)
        self._drafting = drafting and self.drafter is not None
        if self._drafting:
            assert self.drafter is not None
            keep = min(keep, self.drafter.length(self.draft_state) + 1)
        # The last shared row is run again: its logits are needed, and the drafter's row of a
        # token reads the token after it.
        keep = max(keep - 1, 0)
        self.target.truncate(self.cache, keep)
        if self.drafter is not None:
            self.drafter.truncate(self.draft_state, keep)
        del self.tokens[keep:]
        fresh = list(prompt[keep:])
        out = self.target.prefill(self.cache, fresh, self._taps)
        self.tokens.extend(fresh)
        self._fresh = (fresh, out.taps)
        return out

    def begin_output(self, tokens: Sequence[int]) -> None:
        """Tell the drafter the first token after the prompt (none when it ended at once)."""
        fresh, taps = self._fresh
        self._observe([*fresh[1:], *tokens], taps)
        self._fresh = ([], None)

    def verify(self, tree: DraftTree) -> Pass:
        """Run the tree; nothing is committed."""
        return self.target.verify(self.cache, tree, self._taps)

    def commit(self, path: Sequence[int], rows: Sequence[int], emitted: Sequence[int], out: Pass) -> None:
        """Keep the nodes `path` of the verified tree, whose token ids are `rows`.

        `emitted` are the tokens after each of them; one fewer when the text ended on the path.
        """
        self.target.commit(self.cache, path)
        self.tokens.extend(rows)
        taps = out.taps
        if taps is not None and path:
            contiguous = path[-1] == len(path) - 1
            taps = taps[: len(path)] if contiguous else taps[list(path)]
        self._observe(emitted, taps)

    @property
    def _taps(self) -> tuple[int, ...]:
        return self.drafter.tap_layers if self._drafting and self.drafter else ()

    def _observe(self, tokens: Sequence[int], taps: Tensor | None) -> None:
        if self._drafting and tokens:
            assert self.drafter is not None
            taps = None if taps is None else taps[: len(tokens)]
            self.drafter.observe(self.draft_state, tokens, taps)


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count

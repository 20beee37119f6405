"""The EAGLE-3 head on a GPU: a level of few nodes is a pass captured once and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.draft.eagle3 import Drafted, Eagle3Drafter, Eagle3State
from adaptivespec.nn.kv import KVCache
from adaptivespec.nn.static import (
    Capture,
    StaticCache,
    StaticCaches,
    StaticPass,
    StaticRows,
    bucket,
    capture_for,
    static_mask,
)

#: The smallest bucket of a level: many trees are chains.
_LEAST_WIDTH = 4
#: Rows read as they come from here on: those of prompts.
_MOST_READ = 64


class StaticEagle3Drafter(Eagle3Drafter):
    """An `Eagle3Drafter` whose levels, and whose reading of a step's rows, are captured passes.

    Args:
        capture: of passes; None for what the embedding's device has. The others as there.
    """

    def __init__(self, *arguments: Any, capture: Capture | None = None) -> None:
        super().__init__(*arguments)
        c = self.config
        self._capture = capture or capture_for(self.device)
        self._caches = StaticCaches(1, c.num_kv_heads, c.head_dim, self.dtype, self.device)

    def new_state(self, capacity: int) -> Eagle3State:
        return Eagle3State(self._caches.take(capacity))

    def _read_rows(self, cache: KVCache, taps: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        own, count = cast(StaticCache, cache), tokens.shape[0]
        if count > _MOST_READ:
            return super()._read_rows(cache, taps, tokens)
        rows = bucket(count)
        own.reserve(own.length + rows)
        static = own.captured(("read", rows), lambda: self._make_read(own, rows))
        given = static.inputs
        given["taps"][:count] = taps
        given["token"][:count] = tokens
        given["start"].fill_(own.length)
        given["last"].fill_(count - 1)
        static.run()
        own.commit(range(count))
        hidden, logits = static.outputs
        return hidden, logits

    def _make_read(self, cache: StaticCache, rows: int) -> StaticPass:
        """The pass that reads up to `rows` committed rows, each seeing all before it."""
        c, device = self.config, self.device
        size = c.num_taps * c.hidden_size
        taps = torch.zeros(rows, size, dtype=self.dtype, device=device)
        token = torch.zeros(rows, dtype=torch.long, device=device)
        start, last = torch.zeros(2, 1, dtype=torch.long, device=device)
        offsets = torch.arange(rows, device=device)
        columns = torch.arange(cache.capacity, device=device)
        k, v = cache.k, cache.v

        def body() -> Sequence[Tensor]:
            index = start + offsets
            mask = static_mask(columns <= index[:, None], self.groups, self.dtype)
            feature = self.fc(self._normed_taps(taps))
            position = torch.minimum(index, start + last)  # rows too many stay within the context
            hidden = self._pass(feature, token, position, StaticRows(k, v, index), mask)
            hidden = hidden.index_select(0, last)
            return hidden, self._logits(hidden)

        inputs = {"taps": taps, "token": token, "start": start, "last": last}
        return StaticPass(inputs, body, self._capture)

    def _nothing_drafted(self, cache: KVCache) -> Drafted:
        columns = torch.arange(cache.capacity, device=self.device)
        return Drafted((columns < cache.length)[None])

    def _level(
        self, cache: KVCache, drafted: Drafted, source: Tensor, hidden: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As there, but that `drafted.seen` has a column for every row of the cache."""
        own, width = cast(StaticCache, cache), tokens.shape[0]
        rows = bucket(width, _LEAST_WIDTH)
        start, position = own.length + drafted.rows, own.length + drafted.levels
        own.reserve(start + rows)
        static = own.captured(("level", rows), lambda: self._make_level(own, rows))
        given = static.inputs
        seen = drafted.seen.index_select(0, source)
        given["seen"][:width] = F.pad(seen, (0, own.capacity - seen.shape[1]))
        given["hidden"][:width] = hidden
        given["token"][:width] = tokens
        given["start"].fill_(start)
        given["position"].fill_(position)
        static.run()
        drafted.seen = given["seen"][:width]
        drafted.rows += width
        drafted.levels += 1
        features, logits = (output[:width] for output in static.outputs)
        return features, logits

    def _make_level(self, cache: StaticCache, rows: int) -> StaticPass:
        """The pass of up to `rows` nodes of one level. It adds themselves to what they see."""
        device = self.device
        seen = torch.zeros(rows, cache.capacity, dtype=torch.bool, device=device)
        hidden = torch.zeros(rows, self.config.hidden_size, dtype=self.dtype, device=device)
        token = torch.zeros(rows, dtype=torch.long, device=device)
        start, position = torch.zeros(2, 1, dtype=torch.long, device=device)
        offsets = torch.arange(rows, device=device)
        k, v = cache.k, cache.v

        def body() -> Sequence[Tensor]:
            index = start + offsets
            mask = static_mask(seen.scatter_(1, index[:, None], True), self.groups, self.dtype)
            where = position.expand(rows)
            fed = self._fed_back(hidden)
            features = self._pass(fed, token, where, StaticRows(k, v, index), mask)
            return features, self._logits(features)

        inputs = {
            "seen": seen,
            "hidden": hidden,
            "token": token,
            "start": start,
            "position": position,
        }
        return StaticPass(inputs, body, self._capture)

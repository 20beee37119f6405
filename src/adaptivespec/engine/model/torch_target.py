"""The torch backend of the target interface: masks, positions and cache around a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.target import Pass, PrefillProgress, Target, TargetLimits
from adaptivespec.nn.attention import additive_mask, pieces
from adaptivespec.nn.kv import KVCache

#: Rows of one prefill pass: enough to feed the matrix units, small enough to bound the mask.
PREFILL_ROWS = 512


class TorchTarget(Target[KVCache]):
    """A `Llama` with one `KVCache` per sequence."""

    def __init__(self, model: Llama, max_model_len: int) -> None:
        self.model = model
        self.dtype = model.dtype
        self.device = model.embedding.device
        c = model.config
        self.groups = c.num_heads // c.num_kv_heads
        self.limits = TargetLimits(c.vocab_size, c.hidden_size, c.num_layers, max_model_len)

    def new_cache(self, capacity: int) -> KVCache:
        c = self.model.config
        return KVCache(c.num_layers, c.num_kv_heads, c.head_dim, capacity, self.dtype, self.device)

    def length(self, cache: KVCache) -> int:
        return cache.length

    @torch.inference_mode()
    def prefill(
        self,
        cache: KVCache,
        tokens: Sequence[int],
        tap_layers: Sequence[int] = (),
        progress: PrefillProgress | None = None,
    ) -> Pass:
        ids = torch.tensor(tokens, dtype=torch.long, device=self.device)
        taps: list[Tensor] = []
        cache.reserve(cache.length + len(tokens))
        for piece, positions, visible in pieces(ids, cache.length, PREFILL_ROWS):
            hidden, tap = self._run(cache, piece, positions, visible, tap_layers)
            cache.commit(range(piece.shape[0]))
            taps.append(tap)
            if progress is not None:
                progress(sum(map(len, taps)), len(tokens))
        return Pass(self.model.logits(hidden[-1:]), torch.cat(taps), hidden[-1:])

    @torch.inference_mode()
    def verify(self, cache: KVCache, tree: DraftTree, tap_layers: Sequence[int] = ()) -> Pass:
        positions = tree.positions(cache.length)
        visible = tree.ancestor_mask()
        hidden, taps = self._run(cache, tree.token, positions, visible, tap_layers)
        return Pass(self.model.logits(hidden), taps, hidden)

    def commit(self, cache: KVCache, path: Sequence[int]) -> None:
        cache.commit(path)

    def truncate(self, cache: KVCache, length: int) -> None:
        cache.truncate(length)

    def copy(self, cache: KVCache, other: KVCache, rows: int) -> bool:
        cache.copy(other, rows)
        return True

    def _run(
        self,
        cache: KVCache,
        tokens: Tensor,
        positions: Tensor,
        visible: Tensor,
        tap_layers: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        rows = tokens.shape[0]
        cache.reserve(cache.length + rows)
        mask = additive_mask(visible, cache.length, self.groups, self.dtype) if rows > 1 else None
        return self.model.forward(tokens, positions, cache.behind(), mask, tap_layers)

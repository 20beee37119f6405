"""The target on a GPU: trees of a few sizes, each a pass that was captured once and is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.devices import room_on
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.target import Pass, PrefillProgress
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


class StaticTarget(TorchTarget):
    """A `TorchTarget` whose trees run in captured passes (nn/static.py); prompts run as they come.

    Args:
        capture: of passes; None for what the model's device has.
    """

    def __init__(self, model: Llama, max_model_len: int, capture: Capture | None = None) -> None:
        super().__init__(model, max_model_len)
        c = model.config
        self.capture = capture or capture_for(self.device)
        self._caches = StaticCaches(
            c.num_layers, c.num_kv_heads, c.head_dim, self.dtype, self.device
        )

    def new_cache(self, capacity: int) -> StaticCache:
        with room_on(self.device):
            return self._caches.take(capacity)

    def prefill(
        self,
        cache: KVCache,
        tokens: Sequence[int],
        tap_layers: Sequence[int] = (),
        progress: PrefillProgress | None = None,
    ) -> Pass:
        with room_on(self.device):
            return super().prefill(cache, tokens, tap_layers, progress)

    def verify(self, cache: KVCache, tree: DraftTree, tap_layers: Sequence[int] = ()) -> Pass:
        with room_on(self.device):
            return self._verify(cast(StaticCache, cache), tree, tuple(tap_layers))

    @torch.inference_mode()
    def _verify(self, cache: StaticCache, tree: DraftTree, taps: tuple[int, ...]) -> Pass:
        nodes = tree.num_nodes
        rows = bucket(nodes)
        cache.reserve(cache.length + rows)
        static = cache.captured((rows, taps), lambda: self._make(cache, rows, taps))
        given = static.inputs
        # Depths that a larger tree left would give positions past the context. What it left of
        # `visible` does no harm: a node sees none that comes after it.
        given["depth"].zero_()
        given["token"][:nodes] = tree.token
        given["depth"][:nodes] = tree.depth
        given["visible"][:nodes, :nodes] = tree.ancestor_mask()
        given["start"].fill_(cache.length)
        static.run()
        self.capture.wait()  # so that the time a caller takes is that of the pass
        logits, tapped, hidden = (output[:nodes] for output in static.outputs)
        return Pass(logits, tapped, hidden)

    def _make(self, cache: StaticCache, rows: int, tap_layers: tuple[int, ...]) -> StaticPass:
        """The pass of trees of up to `rows` nodes. Rows beyond a tree's own see themselves."""
        model, groups, dtype, device = self.model, self.groups, self.dtype, self.device
        token, depth = torch.zeros(2, rows, dtype=torch.long, device=device)
        visible = torch.eye(rows, dtype=torch.bool, device=device)
        start = torch.zeros(1, dtype=torch.long, device=device)
        offsets = torch.arange(rows, device=device)
        columns = torch.arange(cache.capacity, device=device)
        k, v = cache.k, cache.v

        def body() -> Sequence[torch.Tensor]:
            index = start + offsets
            seen = (columns < start).repeat(rows, 1).index_copy_(1, index, visible)
            mask = static_mask(seen, groups, dtype)
            hidden, taps = model.forward(
                token, start + depth, StaticRows(k, v, index), mask, tap_layers
            )
            return model.logits(hidden), taps, hidden

        inputs = {"token": token, "depth": depth, "visible": visible, "start": start}
        return StaticPass(inputs, body, self.capture)

"""Hidden states of the target over the corpus, computed once and kept in shards on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from adaptivespec.engine.model.llama import Llama
from adaptivespec.nn.attention import additive_mask, causal
from adaptivespec.nn.kv import KVCache
from adaptivespec.train.corpus import Item

#: Sequences per shard: a unit of work that a killed run repeats at most once.
SHARD = 128


@dataclass
class Sequence_:
    """One text with what the target computed on it; `n` tokens, the response from `prompt_len`."""

    tokens: Tensor  # i64[n]
    taps: Tensor  # bf16[n, taps * H]
    final: Tensor  # bf16[n, H], the residual stream leaving the last layer
    greedy: Tensor  # i64[n], the target's argmax after each token
    prompt_len: int


class FeatureStore:
    """Random access to the features of `items`, made on first use and resumable by shard.

    About `2 * (taps + 1) * hidden` bytes per token of disk under `path`.
    """

    def __init__(
        self, path: Path, items: Sequence[Item], model: Llama, tap_layers: Sequence[int]
    ) -> None:
        digest = hashlib.sha256(json.dumps([list(tap_layers), str(model.dtype)]).encode())
        for item in items:
            digest.update(repr(item.tokens).encode())
        self.path = path / digest.hexdigest()[:12]
        self.items, self.model, self.tap_layers = items, model, tuple(tap_layers)
        self.offsets: list[int] = []
        for i in range(len(items)):
            first = i % SHARD == 0
            self.offsets.append(0 if first else self.offsets[-1] + len(items[i - 1].tokens))

    def build(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Compute the missing shards; `progress(tokens done, tokens in all)`."""
        self.path.mkdir(parents=True, exist_ok=True)
        total, done = sum(len(item.tokens) for item in self.items), 0
        for start in range(0, len(self.items), SHARD):
            batch = self.items[start : start + SHARD]
            target = self._shard(start)
            if not target.exists():
                parts = [self._compute(item) for item in batch]
                merged = {name: torch.cat([p[name] for p in parts]) for name in parts[0]}
                partial = target.with_suffix(".partial")
                save_file(merged, partial)
                partial.replace(target)
            done += sum(len(item.tokens) for item in batch)
            if progress:
                progress(done, total)

    def __getitem__(self, index: int) -> Sequence_:
        item, offset = self.items[index], self.offsets[index]
        rows = slice(offset, offset + len(item.tokens))
        with safe_open(self._shard(index), framework="pt") as file:
            return Sequence_(
                tokens=torch.tensor(item.tokens),
                taps=file.get_slice("taps")[rows],
                final=file.get_slice("final")[rows],
                greedy=file.get_slice("greedy")[rows].long(),
                prompt_len=len(item.prompt),
            )

    def _shard(self, index: int) -> Path:
        return self.path / f"{index // SHARD:05d}.safetensors"

    @torch.inference_mode()
    def _compute(self, item: Item) -> dict[str, Tensor]:
        model, c = self.model, self.model.config
        tokens = torch.tensor(item.tokens)
        rows = tokens.shape[0]
        cache = KVCache(c.num_layers, c.num_kv_heads, c.head_dim, rows, model.dtype)
        mask = additive_mask(causal(rows), 0, c.num_heads // c.num_kv_heads, model.dtype)
        final, taps = model.forward(tokens, torch.arange(rows), cache, mask, self.tap_layers)
        greedy = torch.zeros(rows, dtype=torch.int32)
        answer = slice(len(item.prompt) - 1, rows)
        greedy[answer] = model.logits(final[answer]).argmax(-1).int()
        return {"taps": taps.bfloat16(), "final": final.bfloat16(), "greedy": greedy}

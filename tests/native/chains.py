"""Chains of passes through the native engine, for the tests of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from adaptivespec.native.library import Mode, NativeCache, NativeModel

Floats = npt.NDArray[np.float32]


def tokens_of(model: NativeModel, count: int, seed: int = 1) -> npt.NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, model.config.vocab, count, dtype=np.int32)


def chain(
    model: NativeModel,
    tokens: npt.NDArray[np.int32],
    sizes: list[int],
    mode: Mode,
    threads: int = 1,
    capacity: int = 1,
) -> tuple[NativeCache, Floats, Floats, Floats]:
    """Append `tokens` in passes of the given sizes, the last repeated; all logits, taps, hidden."""
    cache, parts, done = model.new_cache(capacity), [], 0
    taps = list(range(model.config.layers))
    while done < len(tokens):
        size = min(sizes[min(len(parts), len(sizes) - 1)], len(tokens) - done)
        part = cache.forward(
            tokens[done : done + size], mode=mode, threads=threads, tap_layers=taps
        )
        parts.append(part)
        cache.commit(range(size))
        done += size
    logits, tapped, hidden = (np.concatenate(p) for p in zip(*parts, strict=True))
    return cache, logits, tapped, hidden

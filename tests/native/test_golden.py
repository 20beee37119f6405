"""What the native engine computes, to the bit: the same on every x86-64 processor and compiler."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from adaptivespec.draft.eagle3_native import pack_plan
from adaptivespec.native.drafting import (
    HeadConfig,
    HeadMatrix,
    HeadNorm,
    NativeDraft,
    NativeHead,
)
from adaptivespec.native.library import Library, Mode
from adaptivespec.native.weights import RawTensor
from adaptivespec.policy.plan import TreePlan

GOLDEN = Path(__file__).with_name("golden.json")
MODES = [Mode.A8, Mode.A16]


class Numbers:
    """The same numbers everywhere: a linear congruence, in [-1, 1)."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def __call__(self, *shape: int) -> Any:
        values = []
        for _ in range(math.prod(shape)):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            values.append((self.state >> 40) / 2**23 - 1)
        return np.array(values, np.float32).reshape(shape)


def rotary(rows: int, half: int) -> tuple[Any, Any]:
    angles = [[row * 100.0 ** (-i / half) for i in range(half)] for row in range(rows)]
    return tuple(
        np.array([[function(angle) for angle in row] for row in angles], np.float32)
        for function in (math.cos, math.sin)
    )


def model(library: Library, make_tiny: Callable[..., Any]) -> Any:
    tiny = make_tiny(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=32, max_len=64)
    tiny.cos, tiny.sin = rotary(64, 16)
    numbers = Numbers(1)
    tiny.gains = {key: 1 + numbers(gain.size) / 2 for key, gain in tiny.gains.items()}
    for key, tensor in tiny.raw.items():
        values = numbers(tensor.rows, tensor.columns) / 8
        tiny.raw[key] = RawTensor("F32", tensor.shape, values.reshape(-1).view(np.uint8))
    return tiny.native(library)


def draft(on: Any, mode: Mode) -> NativeDraft:
    config = HeadConfig(64, 96, 4, 2, 32, draft_vocab=40, taps=2, max_len=64, rms_eps=1e-5)
    head, numbers = NativeHead(on, config), Numbers(2)
    head.rope(*rotary(64, 16))
    shapes = {
        HeadMatrix.FUSE: (64, 128),
        HeadMatrix.QUERY: (128, 128),
        HeadMatrix.KEY: (64, 128),
        HeadMatrix.VALUE: (64, 128),
        HeadMatrix.ATTENTION_OUTPUT: (64, 128),
        HeadMatrix.GATE: (96, 64),
        HeadMatrix.UP: (96, 64),
        HeadMatrix.DOWN: (64, 96),
        HeadMatrix.OUTPUT: (40, 64),
    }
    for which, shape in shapes.items():
        data = (numbers(*shape) / 4).reshape(-1).view(np.uint8)
        head.weight(which, RawTensor("F32", shape, data))
    for norm in HeadNorm:
        head.norm(norm, 1 + numbers(64) / 2)
    head.words(np.arange(40, dtype=np.int32) + 7)
    head.ready()
    return NativeDraft(head, 4, mode)


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def computed(library: Library, make_tiny: Callable[..., Any]) -> dict[str, str]:
    """Hashes of a prompt, a tree and a draft, in both modes."""
    on, found = model(library, make_tiny), {}
    for mode in MODES:
        cache = on.new_cache(4)
        prompt = np.arange(20, dtype=np.int32) * 3 % 75
        out = cache.forward(prompt, mode=mode, threads=1, tap_layers=(0, 1))
        cache.commit(range(20))
        found[f"prompt {mode.name}"] = digest(*out)
        parents = np.array([-1, 0, 0, 1, 2, 2, 4], np.int32)
        tree = np.array([9, 8, 30, 74, 0, 5, 61], np.int32)
        found[f"tree {mode.name}"] = digest(*cache.forward(tree, parents, mode=mode, threads=1))
        memory = draft(on, mode)
        memory.read([*prompt[1:].tolist(), 9], out[1])
        packed, _ = pack_plan(TreePlan(4, 3, 12))
        grown = memory.grow(packed)
        found[f"draft {mode.name}"] = digest(grown.token, grown.parent, grown.logq)
    return found


def test_bits_are_those_on_record(library: Library, make_tiny: Callable[..., Any]) -> None:
    want = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert computed(library, make_tiny) == want

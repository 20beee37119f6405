"""The tiny model on every backend."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.engine.model.native_weights import NativeWeights
from adaptivespec.engine.model.static_target import StaticTarget
from adaptivespec.engine.target import Target
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.native.library import Library, Mode, load_library
from adaptivespec.native.weights import raw_tensor
from fakes import tiny
from fakes.tape import Tape

#: The native engine wants sizes in whole groups of 32.
CONFIG = replace(tiny.CONFIG, intermediate_size=64)
BACKENDS = ("torch", "captured", "A8", "A16")
#: Those that round a row differently in other company.
ROUNDING = ("torch", "captured")


@cache
def _why_not_native() -> str | None:
    try:
        load_library()
    except AdaptiveSpecError as error:
        return str(error)
    return None


def native_weights(weights: dict[str, Tensor]) -> NativeWeights:
    """Dense tensors as the native engine takes them."""
    return NativeWeights({name: raw_tensor(tensor) for name, tensor in weights.items()}, False)


def native(
    mode: str = "A8", config: ModelConfig = CONFIG, threads: int = 1, library: Library | None = None
) -> NativeTarget:
    """The tiny model in the native engine; skips the test where there is none."""
    if reason := _why_not_native():
        pytest.skip(f"no native engine: {reason}")
    weights = native_weights(tiny.weights(config))
    return NativeTarget(weights, config, tiny.MAX_LEN, Mode[mode], threads, library)


def static(tape: Tape, config: ModelConfig = CONFIG) -> StaticTarget:
    """The tiny model in passes that `tape` captures."""
    model = Llama(tiny.weights(config), config, torch.float32, tiny.MAX_LEN)
    return StaticTarget(model, tiny.MAX_LEN, tape)


@cache
def target(backend: str) -> Target[Any]:
    """The tiny model behind the target interface."""
    if backend == "captured":
        return static(Tape())
    return tiny.target(CONFIG) if backend == "torch" else native(backend)


def logits(target: Target[Any], ids: list[int]) -> Tensor:
    """Logits after every token of `ids`."""
    return target.verify(target.new_cache(4), DraftTree.chain(ids)).logits


def deviation(got: Tensor, want: Tensor) -> float:
    """Largest difference, against the spread of the logits."""
    return float((got - want).abs().max() / want.std())

"""Biases (Qwen2) and norms of heads (Qwen3): against float64, exact, and never in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.native.library import Library, Matrix, Mode, NativeError, NativeModel, Norm
from fakes import targets
from fakes import tiny as fakes
from native.chains import chain, tokens_of

MakeTiny = Callable[..., Any]

FAMILIES = ("qwen2", "qwen3")
SHAPES = {
    "groups of seven": {"head_dim": 64, "heads": 7, "kv_heads": 1, "hidden": 448, "layers": 1},
    "head_dim 16": {"head_dim": 16, "heads": 4, "kv_heads": 2, "tied": 0},
    "head_dim 128": {"head_dim": 128, "heads": 2, "kv_heads": 1, "hidden": 64},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_float64(
    library: Library, make_tiny: MakeTiny, family: str, shape: str
) -> None:
    tiny = make_tiny(family=family, **SHAPES[shape])
    tokens = tokens_of(tiny.native(library), 90)
    layers = [*range(tiny.config.layers)]
    exact = tiny.forward(list(tokens), layers)
    for mode, tolerance in ((Mode.A8, 0.06), (Mode.A16, 1e-3)):
        _, *ours = chain(tiny.native(library), tokens, [64, 5, 1], mode)
        for got, want in zip(ours, exact, strict=True):
            error = np.sqrt(((got - want) ** 2).mean(-1) / (want**2).mean(-1))
            assert error.mean() < tolerance
    tiny.biases, tiny.family = {}, "llama"  # without them it is another model
    other = tiny.forward(list(tokens), layers)[0]
    assert np.abs(other - exact[0]).max() > 0.1 * np.abs(exact[0]).max()


@pytest.mark.parametrize("mode", [Mode.A8, Mode.A16])
@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_threads_and_instruction_sets_change_no_bit(
    libraries: list[Library], make_tiny: MakeTiny, family: str, mode: Mode
) -> None:
    tiny = make_tiny(family=family, seed=4)
    models = [tiny.native(library) for library in libraries]
    tokens = tokens_of(models[0], 60)
    _, *plain = chain(models[0], tokens, [1], mode)
    for model in models:
        for threads, sizes in ((1, [60]), (2, [7]), (3, [33, 1])):
            for ours, want in zip(
                chain(model, tokens, sizes, mode, threads)[1:], plain, strict=True
            ):
                assert np.array_equal(ours, want)


def build(library: Library, tiny: Any, without: tuple[int, Matrix | Norm]) -> NativeModel:
    """The model but for one bias or gain; not ready yet."""
    model = NativeModel(tiny.config, library)
    model.rope(tiny.cos, tiny.sin)
    for (layer, matrix), tensor in tiny.raw.items():
        model.weight(layer, matrix, tensor)
    for (layer, norm), gain in tiny.gains.items():
        if (layer, norm) != without or not isinstance(without[1], Norm):
            model.norm(layer, norm, gain)
    for (layer, matrix), bias in tiny.biases.items():
        if (layer, matrix) != without or not isinstance(without[1], Matrix):
            model.bias(layer, matrix, bias)
    return model


@pytest.mark.parametrize(
    ("family", "missing", "message"),
    [
        ("qwen2", (0, Matrix.QUERY), "biases are given in part"),
        ("qwen2", (0, Matrix.VALUE), "biases are given in part"),
        ("qwen2", (1, Matrix.KEY), "biases are given in part.*layer 1 differs"),
        ("qwen3", (0, Norm.KEY), "norms of heads are given in part"),
        ("qwen3", (1, Norm.QUERY), "norms of heads are given in part.*layer 1 differs"),
    ],
)
def test_half_of_them_is_refused(
    library: Library,
    make_tiny: MakeTiny,
    family: str,
    missing: tuple[int, Matrix | Norm],
    message: str,
) -> None:
    tiny = make_tiny(family=family)
    model = build(library, tiny, missing)
    with pytest.raises(NativeError, match=message):
        model.ready()
    layer, which = missing
    if isinstance(which, Matrix):
        model.bias(layer, which, tiny.biases[layer, which])
    else:
        model.norm(layer, which, tiny.gains[layer, which])
    model.ready()


def test_what_does_not_fit_is_refused(library: Library, make_tiny: MakeTiny) -> None:
    tiny = make_tiny()
    model = NativeModel(tiny.config, library)
    width, head_dim = tiny.config.heads * tiny.config.head_dim, tiny.config.head_dim
    for message, call in {
        "size is 191, expected 192": lambda: model.bias(0, Matrix.QUERY, zeros(width - 1)),
        "size is 192, expected 64": lambda: model.bias(0, Matrix.KEY, zeros(width)),
        "which is 5, expected 2 to 4": lambda: model.bias(0, Matrix.ATTENTION_OUTPUT, zeros(96)),
        "layer is 2, expected 0 to 1": lambda: model.bias(2, Matrix.KEY, zeros(64)),
        "bias has a value that is not finite": lambda: model.bias(
            0, Matrix.KEY, np.full(64, np.inf, np.float32)
        ),
        "size is 96, expected 32": lambda: model.norm(0, Norm.QUERY, zeros(96)),
        "layer is -1, expected 0 to 1": lambda: model.norm(-1, Norm.KEY, zeros(head_dim)),
    }.items():
        with pytest.raises(NativeError, match=message):
            call()
    model.bias(0, Matrix.KEY, zeros(64))
    with pytest.raises(NativeError, match="given before"):
        model.bias(0, Matrix.KEY, zeros(64))


def zeros(size: int) -> Any:
    return np.zeros(size, np.float32)


# --- the target ------------------------------------------------------------------------------


def with_tensors(extra: dict[str, torch.Tensor]) -> NativeTarget:
    """The tiny model of the engine's tests with tensors of another family."""
    targets.native()  # skips without a compiler
    weights = targets.native_weights(fakes.weights(targets.CONFIG) | extra)
    return NativeTarget(weights, targets.CONFIG, fakes.MAX_LEN, Mode.A16)


def layered(name: str, values: torch.Tensor) -> dict[str, torch.Tensor]:
    layers = range(targets.CONFIG.num_layers)
    return {f"model.layers.{i}.self_attn.{name}": values for i in layers}


def biases(scale: float) -> dict[str, torch.Tensor]:
    c = targets.CONFIG
    width, kv_width = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    tensors: dict[str, torch.Tensor] = {}
    for name, size in (("q", width), ("k", kv_width), ("v", kv_width)):
        tensors |= layered(f"{name}_proj.bias", torch.full((size,), scale))
    return tensors


def test_the_target_hands_them_over() -> None:
    ids, head = [5, 9, 11, 2], torch.ones(targets.CONFIG.head_dim)
    plain = targets.logits(with_tensors({}), ids)
    assert torch.equal(targets.logits(with_tensors(biases(0.0)), ids), plain)
    assert not torch.equal(targets.logits(with_tensors(biases(0.5)), ids), plain)
    norms = layered("q_norm.weight", head) | layered("k_norm.weight", head)
    assert not torch.equal(targets.logits(with_tensors(norms), ids), plain)
    with pytest.raises(NativeError, match="norms of heads are given in part"):
        with_tensors(layered("q_norm.weight", head))
    with pytest.raises(NativeError, match="size is 3, expected 16"):
        with_tensors(layered("k_norm.weight", torch.ones(3)))

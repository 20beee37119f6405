"""Caches of the compiled engine, and what it refuses at its boundary."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from adaptivespec.native import library as bindings
from adaptivespec.native.binding import RawPass, RawRows
from adaptivespec.native.library import Library, Matrix, Mode, NativeError, Norm
from native.chains import chain, tokens_of

MakeTiny = Callable[..., Any]
Floats = npt.NDArray[np.float32]


# --- the cache -------------------------------------------------------------------------------


def test_the_cache_grows_and_keeps_its_rows(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    tokens = tokens_of(model, 256)
    small, *grown = chain(model, tokens, [29], Mode.A8, capacity=1)
    large, *roomy = chain(model, tokens, [29], Mode.A8, capacity=256)
    assert small.length == large.length == 256
    for ours, reference in zip(grown, roomy, strict=True):
        assert np.array_equal(ours, reference)
    small_at_first = model.new_cache(1)
    assert small_at_first.num_bytes < small.num_bytes


def test_truncate_forgets_rows(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    tokens = tokens_of(model, 60)
    cache, logits, _, _ = chain(model, tokens, [20], Mode.A8)
    cache.truncate(33)
    assert cache.length == 33
    again = cache.forward(tokens[33:], mode=Mode.A8, threads=1)[0]
    assert np.array_equal(again, logits[33:])
    with pytest.raises(NativeError, match="length is 34, expected 0 to 33"):
        cache.truncate(34)
    assert cache.length == 33


def test_a_second_pass_replaces_the_first(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    tokens = tokens_of(model, 30)
    reference = chain(model, tokens, [30], Mode.A8)[1]
    cache = chain(model, tokens[:10], [10], Mode.A8)[0]
    cache.forward(tokens_of(model, 40, seed=9), mode=Mode.A8, threads=1)
    ours = cache.forward(tokens[10:], mode=Mode.A8, threads=1)[0]
    assert np.array_equal(ours, reference[10:])


def test_caches_run_side_by_side(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    sequences = [tokens_of(model, 80, seed=seed) for seed in range(4)]
    expected = [chain(model, tokens, [7], Mode.A8)[1] for tokens in sequences]
    results: list[Floats | None] = [None] * 4

    def run(index: int) -> None:
        for _ in range(5):
            results[index] = chain(model, sequences[index], [7], Mode.A8, threads=2)[1]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, reference in zip(results, expected, strict=True):
        assert ours is not None
        assert np.array_equal(ours, reference)


def test_a_cache_outlives_its_model(library: Library, make_tiny: MakeTiny) -> None:
    model = make_tiny().native(library)
    tokens = tokens_of(model, 8)
    reference = chain(model, tokens, [8], Mode.A8)[1]
    caches = [model.new_cache(8) for _ in range(3)]
    other = make_tiny(seed=5).native(library)
    assert not np.array_equal(chain(other, tokens, [8], Mode.A8)[1], reference)
    del other
    for cache in caches:
        assert np.array_equal(cache.forward(tokens, mode=Mode.A8, threads=2)[0], reference)
    del model
    assert caches[0].num_bytes > 0


# --- errors at the boundary ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden": 40}, "hidden is 40, not a multiple of 32"),
        ({"ffn": 33}, "ffn is 33, not a multiple of 32"),
        ({"head_dim": 24}, "head_dim is 24, not a multiple of 16"),
        ({"head_dim": 272}, "head_dim is 272, expected 16 to 256"),
        ({"heads": 5}, "heads is 5, not a multiple of kv_heads"),
        ({"head_dim": 16, "heads": 3, "kv_heads": 1}, "heads \\* head_dim is 48"),
        ({"layers": 0}, "layers is 0, expected 1 to"),
        ({"vocab": 0}, "vocab is 0"),
        ({"max_len": -1}, "max_len is -1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    library: Library, sizes: dict[str, int], message: str
) -> None:
    defaults = {"layers": 1, "hidden": 32, "ffn": 32, "heads": 4, "kv_heads": 2, "head_dim": 16}
    config = bindings.NativeConfig(
        **({**defaults, "vocab": 8, "max_len": 8} | sizes), rms_eps=1e-5, tied=True
    )
    with pytest.raises(NativeError, match=message):
        bindings.NativeModel(config, library)


def test_missing_doubled_and_late_weights_are_refused(
    library: Library, make_tiny: MakeTiny
) -> None:
    tiny = make_tiny()
    model = bindings.NativeModel(tiny.config, library)
    with pytest.raises(NativeError, match="rotary tables are missing"):
        model.ready()
    with pytest.raises(NativeError, match="not ready"):
        model.new_cache(1)
    model.rope(tiny.cos, tiny.sin)
    for (layer, norm), gain in tiny.gains.items():
        model.norm(layer, norm, gain)
    with pytest.raises(NativeError, match="given before"):
        model.norm(0, Norm.FFN, tiny.gains[0, Norm.FFN])
    for key, raw in tiny.raw.items():
        if key != (1, Matrix.UP):
            model.weight(*key, raw)
    with pytest.raises(NativeError, match="up of layer 1 is missing"):
        model.ready()
    with pytest.raises(NativeError, match="gate of layer 1 was given before"):
        model.weight(1, Matrix.GATE, tiny.raw[1, Matrix.GATE])
    with pytest.raises(NativeError, match=r"up is \[96, 160\], expected \[160, 96\]"):
        model.weight(1, Matrix.UP, tiny.raw[1, Matrix.DOWN])
    with pytest.raises(NativeError, match="layer is 2, expected 0 to 1"):
        model.weight(2, Matrix.UP, tiny.raw[1, Matrix.UP])
    with pytest.raises(NativeError, match="tied model has no output"):
        model.weight(0, Matrix.OUTPUT, tiny.raw[0, Matrix.EMBEDDING])
    bad_order = np.arange(160, dtype=np.int32)
    bad_order[3] = 160
    with pytest.raises(NativeError, match="row_order is 160, expected 0 to 159"):
        model.weight(1, Matrix.UP, tiny.raw[1, Matrix.UP], bad_order)
    model.weight(1, Matrix.UP, tiny.raw[1, Matrix.UP])
    model.ready()
    with pytest.raises(NativeError, match="weights no longer change"):
        model.weight(1, Matrix.UP, tiny.raw[1, Matrix.UP])


def test_rows_out_of_bounds_are_refused_and_change_nothing(
    library: Library, make_tiny: MakeTiny
) -> None:
    model = make_tiny(max_len=40).native(library)
    tokens = tokens_of(model, 30)
    cache, logits, _, _ = chain(model, tokens[:20], [20], Mode.A8)

    def run(tokens: list[int], parents: list[int] | None = None, **options: Any) -> object:
        tree = None if parents is None else np.array(parents, np.int32)
        arguments = {"mode": Mode.A8, "threads": 1} | options
        return cache.forward(np.array(tokens, np.int32), tree, **arguments)

    for message, call in {
        "a token is 75, expected 0 to 74": lambda: run([1, 75]),
        "a token is -1": lambda: run([-1]),
        "rows is 0, expected 1 to 256": lambda: run([]),
        "rows is 257": lambda: run([1] * 257),
        "a position is 40, expected 0 to 39": lambda: run([1] * 21),
        "a parent is 1, expected -1 to 0": lambda: run([1, 1], [-1, 1]),
        "a parent is -2": lambda: run([1], [-2]),
        "threads is 0, expected 1 to 64": lambda: run([1], threads=0),
        "threads is 65": lambda: run([1], threads=65),
        "mode is 2": lambda: run([1], mode=2),
        "a tapped layer is 2, expected 0 to 1": lambda: run([1], tap_layers=[2]),
        "an asked row is 1, expected 0 to 0": lambda: run([1], asked=[1]),
        "asked_count is 2, expected 0 to 1": lambda: run([1], asked=[0, 0]),
    }.items():
        with pytest.raises(NativeError, match=message):
            call()
    run([1] * 256, [-1] * 256)  # a broad tree may use more slots than there are positions
    with pytest.raises(NativeError, match="an entry of path is 256, expected 0 to 255"):
        cache.commit([256])
    with pytest.raises(NativeError, match="an entry of path is 3, expected 4 to 255"):
        cache.commit([3, 3])
    with pytest.raises(NativeError):
        run([75])
    with pytest.raises(NativeError, match="count is 1, expected 0 to 0"):
        cache.commit([0])  # the failed pass left no rows
    assert cache.length == 20
    cache.truncate(10)
    again = cache.forward(tokens[10:20], mode=Mode.A8, threads=1)[0]
    assert np.array_equal(again, logits[10:])


def test_null_and_foreign_handles_are_refused(library: Library, make_tiny: MakeTiny) -> None:
    model, other = make_tiny().native(library), make_tiny(seed=1).native(library)
    cache = model.new_cache(4)
    token = (ctypes.c_int32 * 1)(1)
    rows = RawRows(cache=cache.handle, rows=1, tokens=ctypes.addressof(token))
    call = RawPass(sequence_count=1, threads=1, sequences=ctypes.addressof(rows))

    def forward(model: Any, call: Any) -> None:
        library.call("as_forward", model, None if call is None else ctypes.byref(call))

    with pytest.raises(NativeError, match="the cache is of another model"):
        forward(other.handle, call)
    with pytest.raises(NativeError, match="model is NULL"):
        forward(None, call)
    with pytest.raises(NativeError, match="pass is NULL"):
        forward(model.handle, None)
    rows.tokens = None
    with pytest.raises(NativeError, match="tokens is NULL"):
        forward(model.handle, call)
    rows.cache = None
    with pytest.raises(NativeError, match="cache is NULL"):
        forward(model.handle, call)
    call.sequences = None
    with pytest.raises(NativeError, match="sequences is NULL"):
        forward(model.handle, call)
    call.sequence_count = 0
    with pytest.raises(NativeError, match="sequence_count is 0, expected 1 to 256"):
        forward(model.handle, call)
    library.call("as_model_free", None)
    library.call("as_cache_free", None)

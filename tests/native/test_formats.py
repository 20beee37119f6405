"""Every weight format: unpacked bit for bit, multiplied exactly, and refused where it must be."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptivespec.native.library import FORMATS, Library, Matrix, Mode, NativeError
from adaptivespec.native.weights import RawTensor
from native import formats
from native.formats import FLOATS, KEPT, Floats, from_bytes, integers, probe, random_tensor

MODES = [Mode.A8, Mode.A16]
#: Kinds with the way in which the engine packs them.
PACKED = [*((kind, False) for kind in (*KEPT, *FLOATS)), *((kind, True) for kind in FLOATS)]
IDS = [f"{kind}{'-precise' if precise else ''}" for kind, precise in PACKED]


def decoded(tensor: RawTensor) -> Floats:
    """What gguf, which knows nothing of the engine, makes of a tensor."""
    kind = gguf.GGMLQuantizationType[tensor.kind]
    return gguf.quants.dequantize(tensor.data.reshape(tensor.rows, -1), kind).astype(np.float32)


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("columns", [256, 768])
def test_kept_weights_are_the_published_ones(library: Library, kind: str, columns: int) -> None:
    tensor = random_tensor(kind, 37, columns)
    assert np.array_equal(formats.unpacked(library, tensor), decoded(tensor))


@pytest.mark.parametrize("kind", KEPT)
@given(content=st.binary(min_size=4 * 3 * 34 * 8, max_size=4 * 3 * 34 * 8))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_block_is_kept(library: Library, kind: str, content: bytes) -> None:
    tensor = from_bytes(np.frombuffer(content, np.uint8), kind, 256)
    assert np.array_equal(formats.unpacked(library, tensor), decoded(tensor))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_what_gguf_quantises_is_kept(library: Library, kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((18, 96)).astype(np.float32)
    values[3] = 0
    blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    tensor = RawTensor(kind, values.shape, blocks.reshape(-1))
    assert np.array_equal(formats.unpacked(library, tensor), decoded(tensor))


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("precise", "levels"), [(False, 127), (True, 127 * 256)])
def test_floats_are_rounded_to_the_nearest_level(
    library: Library, kind: str, precise: bool, levels: int
) -> None:
    tensor = random_tensor(kind, 33, 96)
    exact = tensor.dequantised().astype(np.float64).reshape(33, -1, 32)
    got = formats.unpacked(library, tensor, precise=precise).reshape(exact.shape)
    most = np.abs(exact).max(-1, keepdims=True)
    assert (np.abs(got - exact) <= most / levels * 0.51).all()  # a Q8_0 scale is rounded to f16
    assert np.abs(got - exact).max() > 0


@pytest.mark.parametrize("kind", FLOATS)
def test_coarse_floats_are_rounded_between_their_least_and_largest(
    library: Library, kind: str
) -> None:
    tensor = random_tensor(kind, 33, 96)
    exact = tensor.dequantised().astype(np.float64).reshape(33, -1, 32)
    got = formats.unpacked(library, tensor, coarse=True).reshape(exact.shape)
    spread = exact.max(-1, keepdims=True) - exact.min(-1, keepdims=True)
    error = np.abs(got - exact)
    assert (error <= spread / 15 * 0.55).all()  # scale and minimum are f16
    assert (error.max(-1) >= spread[..., 0] / 15 * 0.3).any()
    assert all(len(np.unique(group)) <= 16 for row in got for group in row)


def test_floats_are_precise_or_coarse(library: Library) -> None:
    tensor = random_tensor("F32", 2, 32)
    with pytest.raises(NativeError, match="both precise and coarse"):
        formats.unpacked(library, tensor, precise=True, coarse=True)


@pytest.mark.parametrize(("precise", "coarse"), [(False, False), (True, False), (False, True)])
def test_extreme_floats_are_packed(library: Library, precise: bool, coarse: bool) -> None:
    values = np.zeros((6, 32), np.float32)
    values[1] = 1e-42
    values[2, 5], values[2, 6] = 3e38, -1
    values[3, 0] = np.inf
    values[4, 0] = np.nan
    values[5, 9] = -7
    tensor = RawTensor("F32", values.shape, values.view(np.uint8).reshape(-1))
    got = formats.unpacked(library, tensor, precise=precise, coarse=coarse)
    assert np.isfinite(got).all()
    assert not got[0].any()
    assert np.abs(got[1]).max() < 1e-41
    assert np.allclose(got[5], values[5], rtol=1e-3, atol=1e-2 if coarse else 1e-8)  # f16 scales
    if precise:
        assert np.allclose(got[2], values[2], rtol=1e-4, atol=1e34)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "precise"), PACKED, ids=IDS)
def test_products_are_those_of_float64(
    library: Library, kind: str, precise: bool, mode: Mode
) -> None:
    tensor = random_tensor(kind, 41, 768, seed=2)
    embedding, x = integers(tensor.rows, tensor.columns)
    got = formats.products(probe(library, tensor, embedding, precise=precise), range(20), mode)
    weights = formats.unpacked(library, tensor, precise=precise).astype(np.float64)
    inputs = formats.activations(x[:20], mode)
    # Rounding in float32: of a group's sum, a few units in its last place.
    largest = np.repeat(np.abs(weights).reshape(len(weights), -1, 32).max(-1), 32, -1)
    tolerance = 2**-22 * np.abs(inputs) @ largest.T
    assert (np.abs(got - inputs @ weights.T) <= tolerance).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "precise"), PACKED, ids=IDS)
def test_a_row_does_not_depend_on_its_neighbours(
    library: Library, kind: str, precise: bool, mode: Mode
) -> None:
    tensor = random_tensor(kind, 33, 512, seed=3)
    model = probe(library, tensor, integers(tensor.rows, tensor.columns)[0], precise=precise)
    alone = np.concatenate([formats.products(model, [row], mode) for row in range(33)])
    assert len(np.unique(alone)) > 1000
    for size in (*range(2, 9), 11, 33):
        for first in range(0, 33 - size + 1, 7):
            rows = range(first, first + size)
            assert np.array_equal(formats.products(model, rows, mode), alone[first : first + size])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "precise"), PACKED, ids=IDS)
def test_instruction_sets_do_not_change_a_bit(
    libraries: list[Library], kind: str, precise: bool, mode: Mode
) -> None:
    tensor = random_tensor(kind, 50, 512, seed=4)
    first, second = (
        [
            formats.unpacked(library, tensor, precise=precise),
            formats.products(probe(library, tensor, tensor, precise=precise), range(50), mode),
        ]
        for library in libraries
    )
    for ours, reference in zip(first, second, strict=True):
        assert np.array_equal(ours, reference)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_blocks_that_do_not_fill_a_row_are_refused(library: Library, kind: str) -> None:
    whole = random_tensor(kind, 32, 256)
    narrow = RawTensor(kind, (32, 96), whole.data)
    with pytest.raises(NativeError, match=f"96 columns, in {kind} they come in blocks of 256"):
        probe(library, narrow, integers(32, 96)[0])


def test_foreign_formats_are_refused(library: Library) -> None:
    tensor = integers(32, 96)[0]
    model = probe(library, tensor, tensor)

    def give(format: int) -> None:
        arguments = (tensor.data.ctypes.data, 32, 96, None)
        library.call("as_model_weight", other.handle, 0, Matrix.EMBEDDING, format, *arguments)

    other = type(model)(model.config, library)
    for format in (-1, 11, 63):
        with pytest.raises(NativeError, match=f"format is {format}, expected 0 to 10"):
            give(format)
    with pytest.raises(NativeError, match=r"format is Q8_0, .* are for floats"):
        give(FORMATS["Q8_0"] | 64)
    give(FORMATS["Q8_0"])

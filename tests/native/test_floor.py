"""The floor of a pass: what is measured, what is counted, and how the two combine."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.engine import costs
from adaptivespec.native import floor
from adaptivespec.native.floor import Floor, Rates, Work, measure_rates
from adaptivespec.native.library import Library, Mode, NativeError
from fakes import targets, tiny
from native.conftest import Tiny

POSITIVE = st.floats(1e-3, 1e15)
WORK = st.builds(
    Work,
    weight_bytes=st.integers(1, 10**12),
    row_dots=st.integers(1, 10**12),
    token_bytes=st.integers(0, 10**7),
    token_floats=st.integers(0, 10**7),
)


@pytest.mark.parametrize("threads", [1, 2])
def test_rates_are_measured_on_every_instruction_set(library: Library, threads: int) -> None:
    rates = measure_rates(1, threads, 0.01, library)
    for rate in (rates.bytes, rates.dots, rates.floats):
        assert isfinite(rate)
        assert rate > 1e6  # anything slower is no processor but a mistake in the units


@pytest.mark.parametrize(
    ("threads", "seconds", "named"),
    [
        (0, 0.1, "threads is 0"),
        (65, 0.1, "threads is 65"),
        (1, -1.0, "seconds"),
        (1, nan, "seconds"),
        (1, inf, "seconds"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    library: Library, threads: int, seconds: float, named: str
) -> None:
    with pytest.raises(NativeError, match=named):
        measure_rates(1, threads, seconds, library)


def test_sizes_are_checked_at_the_boundary(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1000, 1 << 37):
        monkeypatch.setattr(floor, "_BYTES", (size, size))
        with pytest.raises(NativeError, match=f"bytes is {size}"):
            measure_rates(1, 1, 0.0, library)


@pytest.mark.parametrize("tied", [0, 1])
def test_the_work_of_a_model_is_counted(
    library: Library, make_tiny: Callable[..., Tiny], tied: int
) -> None:
    tiny = make_tiny(tied=tied, kinds=("Q8_0",))
    model = tiny.native(library)
    work = Work.of(model, Mode.A8)
    embedding = tiny.config.vocab * tiny.config.hidden
    held = sum(tensor.rows * tensor.columns for tensor in tiny.raw.values())
    assert work.row_dots == (held if tied else held - embedding)
    assert work.weight_bytes == model.num_bytes * work.row_dots // held
    assert Work.of(model, Mode.A16).row_dots == 2 * work.row_dots
    c = tiny.config
    assert work.token_bytes == c.layers * 2 * c.kv_heads * c.head_dim * 2
    assert work.token_floats == c.layers * 2 * c.heads * c.head_dim


@given(
    rates=st.builds(Rates, POSITIVE, POSITIVE, POSITIVE),
    work=WORK,
    nodes=st.integers(1, 256),
    context=st.integers(0, 10**5),
)
def test_the_floor_is_the_longer_of_two_and_rises(
    rates: Rates, work: Work, nodes: int, context: int
) -> None:
    made = Floor(rates, work)
    least = made.seconds(nodes, context)
    assert least == max(made.reading(context), made.multiplying(nodes, context))
    assert least <= made.seconds(nodes + 1, context)
    assert least <= made.seconds(nodes, context + 1)


def test_a_floor_by_hand() -> None:
    made = Floor(Rates(bytes=1e9, dots=1e9, floats=1e8), Work(2_000_000, 1_000_000, 1000, 100))
    assert made.reading(500) == pytest.approx(2.5e-3)
    assert made.multiplying(1, 500) == pytest.approx(1.5e-3)
    assert made.seconds(1, 500) == pytest.approx(2.5e-3)
    assert made.seconds(4, 500) == pytest.approx(6e-3)
    assert made.to_json()["work"]["row_dots"] == 1_000_000


def test_a_native_target_has_a_floor_and_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def measure(num_bytes: int, threads: int) -> Rates:
        asked.append((num_bytes, threads))
        return Rates(1.0, 2.0, 3.0)

    monkeypatch.setattr(floor, "measure_rates", measure)
    assert costs.floor(tiny.target()) is None
    target = targets.native("A16", threads=2)
    found = costs.floor(target)
    assert found == Floor(Rates(1.0, 2.0, 3.0), Work.of(target.model, Mode.A16))
    assert asked == [(found.work.weight_bytes, 2)]

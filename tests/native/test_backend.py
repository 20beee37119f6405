"""`auto`: native where it can serve, else torch, which is said once with the remedy."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from adaptivespec.core.errors import ConfigError, FallbackWarning
from adaptivespec.engine import loading
from adaptivespec.engine.loading import Backend
from adaptivespec.engine.weights.progress import ProgressEvent
from adaptivespec.native import build, library
from adaptivespec.native.build import NativeBuildError
from fakes import targets


def have_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_prepare_native", lambda progress: None)


def have_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(progress: object) -> None:
        raise NativeBuildError("there is no C++ compiler", field="backend", remedy="Install g++")

    monkeypatch.setattr(loading, "_prepare_native", fail)


@pytest.fixture(autouse=True)
def strict_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


@pytest.mark.parametrize("dtype", ["auto", "exact"])
def test_native_where_it_can(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    have_engine(monkeypatch)
    chosen = Backend.choose("auto", dtype)
    assert (chosen.name, chosen.dtype) == ("native", dtype)
    assert chosen.for_model(targets.CONFIG, 64) == chosen
    # Apart from the way back, as if native had been asked for.
    assert replace(chosen, optional=False) == Backend.choose("native", dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_dtype_of_torch_means_torch(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    have_no_engine(monkeypatch)
    assert Backend.choose("auto", dtype) == Backend.choose("torch", dtype)
    with pytest.raises(ConfigError, match="unknown dtype"):
        Backend.choose("auto", "int3")


def test_without_an_engine_torch_serves_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    have_no_engine(monkeypatch)
    with pytest.warns(FallbackWarning, match=r"torch backend serves.*no C\+\+ comp.*Install g\+\+"):
        assert Backend.choose("auto", "auto") == Backend.choose("torch", "auto")
    with pytest.warns(FallbackWarning):
        assert Backend.choose("auto", "exact").torch_dtype == torch.float32
    with pytest.raises(NativeBuildError, match="Install g"):
        Backend.choose("native", "auto")


def test_a_foreign_machine_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def detect() -> build.Isa:
        raise NativeBuildError("the native engine needs Linux on an x86-64 processor")

    monkeypatch.setattr(build, "detect_isa", detect)
    library.load_library.cache_clear()
    with pytest.warns(FallbackWarning, match="needs Linux on an x86-64 processor"):
        assert Backend.choose("auto", "auto").name == "torch"


def test_a_model_that_native_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    have_engine(monkeypatch)
    odd = replace(targets.CONFIG, intermediate_size=100)
    chosen = Backend.choose("auto", "auto")
    with pytest.warns(FallbackWarning, match="intermediate_size = 100 is no multiple of 32"):
        assert chosen.for_model(odd, 64) == Backend.choose("torch", "auto")
    strict = Backend.choose("native", "auto")
    assert strict.for_model(odd, 64) is strict  # the target itself refuses it


def test_compiling_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(progress: build.Progress) -> None:
        progress(0, 2)
        progress(2, 2)

    monkeypatch.setattr(build, "library_path", compile)
    monkeypatch.setattr(library, "load_library", lambda: None)
    events: list[ProgressEvent] = []
    Backend.choose("native", "auto", events.append)
    assert [(event.stage, event.done, event.total) for event in events] == [
        (loading.COMPILING, 0, 2),
        (loading.COMPILING, 2, 2),
    ]

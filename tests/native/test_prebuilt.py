"""The libraries of a wheel: what is made, what is refused, and that zig computes as g++ does."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptivespec.native import prebuilt
from adaptivespec.native.build import ISAS, NativeBuildError, library_name
from adaptivespec.native.compiler import find_zig
from adaptivespec.native.library import Library, Mode
from native.conftest import Tiny, load


def stand_in(path: Path, content: str) -> list[str]:
    """A compiler whose every output is `content`."""
    path.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nprintf "{content}" > "$2"\n')
    path.chmod(0o755)
    return [str(path)]


def test_made_once_and_stale_ones_removed(tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    (lib / "engine-0123456789abcdef-avx2.so").write_text("stale")
    assert prebuilt.missing(lib) == [library_name(isa) for isa in ISAS]
    made = prebuilt.make(lib, stand_in(tmp_path / "cc", "GLIBC_2.3.2 GLIBC_2.17"))
    assert sorted(lib.iterdir()) == sorted(made)
    assert prebuilt.missing(lib) == []
    assert prebuilt.make(lib, ["nothing to run"]) == made


def test_a_library_for_a_newer_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NativeBuildError, match=r"needs glibc 2\.34, a wheel may need 2\.17"):
        prebuilt.make(tmp_path / "lib", stand_in(tmp_path / "cc", "GLIBC_2.2.5 GLIBC_2.34"))
    assert not list((tmp_path / "lib").iterdir())


def test_without_zig_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prebuilt, "find_zig", lambda: None)
    with pytest.raises(NativeBuildError, match="pip install ziglang"):
        prebuilt.make(tmp_path / "lib")


@pytest.fixture
def hook(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Runs the build hook for a version of the wheel; returns what it decided."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheels")
    monkeypatch.setattr(prebuilt, "PREBUILT_DIR", tmp_path)
    monkeypatch.setattr(prebuilt, "missing", lambda: [] if list(tmp_path.glob("new*")) else ["new"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(version: str = "standard") -> dict[str, Any]:
        data: dict[str, Any] = {"artifacts": [], "pure_python": True}
        unused: Any = None
        plugin = module.PrebuiltLibraries(str(root), {}, unused, unused, str(tmp_path), "wheel")
        plugin.initialize(version, data)
        return data

    return run


def test_a_wheel_without_libraries_is_for_any_platform(hook: Callable[..., Any]) -> None:
    assert hook() == {"artifacts": [], "pure_python": True}


def test_a_wheel_with_libraries_is_for_linux(hook: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "new.so").write_text("")
    data = hook()
    assert data["tag"] == "py3-none-manylinux_2_17_x86_64"
    assert not data["pure_python"]
    assert data["artifacts"] == ["/src/adaptivespec/native/lib/*.so"]
    assert hook("editable") == {"artifacts": [], "pure_python": True}


def test_a_wheel_with_stale_libraries_is_refused(hook: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "old.so").write_text("")
    with pytest.raises(RuntimeError, match="run `make native`"):
        hook()


@pytest.mark.slow
@pytest.mark.parametrize("mode", Mode)
def test_the_libraries_of_zig_compute_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, make_tiny: Callable[..., Tiny], mode: Mode
) -> None:
    if find_zig() is None:
        pytest.skip("no zig (pip install ziglang)")
    lib = tmp_path_factory.getbasetemp() / "zig"
    made = prebuilt.make(lib)
    assert all(prebuilt.newest_glibc(path) <= prebuilt.GLIBC for path in made)
    tiny = make_tiny()
    for isa, path in zip(ISAS, made, strict=True):
        results = []
        for library in (load(isa.name), Library(str(path))):
            assert library.isa == isa.name
            cache = tiny.native(library).new_cache(64)
            tokens = np.arange(40, dtype=np.int32)
            results.append(cache.forward(tokens, mode=mode, threads=2, tap_layers=[0, 1]))
        for got, want in zip(*results, strict=True):
            assert np.array_equal(got, want)

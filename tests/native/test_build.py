"""Finding a compiler and an instruction set, and compiling the native engine once."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.native import build
from adaptivespec.native.build import (
    ISAS,
    NativeBuildError,
    detect_isa,
    find_compiler,
    isa_named,
    library_path,
)


def cpuinfo(path: Path, *flags: str) -> Path:
    path.write_text(f"model name\t: x\nflags\t\t: sse {' '.join(flags)}\nbugs\t\t: none\n")
    return path


def compiler(path: Path, script: str) -> str:
    """A stand-in that counts its runs in `<path>.log`."""
    path.write_text(f"#!/bin/sh\necho run >> {path}.log\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


WRITES = 'while [ "$1" != -o ]; do shift; done; echo library > "$2"'


def test_the_best_instruction_set_of_the_processor(tmp_path: Path) -> None:
    best, plain = ISAS
    assert detect_isa(cpuinfo(tmp_path / "a", *best.cpu_flags)) is best
    without_vnni = set(best.cpu_flags) - {"avx512_vnni"}
    assert detect_isa(cpuinfo(tmp_path / "b", *without_vnni)) is plain
    assert isa_named("avx2") is plain


def test_no_instruction_set_says_so(tmp_path: Path) -> None:
    with pytest.raises(NativeBuildError, match=r"AVX2.*Use the torch backend"):
        detect_isa(cpuinfo(tmp_path / "a", "avx2", "fma"))
    with pytest.raises(NativeBuildError):
        detect_isa(tmp_path / "missing")
    with pytest.raises(ConfigError, match="there are: avx512, avx2"):
        isa_named("neon")


def test_cxx_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = compiler(tmp_path / "mine", "")
    monkeypatch.setenv("CXX", f"{mine} -g")
    assert find_compiler() == [mine, "-g"]
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    with pytest.raises(NativeBuildError, match="missing is not there"):
        find_compiler()


def test_without_a_compiler_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeBuildError, match="apt install g"):
        library_path(tmp_path / "cache", isa_named("avx2"))
    compiler(tmp_path / "clang++", "")
    assert find_compiler() == ["clang++"]


def test_a_library_is_compiled_once_per_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path / "cc", WRITES))
    cache, avx2 = tmp_path / "cache", isa_named("avx2")
    path = library_path(cache, avx2)
    assert path.read_text() == "library\n"
    assert library_path(cache, avx2) == path
    assert library_path(cache, isa_named("avx512")) != path
    assert len((tmp_path / "cc.log").read_text().split()) == 2
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "a.cpp").write_text("int x;")
    monkeypatch.setattr(build, "SOURCE_DIR", sources)
    assert library_path(cache, avx2) != path


def test_a_missing_static_runtime_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (
        f'case "$*" in *-static-libstdc++*) echo "error: no -lstdc++" >&2; exit 1;; esac; {WRITES}'
    )
    monkeypatch.setenv("CXX", compiler(tmp_path / "cc", script))
    assert library_path(tmp_path / "cache", isa_named("avx2")).exists()


def test_a_failed_compilation_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = f'{WRITES}; echo "a.cpp:1: error: no such header" >&2; exit 1'
    monkeypatch.setenv("CXX", compiler(tmp_path / "cc", script))
    with pytest.raises(NativeBuildError, match="error: no such header"):
        library_path(tmp_path / "cache", isa_named("avx2"))
    assert not list((tmp_path / "cache").glob("*.so"))
    assert not list((tmp_path / "cache").glob(".*.so"))


def test_an_unwritable_directory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path / "cc", WRITES))
    (tmp_path / "file").write_text("")
    with pytest.raises(NativeBuildError, match="cannot be written to"):
        library_path(tmp_path / "file" / "cache", isa_named("avx2"))

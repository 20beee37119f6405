"""Finding a compiler and an instruction set, and compiling the native engine once."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.native import build, compiler
from adaptivespec.native.build import (
    ISAS,
    NativeBuildError,
    detect_isa,
    find_compiler,
    isa_named,
    library_name,
    library_path,
)
from adaptivespec.native.compiler import ZIG_FLAGS


def cpuinfo(path: Path, *flags: str) -> Path:
    path.write_text(f"model name\t: x\nflags\t\t: sse {' '.join(flags)}\nbugs\t\t: none\n")
    return path


def stand_in(path: Path, script: str) -> str:
    """A compiler that notes what it is told in `<path>.log`, a line a run."""
    path.write_text(f'#!/bin/sh\necho "$@" >> {path}.log\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


WRITES = 'while [ "$1" != -o ]; do shift; done; echo library > "$2"'


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither $CXX nor ziglang nor prebuilt libraries, and two sources."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    monkeypatch.setattr(build, "PREBUILT_DIR", tmp_path / "lib")
    monkeypatch.setattr(build, "SOURCE_DIR", tmp_path / "csrc")
    (tmp_path / "csrc").mkdir()
    for name in ("a.cpp", "b.cpp", "c.h"):
        (tmp_path / "csrc" / name).write_text("int x;")


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
    mine = stand_in(tmp_path / "mine", "")
    monkeypatch.setenv("CXX", f"{mine} -g")
    assert find_compiler() == [mine, "-g"]
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    with pytest.raises(NativeBuildError, match="missing is not there"):
        find_compiler()


def test_without_a_compiler_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeBuildError, match=r"apt install g.*pip install ziglang"):
        library_path(tmp_path / "cache", isa_named("avx2"))


def test_zig_serves_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    stand_in(tmp_path / "zig", "")
    assert find_compiler() == ["zig", "c++", *ZIG_FLAGS]
    monkeypatch.setattr(compiler, "find_spec", lambda name: name == "ziglang")
    assert find_compiler() == [sys.executable, "-m", "ziglang", "c++", *ZIG_FLAGS]
    stand_in(tmp_path / "clang++", "")
    assert find_compiler() == ["clang++"]


def test_a_library_is_compiled_once_per_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", WRITES))
    cache, avx2 = tmp_path / "cache", isa_named("avx2")
    path = library_path(cache, avx2)
    assert path.read_text() == "library\n"
    assert library_path(cache, avx2) == path
    log = tmp_path / "cc.log"
    runs = log.read_text().splitlines()
    ends = sorted(run.rpartition("/")[2] for run in runs)
    assert ends == ["a.cpp", "b.cpp", "b.o -static-libstdc++ -static-libgcc"]
    assert library_path(cache, isa_named("avx512")) != path
    assert len(log.read_text().splitlines()) == 2 * len(runs)
    (tmp_path / "csrc" / "c.h").write_text("int y;")
    assert library_path(cache, avx2) != path
    assert (
        sorted(file.suffix for file in cache.iterdir() if not file.name.startswith("."))
        == [".so"] * 3
    )


def test_every_step_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", WRITES))
    steps: list[tuple[int, int]] = []
    for _ in range(2):
        library_path(
            tmp_path / "cache",
            isa_named("avx2"),
            progress=lambda done, total: steps.append((done, total)),
        )
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_library_of_the_wheel_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", WRITES))
    monkeypatch.setattr(build, "default_directory", lambda: tmp_path / "cache")
    avx2 = isa_named("avx2")
    stale = tmp_path / "lib" / "engine-0123456789abcdef-avx2.so"
    stale.parent.mkdir()
    stale.write_text("other sources")
    assert library_path(isa=avx2) == tmp_path / "cache" / library_name(avx2)
    carried = tmp_path / "lib" / library_name(avx2)
    carried.write_text("prebuilt")
    assert library_path(isa=avx2) == carried
    assert library_path(tmp_path / "cache", avx2) == tmp_path / "cache" / library_name(avx2)


def test_what_a_killed_process_left_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", WRITES))
    cache, avx2 = tmp_path / "cache", isa_named("avx2")
    left = cache / f".{Path(library_name(avx2)).stem}~abc"
    left.mkdir(parents=True)
    (left / "a.o").write_text("half")
    library_path(cache, avx2)
    assert not left.exists()


def test_a_missing_static_runtime_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (
        f'case "$*" in *-static-libstdc++*) echo "error: no -lstdc++" >&2; exit 1;; esac; {WRITES}'
    )
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", script))
    assert library_path(tmp_path / "cache", isa_named("avx2")).exists()


def test_a_failed_compilation_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = f'{WRITES}; echo "a.cpp:1: error: no such header" >&2; exit 1'
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", script))
    with pytest.raises(NativeBuildError, match="error: no such header"):
        library_path(tmp_path / "cache", isa_named("avx2"))
    assert [path.name for path in (tmp_path / "cache").iterdir()] in ([], [".avx2.lock"])


def test_an_unwritable_directory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cc", WRITES))
    (tmp_path / "file").write_text("")
    with pytest.raises(NativeBuildError, match="cannot be written to"):
        library_path(tmp_path / "file" / "cache", isa_named("avx2"))

"""Finding a C++ compiler and running it: one object per source, side by side, then the library."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from adaptivespec.core.errors import AdaptiveSpecError

__all__ = ["FLAGS", "NativeBuildError", "Progress", "compile_library", "find_compiler", "find_zig"]

#: Called with how many of how many steps are done.
Progress = Callable[[int, int], None]

#: `-ffp-contract=off` keeps results equal on every instruction set and compiler (see simd.h).
#: Without `-O3` the arrays of registers in the kernels stay in memory, several times slower.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-pthread")
#: Our own C++ runtime, as a host may have loaded an older one. Not every system has it to link.
STATIC_RUNTIME = ("-static-libstdc++", "-static-libgcc")
#: Zig would otherwise use all that this processor has, ask for this system's glibc, and keep the
#: symbols of its C++ runtime, ten times the engine's own size.
ZIG_FLAGS = ("-target", "x86_64-linux-gnu.2.17", "-s")

_TIMEOUT_SECONDS = 900


class NativeBuildError(AdaptiveSpecError):
    """The native engine cannot run here, or not be compiled; the torch backend can serve."""


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX if set, as with every build tool; else the usual names,
    else zig.

    Raises:
        NativeBuildError: there is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise NativeBuildError(
                f"the compiler {chosen[0]} is not there",
                field="CXX",
                remedy="Name a C++17 compiler in CXX, or unset it",
            )
        return chosen
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name) is not None:
            return [name]
    zig = find_zig()
    if zig is None:
        raise NativeBuildError(
            "there is no C++ compiler",
            field="backend",
            remedy="Install one (Debian, Ubuntu: apt install g++; anywhere: pip install ziglang), "
            "or use the torch backend",
        )
    return zig


def find_zig() -> list[str] | None:
    """The command of zig as a C++ compiler: the package `ziglang`, or zig itself; None: neither."""
    if sys.executable and find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++", *ZIG_FLAGS]
    return ["zig", "c++", *ZIG_FLAGS] if shutil.which("zig") is not None else None


def compile_library(
    compiler: Sequence[str],
    flags: Sequence[str],
    sources: Sequence[Path],
    path: Path,
    progress: Progress | None = None,
) -> None:
    """Compile `sources` into the shared library `path`, which appears when it is whole.

    The caller sees to it that nobody else makes the same library at the same time.

    Raises:
        NativeBuildError: the compiler failed; with its first error.
        OSError: the directory of `path` cannot be written.
    """
    prefix = f".{path.stem}~"
    for leftover in path.parent.glob(f"{prefix}*"):  # of processes that were killed
        shutil.rmtree(leftover, ignore_errors=True)
    report = progress or (lambda done, total: None)
    total = len(sources) + 1
    with TemporaryDirectory(prefix=prefix, dir=path.parent) as scratch:
        report(0, total)
        objects = [str(Path(scratch, f"{source.stem}.o")) for source in sources]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            running = [
                pool.submit(_run, compiler, [*FLAGS, *flags, "-c", "-o", made, str(source)])
                for source, made in zip(sources, objects, strict=True)
            ]
            try:
                for done, future in enumerate(as_completed(running), 1):
                    future.result()
                    report(done, total)
            finally:
                for future in running:
                    future.cancel()
        library = Path(scratch, path.name)
        link = ["-shared", "-pthread", "-o", str(library), *objects]
        try:
            _run(compiler, [*link, *STATIC_RUNTIME])
        except NativeBuildError:
            _run(compiler, link)
        library.replace(path)
    report(total, total)


def _run(compiler: Sequence[str], arguments: Sequence[str]) -> None:
    """Run the compiler; NativeBuildError with the first error that it printed."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            [*compiler, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        failure = f"no result after {_TIMEOUT_SECONDS} seconds"
    else:
        if done.returncode == 0:
            return
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line or "undefined reference" in line]
        failure = (errors or lines or [f"exit code {done.returncode}"])[0][:300]
    raise NativeBuildError(
        f"{' '.join(compiler)} cannot compile the native engine: {failure}",
        field="backend",
        remedy="A compiler of 2020 or later is needed: name one in CXX, or use the torch backend",
    )

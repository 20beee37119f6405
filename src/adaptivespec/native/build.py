"""Compiles the native engine for this processor, once per user and version of its sources.

The library lies in the user's cache directory under a name that carries a hash of the sources and
flags, so versions do not meet and a finished file is never stale. It is written beside its final
place and renamed, under a lock: whatever carries the final name is whole.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError

__all__ = [
    "ISAS",
    "Isa",
    "NativeBuildError",
    "detect_isa",
    "find_compiler",
    "isa_named",
    "library_path",
]

SOURCE_DIR = Path(__file__).parent / "csrc"

#: `-ffp-contract=off` keeps results equal on every instruction set and compiler (see simd.h).
#: Without `-O3` the arrays of registers in the kernels stay in memory, several times slower.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
    "-pthread",
)
#: Our own C++ runtime, as a host may have loaded an older one. Not every system has it to link.
STATIC_RUNTIME = ("-static-libstdc++", "-static-libgcc")

_REMEDY = "Install g++ or clang++ (Debian, Ubuntu: apt install g++), or use the torch backend"
_TIMEOUT_SECONDS = 900


class NativeBuildError(AdaptiveSpecError):
    """The native engine cannot run here, or not be compiled; the torch backend can serve."""


@dataclass(frozen=True)
class Isa:
    """An instruction set: what /proc/cpuinfo must list, and the compiler flags that use no more."""

    name: str
    cpu_flags: tuple[str, ...]
    flags: tuple[str, ...]


#: Best first.
ISAS = (
    Isa(
        "avx512",
        ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx2", "fma", "f16c"),
        (
            *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
            *("-mfma", "-mf16c", "-DAS_AVX512"),
        ),
    ),
    Isa("avx2", ("avx2", "fma", "f16c"), ("-mavx2", "-mfma", "-mf16c")),
)


def isa_named(name: str) -> Isa:
    """The entry of ISAS called `name`."""
    for isa in ISAS:
        if isa.name == name:
            return isa
    names = ", ".join(isa.name for isa in ISAS)
    raise ConfigError(f"no instruction set {name!r}; there are: {names}", field="isa")


def detect_isa(cpuinfo: Path = Path("/proc/cpuinfo")) -> Isa:
    """The best instruction set all of whose parts this processor has.

    Raises:
        NativeBuildError: none, or this is not Linux.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    for isa in ISAS:
        if set(isa.cpu_flags) <= set(flags):
            return isa
    raise NativeBuildError(
        "the native engine needs Linux on an x86-64 processor with AVX2, FMA and F16C",
        field="backend",
        remedy="Use the torch backend",
    )


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX if set, as with every build tool; else the usual names.

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
    raise NativeBuildError("there is no C++ compiler", field="backend", remedy=_REMEDY)


def default_directory() -> Path:
    """Where compiled libraries lie in the user's cache. Not created."""
    from platformdirs import user_cache_path

    return user_cache_path("adaptivespec") / "native"


def library_path(directory: Path | None = None, isa: Isa | None = None) -> Path:
    """The compiled library for `isa` (None: the best of this processor), made if it is not there.

    Compiling takes some ten seconds; another process that asks meanwhile waits for it.

    Raises:
        NativeBuildError: no compiler, it failed, or the directory cannot be written.
    """
    isa = isa or detect_isa()
    directory = directory or default_directory()
    path = directory / f"engine-{_digest(isa)}-{isa.name}.so"
    if path.exists():
        return path
    compiler = find_compiler()
    from filelock import FileLock

    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / f".{isa.name}.lock"):
            if not path.exists():
                _compile(compiler, isa, path)
    except OSError as error:
        raise NativeBuildError(
            f"the native engine cannot be written to {directory} ({error.strerror or error})",
            field="backend",
            remedy="Make that directory writable, or use the torch backend",
        ) from error
    return path


def _sources() -> list[Path]:
    return sorted(SOURCE_DIR.glob("*.cpp"))


def _digest(isa: Isa) -> str:
    """Sixteen hexadecimal digits of everything that shapes the library but the compiler."""
    digest = hashlib.sha256(repr((FLAGS, isa.flags)).encode())
    for path in [*_sources(), *sorted(SOURCE_DIR.glob("*.h"))]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _compile(compiler: list[str], isa: Isa, path: Path) -> None:
    temporary = path.with_name(f".{path.stem}~{uuid.uuid4().hex}.so")
    for leftover in path.parent.glob(f".*-{isa.name}~*.so"):  # of dead processes: we hold the lock
        leftover.unlink(missing_ok=True)
    command = [*compiler, *FLAGS, *isa.flags, "-o", str(temporary), *map(str, _sources())]
    try:
        failure = _run([*command, *STATIC_RUNTIME])
        if failure is not None and _run(command) is not None:
            raise NativeBuildError(
                f"{' '.join(compiler)} cannot compile the native engine: {failure}",
                field="backend",
                remedy="A compiler of 2020 or later is needed: name one in CXX, or use the torch "
                "backend",
            )
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _run(command: list[str]) -> str | None:
    """None if `command` succeeded, else the first error it printed."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no result after {_TIMEOUT_SECONDS} seconds"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line or "undefined reference" in line]
    return (errors or lines or [f"exit code {done.returncode}"])[0][:300]


def main() -> None:
    """`python -m adaptivespec.native.build`: compile for this processor and say where."""
    try:
        sys.stdout.write(f"{library_path()}\n")
    except AdaptiveSpecError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

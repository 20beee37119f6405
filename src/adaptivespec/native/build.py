"""The library of the native engine for this processor: from the wheel, from the cache, or compiled.

A library's name carries a hash of the sources and flags, so versions do not meet and a finished
file is never stale. Wheels carry libraries under the same names. What is compiled here lies in the
user's cache directory; it is made in a scratch directory beside its final place and renamed, under
a lock: whatever carries the final name is whole.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError
from adaptivespec.native.compiler import (
    FLAGS,
    NativeBuildError,
    Progress,
    compile_library,
    find_compiler,
)

__all__ = [
    "ISAS",
    "Isa",
    "NativeBuildError",
    "detect_isa",
    "find_compiler",
    "isa_named",
    "library_name",
    "library_path",
    "sources",
]

SOURCE_DIR = Path(__file__).parent / "csrc"
#: What a wheel brings along, and `make native` makes.
PREBUILT_DIR = Path(__file__).parent / "lib"


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


def default_directory() -> Path:
    """Where compiled libraries lie in the user's cache. Not created."""
    from platformdirs import user_cache_path

    return user_cache_path("adaptivespec") / "native"


def library_name(isa: Isa) -> str:
    """The file name of the library that these sources make for `isa`."""
    return f"engine-{_digest(isa)}-{isa.name}.so"


def library_path(
    directory: Path | None = None, isa: Isa | None = None, progress: Progress | None = None
) -> Path:
    """The library for `isa` (None: the best of this processor), compiled if it is not there.

    It is looked for in the package, then in `directory`, where it is made. Compiling takes some
    ten seconds; another process that asks meanwhile waits for it.

    Args:
        directory: None for the user's cache; one that is given is looked into alone.
        progress: called while compiling.

    Raises:
        NativeBuildError: no compiler, it failed, or the directory cannot be written.
    """
    isa = isa or detect_isa()
    name = library_name(isa)
    if directory is None and (PREBUILT_DIR / name).exists():
        return PREBUILT_DIR / name
    directory = directory or default_directory()
    path = directory / name
    if path.exists():
        return path
    compiler = find_compiler()
    from filelock import FileLock

    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FileLock(directory / f".{isa.name}.lock"):
            if not path.exists():
                compile_library(compiler, isa.flags, sources(), path, progress)
    except OSError as error:
        raise NativeBuildError(
            f"the native engine cannot be written to {directory} ({error.strerror or error})",
            field="backend",
            remedy="Make that directory writable, or use the torch backend",
        ) from error
    return path


def sources() -> list[Path]:
    """The files that are compiled, in a fixed order."""
    return sorted(SOURCE_DIR.glob("*.cpp"))


def _digest(isa: Isa) -> str:
    """Sixteen hexadecimal digits of everything that shapes the library but the compiler."""
    digest = hashlib.sha256(repr((FLAGS, isa.flags)).encode())
    for path in [*sources(), *sorted(SOURCE_DIR.glob("*.h"))]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def main() -> None:
    """`python -m adaptivespec.native.build`: the library for this processor, and where it lies."""
    try:
        sys.stdout.write(f"{library_path()}\n")
    except AdaptiveSpecError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

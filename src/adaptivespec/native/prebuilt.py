"""The libraries that wheels carry: one per instruction set, for any Linux with glibc 2.17 (2012).

`make native` runs this. The compiler is zig, from the package `ziglang`: a system's own compiler
would ask for the glibc of that system. Its results are those of g++, bit for bit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from adaptivespec.core.errors import AdaptiveSpecError
from adaptivespec.native.build import ISAS, PREBUILT_DIR, library_name, sources
from adaptivespec.native.compiler import NativeBuildError, compile_library, find_zig

__all__ = ["GLIBC", "PLATFORM", "make", "missing", "newest_glibc"]

#: What the libraries may ask for at most, and what a wheel that carries them says of itself.
GLIBC = (2, 17)
PLATFORM = "manylinux_2_17_x86_64"


def make(directory: Path = PREBUILT_DIR, compiler: Sequence[str] | None = None) -> list[Path]:
    """Compile the libraries that are not there yet, and remove what else lies there.

    Raises:
        NativeBuildError: no zig, it failed, or a library would not load on glibc 2.17.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = {library_name(isa): isa for isa in ISAS}
    for path in directory.glob("*.so"):
        if path.name not in names:
            path.unlink()
    for name, isa in names.items():
        path = directory / name
        if path.exists():
            continue
        compiler = compiler or find_zig()
        if compiler is None:
            raise NativeBuildError("there is no zig", remedy="Run pip install ziglang")
        compile_library(compiler, isa.flags, sources(), path)
        needed, allowed = newest_glibc(path), GLIBC
        if needed > allowed:
            path.unlink()
            raise NativeBuildError(
                "{} needs glibc {}.{}, a wheel may need {}.{}".format(name, *needed, *allowed)
            )
    return [directory / name for name in names]


def missing(directory: Path = PREBUILT_DIR) -> list[str]:
    """Names of the libraries of these sources that do not lie in `directory`."""
    names = map(library_name, ISAS)
    return [name for name in names if not (directory / name).exists()]


def newest_glibc(library: Path) -> tuple[int, int]:
    """The newest version of glibc of which a shared library uses a symbol; (0, 0): of none."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))


def main() -> None:
    """`python -m adaptivespec.native.prebuilt`: make the libraries and list them."""
    try:
        for path in make():
            major, minor = newest_glibc(path)
            size = path.stat().st_size / 1e6
            sys.stdout.write(f"{path}  {size:.2f} MB, glibc {major}.{minor}\n")
    except AdaptiveSpecError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

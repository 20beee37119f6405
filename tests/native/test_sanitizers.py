"""The engine under sanitizers: a host in C++ (driver.cpp) that uses and misuses tiny models."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from adaptivespec.native.build import SOURCE_DIR, NativeBuildError, find_compiler, isa_named

FLAGS = ("-std=c++17", "-O0", "-g", "-pthread", "-ffp-contract=off", "-fno-sanitize-recover=all")
#: No report must pass for a success.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=9",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=9",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=9",
}


def compiled(path: Path, sanitizer: str, *sources: Path) -> subprocess.CompletedProcess[str]:
    """Compile `sources` for AVX2, which every processor has that the engine serves."""
    try:
        compiler = find_compiler()
    except NativeBuildError as error:
        pytest.skip(str(error))
    command = [*compiler, *FLAGS, *isa_named("avx2").flags, f"-fsanitize={sanitizer}"]
    command += ["-I", str(SOURCE_DIR), "-o", str(path), *map(str, sources)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def ran(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | OPTIONS,
    )


def skip_unless_there_is(sanitizer: str, folder: Path) -> None:
    """Skips where this compiler or system has no such sanitizer."""
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() { return 0; }\n")
    done = compiled(program, sanitizer, source)
    if done.returncode:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer: {done.stderr.strip()[:200]}")
    if (done := ran(program)).returncode:  # TSan dislikes some layouts of memory
        pytest.skip(f"the {sanitizer} sanitizer does not run here: {done.stderr.strip()[:200]}")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_engine_is_clean(tmp_path: Path, sanitizer: str) -> None:
    skip_unless_there_is(sanitizer, tmp_path)
    program = tmp_path / "driver"
    driver = Path(__file__).with_name("driver.cpp")
    done = compiled(program, sanitizer, driver, *sorted(SOURCE_DIR.glob("*.cpp")))
    assert done.returncode == 0, done.stderr
    done = ran(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.parametrize(
    ("sanitizer", "body"),
    [
        ("address,undefined", "int* x = new int[2]; return x[count + 1];"),
        ("address,undefined", "int x = 2147483647; return (x + count) & 1;"),
        ("address,undefined", "int* x = new int[2]; x[count] = 0; x = nullptr; return 0;"),
    ],
    ids=["bounds", "overflow", "leak"],
)
def test_a_defect_would_be_found(tmp_path: Path, sanitizer: str, body: str) -> None:
    skip_unless_there_is(sanitizer, tmp_path)
    source, program = tmp_path / "defect.cpp", tmp_path / "defect"
    source.write_text(f"int main(int count, char**) {{ {body} }}\n")
    assert compiled(program, sanitizer, source).returncode == 0
    assert ran(program).returncode == 9

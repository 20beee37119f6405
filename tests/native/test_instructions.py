"""Passes take as many instructions as they did: a regression is seen on any machine, however busy.

Counted by callgrind on the AVX2 build, since valgrind knows no AVX-512. Another compiler makes
other code, so there are numbers for each major version of g++, and a skip for one without.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from adaptivespec.native.build import SOURCE_DIR, isa_named, sources
from adaptivespec.native.compiler import compile_library
from adaptivespec.native.library import Mode

HERE = Path(__file__).parent
#: g++'s major version -> "ROWS MODE" -> instructions of the pass of one_pass.cpp.
COMMITTED: dict[str, dict[str, int]] = json.loads((HERE / "instructions.json").read_text())
TOLERANCE = 0.03
PASSES = [(1, Mode.A8), (8, Mode.A8), (8, Mode.A16)]


@pytest.fixture(scope="module")
def version() -> str:
    """The major version of g++, where both it and valgrind are there."""
    for program in ("g++", "valgrind"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")
    command = ["g++", "-dumpversion"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    major = done.stdout.strip().partition(".")[0]
    if major not in COMMITTED:
        pytest.skip(f"instructions.json has no numbers for g++ {major}")
    return major


@pytest.fixture(scope="module")
def program(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """one_pass.cpp with the engine."""
    place = tmp_path_factory.mktemp("instructions")
    avx2, library = isa_named("avx2"), place / "libengine.so"
    compile_library(["g++"], avx2.flags, sources(), library)
    made = place / "one_pass"
    command = ["g++", "-std=c++17", "-O1", f"-I{SOURCE_DIR}", str(HERE / "one_pass.cpp")]
    subprocess.run([*command, "-o", str(made), str(library), f"-Wl,-rpath,{place}"], check=True)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "mode"), PASSES)
def test_a_pass_takes_as_many_instructions_as_it_did(
    version: str, program: Path, tmp_path: Path, rows: int, mode: Mode
) -> None:
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=counted"]
    done = subprocess.run(
        [
            *command,
            f"--callgrind-out-file={tmp_path / 'out'}",
            str(program),
            str(rows),
            f"{mode:d}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Unrecognised instruction" in done.stderr or "VEX temporary storage" in done.stderr:
        pytest.skip("this valgrind does not know the instructions of this build")
    assert done.returncode == 0, done.stderr
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    count, name = int(found[1]), f"{rows} {mode.name}"
    committed = COMMITTED[version][name]
    assert count == pytest.approx(committed, rel=TOLERANCE), (
        f"{count / committed - 1:+.1%} instructions; if that is right, instructions.json says "
        f'"{name}": {count} for g++ {version}'
    )

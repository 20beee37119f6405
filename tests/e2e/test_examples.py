"""Every example runs as it is and stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
#: Modules that an installation with the tests' extras may lack.
OPTIONAL = ("openai", "transformers")


def test_there_are_examples():
    assert len(EXAMPLES) >= 9


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 35


@pytest.mark.network
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path):
    imported = re.findall(r"^(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    for name in sorted({*OPTIONAL} & {*imported}):
        if find_spec(name) is None:
            pytest.skip(f"needs {name}")
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()

"""`--backend auto` on a machine without a native engine: torch answers, and one notice says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adaptivespec.engine.weights.store import cache_root
from adaptivespec.native.prebuilt import missing

pytestmark = pytest.mark.network

ASK = ("generate", "-p", "Name three rivers.", "-n", "8", "--offline")


def test_torch_answers_and_one_notice_says_why(
    cli, tmp_path: Path, model_cache: str | None
) -> None:
    if not missing():
        pytest.skip("the package carries the native engine (`make native`)")
    environment = os.environ | {
        "CXX": "/nowhere/c++",
        "XDG_CACHE_HOME": str(tmp_path),
        "ADAPTIVESPEC_CACHE": str(model_cache or cache_root(None)),
    }
    auto = cli(*ASK, "--backend", "auto", env=environment)
    assert auto.returncode == 0, auto.stderr
    assert auto.stdout == cli(*ASK, "-q", "--backend", "torch").stdout
    notices = [line for line in auto.stderr.splitlines() if "torch backend serves" in line]
    assert len(notices) == 1
    assert "/nowhere/c++ is not there. Name a C++17 compiler in CXX" in notices[0]

    assert cli(*ASK, "--backend", "auto", "-q", env=environment).stderr == ""
    strict = cli(*ASK, "--backend", "native", env=environment)
    assert strict.returncode == 2
    assert "CXX" in strict.stderr

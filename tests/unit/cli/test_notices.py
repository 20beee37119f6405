"""What a command says beside its answer: that torch serves, and how far a compilation is."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from adaptivespec.cli import options
from adaptivespec.core.errors import FallbackWarning
from adaptivespec.engine.weights.progress import ProgressEvent


@pytest.fixture
def falling_back(engine, monkeypatch) -> None:
    """Loading the engine warns, twice."""

    def create(**arguments: Any):
        for _ in range(2):
            warnings.warn("the torch backend serves", FallbackWarning, stacklevel=2)
        arguments["progress"] and arguments["progress"](ProgressEvent("compiling the engine", 1, 5))
        return engine

    monkeypatch.setattr(options, "create_engine", create)


@pytest.mark.usefixtures("falling_back")
def test_a_fallback_is_one_notice_on_stderr(run):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run("generate", "-p", "hi", "--backend", "auto")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert lines.count("the torch backend serves") == 1
    assert "compiling the engine ..." in lines
    assert "FallbackWarning" not in result.stderr
    assert "torch" not in result.stdout


@pytest.mark.usefixtures("falling_back")
def test_quiet_leaves_it_out(run):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run("generate", "-p", "hi", "-q")
    assert "torch backend" not in result.stderr
    assert "compiling" not in result.stderr


def test_the_backend_reaches_the_engine(run, engine):
    run("generate", "-p", "hi", "--backend", "auto", "-q")
    assert engine.loaded_with["backend"] == "auto"

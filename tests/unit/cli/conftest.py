"""A command line with a fake engine in place of the real one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from adaptivespec.cli import options
from adaptivespec.cli.main import app
from fakes.engine import FakeEngine

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith("ADAPTIVESPEC_") or name in ("HF_TOKEN", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setattr(options, "create_engine", fake)
    return fake


@pytest.fixture
def run(engine: FakeEngine) -> Run:
    """Runs a command line with the fake engine: run("generate", "-p", "hello")."""

    def run(*arguments: str, **extra: object) -> Result:
        return CliRunner().invoke(app, list(arguments), **extra)

    return run

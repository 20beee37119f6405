"""The bar that shows how much of a long prompt is read."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from adaptivespec.cli import display
from adaptivespec.engine.weights.progress import READING, ProgressEvent


def drawn(monkeypatch: pytest.MonkeyPatch, total: int, terminal: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    monkeypatch.setattr(display, "_stderr", lambda: console)
    with display.reading() as progress:
        for done in (64, total):
            if progress is not None:
                progress(ProgressEvent(READING, done, total))
    return out.getvalue()


def test_a_long_prompt_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, 4000)
    assert READING in text
    assert "4000/4000" in text


def test_a_short_prompt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 200) == ""


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 4000, terminal=False) == ""


def test_quiet_sees_nothing() -> None:
    with display.reading(quiet=True) as progress:
        assert progress is None

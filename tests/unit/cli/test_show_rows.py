"""Tables of results: what a terminal has no room for is left out by name, and never folded."""

import pytest
from rich.console import Console

from adaptivespec.cli import tables

ROWS = [
    {"arm": "plain", "text": "lossless", "speed-up": "-", "accuracy": "37.5 %"},
    {"arm": "margin:0.2/static:4,2,8", "text": "lossy", "speed-up": "1.5x", "accuracy": "12.5 %"},
]


@pytest.fixture
def shown(monkeypatch, capsys):
    def at(width: int) -> str:
        monkeypatch.setattr(tables, "_console", lambda: Console(width=width))
        tables.show_rows(ROWS)
        return capsys.readouterr().out

    return at


@pytest.mark.parametrize("width", range(36, 80))
def test_lines_are_whole_at_every_width(shown, width):
    text = shown(width)
    lines = text.splitlines()
    assert lines[1].startswith("plain")
    assert lines[2].startswith("margin:0.2/static:4,2,8")
    assert max(map(len, lines)) <= width
    missing = [name for name in ROWS[0] if name not in lines[0]]
    assert ("no room for" in text) is bool(missing)
    for name in missing:
        assert name in text.partition("no room for")[2]


def test_all_columns_are_there_where_there_is_room(shown):
    assert "no room" not in shown(120)
    assert "accuracy" in shown(120)


def test_no_rows_draw_nothing_but_an_empty_table(monkeypatch, capsys):
    monkeypatch.setattr(tables, "_console", lambda: Console(width=80))
    tables.show_rows([])
    assert capsys.readouterr().out.strip() == ""

"""Drawing: harmless text, coloured kinds, tables without NaN."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from adaptivespec.cli import display
from fakes.engine import FakeToken


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_escape_sequences_do_not_reach_a_terminal(monkeypatch):
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr("sys.stdout", stream)
        display.write("a\x1b[31mb\r\x07\n\tc\x9b")
    assert terminal.getvalue() == "a[31mb\n\tc"
    assert pipe.getvalue() == "a\x1b[31mb\r\x07\n\tc\x9b"


def test_text_outside_the_locale_is_replaced(monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    display.write("caf\xe9")
    assert buffer.getvalue() == b"caf?"


@pytest.mark.parametrize("message", ["[red]not markup[/red]", "x" * 500, "\x1b[2J"])
def test_errors_are_one_plain_line(capsys, message):
    display.error(message)
    shown = capsys.readouterr().err
    assert shown == f"error: {display.clean(message)}\n"


@pytest.mark.parametrize(
    ("chunks", "tokens", "expected"),
    [
        (["a b"], ["a", " b"], [("a", "exact"), (" b", "promoted")]),
        (["", "\N{SNOWMAN}!"], ["\ufffd", "\N{SNOWMAN}!"], [("\N{SNOWMAN}!", "promoted")]),
        (["", "\N{SNOWMAN}"], ["\ufffd", "\ufffd"], [("\N{SNOWMAN}", "promoted")]),
        (["ab", "c"], ["ab", "c"], [("ab", "exact"), ("c", "promoted")]),
        (["a", "bc"], ["abc", ""], [("a", "exact"), ("bc", "exact")]),
    ],
)
def test_painter_finds_the_kind_of_each_part(chunks, tokens, expected):
    painter = display.KindPainter()
    kinds = ["exact", "promoted"]
    parts = []
    pending = [FakeToken(0, text, kind) for text, kind in zip(tokens, kinds, strict=True)]
    for index, chunk in enumerate(chunks):
        given = [pending[index]] if len(chunks) > 1 else pending
        painter._waiting += [(token.text, token.kind) for token in given]
        parts += list(painter._split(chunk))
    assert parts == expected


def test_painter_writes_the_text_whole(monkeypatch):
    terminal = Terminal()
    painter = display.KindPainter()
    painter._console = Console(file=terminal, force_terminal=False, soft_wrap=True)
    texts = ["Hello", " [b]world", "\n\n", "  two", " \n"]
    for text in texts:
        painter.write(text, [FakeToken(0, text, "exact")])
    assert terminal.getvalue() == "".join(texts)

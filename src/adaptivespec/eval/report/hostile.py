"""Text of models made fit to be shown: whatever a page or a file could take for its own."""

from __future__ import annotations

import unicodedata

__all__ = ["cell", "visible"]

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def visible(text: str) -> str:
    """Control characters as their pictures; surrogates and marks that turn lines as U+FFFD.

    Line feeds and tabs stay. The result can be encoded; escaping for HTML is the template's.
    """
    return "".join(_visible(character) for character in text)


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    text = visible(text).replace("\n", " ").replace("\t", " ")
    for character in ("\\", "|", "<", ">", "`", "*"):
        text = text.replace(character, f"\\{character}")
    return text.replace("](", "]\\(")


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if character in _BIDI or unicodedata.category(character) in ("Cc", "Cs", "Cn"):
        return "\ufffd"
    return character

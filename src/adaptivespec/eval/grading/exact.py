"""Comparisons after normalising: case, blanks, numbers, JSON, lists of words."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["canonical", "first_object", "normal_text", "words_in_order"]

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_MARKER = re.compile(r"^\s*(?:[-*•+]|\(?\d{1,2}[.):])\s+")


def normal_text(text: str) -> str:
    """Lower case, single blanks, without quotes, emphasis and punctuation at the ends."""
    text = text.replace("\u2019", "'").strip().strip("*_`\"' \t.,;:!")
    return " ".join(text.casefold().split())


def canonical(value: Any) -> Any:
    """A JSON value in which spellings that mean the same are the same.

    Texts are normalised and lose a leading article, texts that are numbers become numbers, whole
    floats become integers.
    """
    if isinstance(value, str):
        text = re.sub(r"^(?:the|an?) ", "", normal_text(value))
        bare = text.removeprefix("$").replace(",", "")
        if not re.fullmatch(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?", bare):
            return text
        value = float(bare)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    if isinstance(value, dict):
        return {normal_text(str(key)): canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return value


def first_object(text: str) -> dict[str, Any] | None:
    """The first JSON object in an answer, within a code fence or not, or None."""
    for part in (*_FENCE.findall(text), text):
        decoder = json.JSONDecoder(parse_constant=lambda name: name)
        for match in re.finditer(r"\{", part):
            try:
                value, _ = decoder.raw_decode(part, match.start())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return value
    return None


def words_in_order(text: str) -> list[str]:
    """The words of a list, however it is laid out: lines, bullets, numbers, commas, blanks.

    A line that ends in a colon introduces the list and is left out, as are blank lines.
    """
    fenced = _FENCE.findall(text)
    body = fenced[0] if fenced else text
    lines = [line for line in body.strip().splitlines() if line.strip()]
    if len(lines) > 1:
        lines = [line for line in lines if not line.rstrip(" *").endswith(":")]
    elif lines and ":" in lines[0]:
        lines = [lines[0].rpartition(":")[2]]
    parts: list[str] = []
    for line in lines:
        line = _MARKER.sub("", line).strip().strip("[](){}")
        parts += re.split(r"\s*[,;|/]\s*(?:and\s+)?", line)
    words = [word for part in parts if (word := normal_text(_MARKER.sub("", part)))]
    return words[0].split() if len(words) == 1 else words

"""Task: name the capital of a country."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

from adaptivespec.eval.grading.exact import normal_text
from adaptivespec.eval.tasks.base import Grade, Item, Task
from adaptivespec.eval.tasks.countries import CAPITALS

_PROMPT = "What is the capital city of {}? Answer in one short sentence."


class Capitals(Task):
    """Countries whose capital is beyond dispute."""

    name: ClassVar[str] = "capitals"
    title: ClassVar[str] = "Capitals"
    summary: ClassVar[str] = "name a capital; graded by the first capital that the answer names"
    source: ClassVar[str] = "made for this package, Apache-2.0"
    max_tokens: ClassVar[int] = 32

    def load(self, data: Path | None) -> Sequence[Item]:
        """One item for each country; ``data`` is not needed."""
        return [
            Item(self.name, index, (_PROMPT.format(country),), names[0])
            for index, (country, names) in enumerate(CAPITALS)
        ]

    def grade(self, item: Item, text: str) -> Grade:
        """Right when the first capital of any country in the answer is the one asked for."""
        plain = _plain(text)
        if not plain.strip():
            return Grade(False, "", "unparsed")
        found = _pattern().search(plain)
        if found is None:
            return Grade(False, _claim(plain))
        capital = _names()[found.group().casefold()]
        return Grade(capital == item.reference, normal_text(capital))


def _claim(text: str) -> str:
    """What an answer says without naming a capital that we know: "batavia"."""
    said = re.search(r"\bis\s+(?:called\s+|named\s+)?([^.,;\n]+)", text)
    return normal_text(said.group(1) if said else text.strip().splitlines()[0])[:80]


def _plain(text: str) -> str:
    """Without accents and with plain apostrophes."""
    decomposed = unicodedata.normalize("NFKD", text.replace("\u2019", "'"))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


@cache
def _names() -> dict[str, str]:
    """Every spelling in lower case -> the capital."""
    return {name.casefold(): names[0] for _, names in CAPITALS for name in names}


@cache
def _pattern() -> re.Pattern[str]:
    """Matches a capital; of several at one place the longest."""
    names = sorted(_names(), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})(?!\w)", re.IGNORECASE)

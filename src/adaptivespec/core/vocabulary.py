"""Which tokens are structure, digits or thinking marks: one definition for every tokenizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

_MARKER = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
"""Added tokens written like tags (<think>, [INST]) are structure even where not flagged so."""


class AddedToken(Protocol):
    """A token beside the trained vocabulary, as Hugging Face's tokenizers describe it."""

    @property
    def content(self) -> str:
        """What it is written as."""

    @property
    def special(self) -> bool:
        """Whether it is left out of decoded text."""


def structural_ids(
    added: Mapping[int, AddedToken], named: Iterable[int | None] = ()
) -> frozenset[int]:
    """Ids that are structure rather than text.

    Args:
        added: id -> added token; those flagged special count, and those written like tags.
        named: ids with a role (bos, eos, pad ...), which all count; None where a role is vacant.
    """
    marks = (
        index for index, token in added.items() if token.special or _MARKER.fullmatch(token.content)
    )
    return frozenset([*marks, *(index for index in named if index is not None)])


def is_digits(text: str) -> bool:
    """True for text of digits only, apart from spaces around them."""
    return text.strip().isdecimal()


def think_pair(token_id: Callable[[str], int | None]) -> tuple[int, int] | None:
    """The ids of <think> and </think>; None when ``token_id`` does not know both."""
    opening, closing = token_id("<think>"), token_id("</think>")
    return None if opening is None or closing is None else (opening, closing)

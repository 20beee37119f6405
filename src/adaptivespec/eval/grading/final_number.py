"""The number that an answer to a word problem ends in."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["final_number", "normal_number"]

_NUMBER = re.compile(r"-?\s?\$?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|-?\$?\.\d+")
# "#### 18" and "#### Answer: 18", but no heading such as "#### Step 2".
_MARKED = re.compile(r"####[\s*]*(?:(?:final\s+)?answer(?:\s+is)?)?[\s*:=]*([-$.\d].*)", re.I)
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_SAID = re.compile(r"answer(?:\s+is|\s*:)[:\s]*(.+)", re.IGNORECASE)


def final_number(text: str) -> str | None:
    """The final number of an answer in its normal form, or None when there is no number.

    What stands after the last "####" counts first, then the last \\boxed{}, then what follows the
    last "answer is", then the last number of all. "$1,234.50" is "1234.5".
    """
    text = text.replace("\u2212", "-").replace("\\$", "$").replace("{,}", ",").replace("\\,", "")
    for pattern in (_MARKED, _BOXED, _SAID):
        found = pattern.findall(text)
        if found and (number := _first_result(found[-1])) is not None:
            return number
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def normal_number(text: str) -> str:
    """A number without grouping, currency, sign of zero or trailing zeros.

    Raises:
        ValueError: it is no number.
    """
    bare = re.sub(r"[\s$,]", "", text)
    if not re.fullmatch(r"-?(?:\d+(?:\.\d*)?|\.\d+)", bare):
        raise ValueError(f"{text!r} is no number")
    value = Decimal(bare)
    if value == 0:
        return "0"
    plain = f"{value:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _numbers(text: str) -> list[str]:
    """All numbers; a minus between two operands is no sign."""
    found = []
    for match in _NUMBER.finditer(text):
        number = match.group()
        before = text[: match.start()]
        operand = before.rstrip()[-1:]
        tight = not number[1:2].isspace() and before[-1:].isspace()  # "costs -5", not "9 - 5"
        if number.startswith("-") and (operand.isalnum() or operand in ")]}%") and not tight:
            number = number[1:] if operand else number
        found.append(normal_number(number))
    return found


def _first_result(text: str) -> str | None:
    """The first number of a phrase, or the one after its last "=" when it is an equation."""
    sentence = re.split(r"\.\s", text, maxsplit=1)[0]
    numbers = _numbers(sentence.rpartition("=")[2])
    return numbers[0] if numbers else None

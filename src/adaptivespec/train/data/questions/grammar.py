"""A small template language: every question is a template, filled in at random.

* `{slot}` is one entry of that slot, expanded in turn; `{^slot}` begins with a capital letter;
* `{slot#tag}` is the same entry wherever the tag recurs, and another one than under other tags;
* `{2-9}` is a number from 2 to 9, `{2-9*5}` five times such a number, both with tags as well;
* `[a|b|]` is one of the alternatives, which may be empty.

Braces and brackets that fit none of these stand for themselves.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

Slot = Sequence[str] | Callable[[random.Random], str]

_CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_FIELD = re.compile(r"\{(\^?)(?:([a-z][a-z0-9_.]*)|(\d+)-(\d+)(?:\*(\d+))?)(#\w+)?\}")
_ARTICLE = re.compile(r"\b([Aa])n? (?=[\"'*]?(\w+))")
# Written with a vowel but spoken with a consonant, and the reverse.
_CONSONANT = re.compile(r"(?:uni(?!n|m)|use|usu|usa|uti|eu|one\b|once|ubi|ur[aeiou])", re.I)
_VOWEL = re.compile(r"(?:[aeiou]|hour|honest|heir|honou?r|8|11\b|18\b|MVP|SQL|HTML)", re.I)
_LIMIT = 40


def expand(
    rng: random.Random,
    template: str,
    slots: Mapping[str, Slot],
    bound: dict[str, str] | None = None,
) -> str:
    """Fill `template`; `bound` holds fixed values of fields and collects those of tagged ones."""
    values = {} if bound is None else bound

    def field(match: re.Match[str]) -> str:
        capital, name, low, high, step, tag = match.groups()
        key = match.group(0).strip("{^}")
        if key in values:
            text = values[key]
        elif name is None:
            text = str(rng.randint(int(low), int(high)) * int(step or 1))
            values.update({key: text} if tag else {})
        elif name in slots:
            text = _entry(rng, slots[name], name, values, tag)
            text = expand(rng, text, slots, values)
            values.update({key: text} if tag else {})
        else:
            return match.group(0)
        return text[:1].upper() + text[1:] if capital else text

    text = template
    for _ in range(_LIMIT):
        filled = _CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), text)
        filled = _FIELD.sub(field, filled)
        if filled == text:
            break
        text = filled
    return text


def _entry(
    rng: random.Random, slot: Slot, name: str, values: Mapping[str, str], tag: str | None
) -> str:
    if callable(slot):
        return slot(rng)
    if tag is None:
        return rng.choice(slot)
    taken = {value for key, value in values.items() if key.partition("#")[0] == name}
    for _ in range(_LIMIT):
        entry = rng.choice(slot)
        if entry not in taken:
            break
    return entry


def polish(text: str) -> str:
    """Mend what filling in leaves behind: a or an, double blanks, blanks at line ends.

    >>> polish("a  apple and an pear, an hour, a unit")
    'an apple and a pear, an hour, a unit'
    """
    text = re.sub(r"(?<=\S)  +", " ", text)
    text = re.sub(r"(?<!=) +([.,?!:;])(?=\s|$)", r"\1", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.M).strip()

    def article(match: re.Match[str]) -> str:
        word = match.group(2)
        vowel = _VOWEL.match(word) and not _CONSONANT.match(word)
        return match.group(1) + ("n " if vowel else " ")

    return _ARTICLE.sub(article, text)


def entries(text: str) -> tuple[str, ...]:
    """The entries of a list that is written with semicolons, over any number of lines."""
    return tuple(" ".join(entry.split()) for entry in text.split(";") if entry.strip())


def pick(rng: random.Random, weighted: Mapping[str, int]) -> str:
    """One key, as likely as its weight says."""
    return rng.choices(list(weighted), list(weighted.values()))[0]

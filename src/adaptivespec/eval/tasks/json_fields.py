"""Task: extract named fields from a sentence as JSON."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from adaptivespec.eval.grading.exact import canonical, first_object
from adaptivespec.eval.tasks.base import Grade, Item, Task

_ITEMS, _SEED = 100, "extract named fields as JSON"

_PROMPT = "Write a JSON object with the keys {keys} for this sentence:\n{sentence}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split(";"))


_Slot = tuple[str, ...] | Callable[[random.Random], Any]

_SLOTS: dict[str, _Slot] = {
    "person": _words(
        """Laura Hill; Adam Stone; Julia Brook; Simon Frost; Clara Wood; Peter Lake; Helen March;
        Victor Lane; Sarah Field; Martin Cross; Emma Rivers; Daniel West; Alice Ford; Robert Snow"""
    ),
    "caller": _words("Laura; Adam; Julia; Simon; Clara; Peter; Helen; Victor; Sarah; Martin; Emma"),
    "town": _words("Paris; London; Rome; Chicago; Boston; Madrid; Berlin; Dublin; Toronto; Sydney"),
    "goal": _words("Vienna; Oslo; Lisbon; Dallas; Prague; Seattle; Miami; Tokyo; Milan; Houston"),
    "land": _words("France; Spain; Kenya; Japan; Brazil; Canada; Mexico; India; Poland; Egypt"),
    "trade": _words("teacher; nurse; baker; pilot; lawyer; doctor; farmer; dentist; chef"),
    "hue": _words("red; blue; green; black; white; yellow; brown; gray"),
    "thing": _words("bicycle; jacket; sofa; lamp; tent; guitar; table; camera; suitcase; mirror"),
    "title": _words(
        """The Silent River; Golden Hour; Winter Road; The Last Garden; Blue Horizon; Paper Moon;
        The Iron Gate; A Summer Storm; The Lost Key; Midnight Train"""
    ),
    "sport": _words("tennis; chess; golf; hockey; football; baseball; basketball; volleyball"),
    "team": _words("Tigers; Lions; Eagles; Sharks; Bears; Wolves; Hawks; Panthers"),
    "show": _words(
        """Jazz Night; Book Fair; Art Week; Film Festival; Food Market; Music Festival; Science Day;
        Flower Show"""
    ),
    "dish": _words("pizza; salad; burger; sandwich; soup; steak; omelet; pancake"),
    "tongue": _words("Spanish; French; German; Italian; English; Japanese; Russian; Chinese"),
    "day": _words("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "time": lambda rng: f"{rng.randint(7, 11)}:{rng.choice((15, 30, 45))}",
    "small": lambda rng: rng.randint(2, 9),
    "medium": lambda rng: rng.randint(21, 79),
    "large": lambda rng: rng.randint(102, 480),
    "year": lambda rng: rng.randint(1962, 2023),
}

_SENTENCES = (  # each value as {key:slot}
    "{name:person} is {age:medium} years old, comes from {country:land} and lives in {city:town}.",
    '"{title:title}" is a book by {author:person} that was published in {year:year}.',
    "{name:person} plays {sport:sport} for the {team:team} and is {age:medium} years old.",
    "{event:show} is held in {city:town} on {day:day} at {time:time}.",
    "{name:caller} ordered a {dish:dish} for {price:small} dollars on {day:day}.",
    "The {product:thing} is {color:hue}, weighs {weight:small} kilograms and costs {price:large} "
    "dollars.",
    "{name:person} flies from {origin:town} to {destination:goal} on {day:day}.",
    "{name:caller} speaks {language:tongue}, is {age:medium} years old and works as a {job:trade}.",
    "Room {room:large} is booked by {guest:person} for {nights:small} nights.",
    "{name:person} moved from {from:town} to {to:goal} in {year:year}.",
)


class JsonFields(Task):
    """Sentences with three or four facts, to be written as a JSON object."""

    name: ClassVar[str] = "json"
    title: ClassVar[str] = "JSON extraction"
    summary: ClassVar[str] = "facts of a sentence as JSON; graded by equality of all fields"
    source: ClassVar[str] = "made for this package, Apache-2.0"
    max_tokens: ClassVar[int] = 128

    def load(self, data: Path | None) -> Sequence[Item]:
        """A hundred sentences; ``data`` is not needed."""
        rng = random.Random(_SEED)  # noqa: S311
        return [self._item(rng, index) for index in range(_ITEMS)]

    def grade(self, item: Item, text: str) -> Grade:
        """Right when the first JSON object has the item's fields, no more and no less."""
        given = first_object(text)
        if given is None:
            return Grade(False, "", "unparsed")
        try:
            found = canonical(given)
            answer = json.dumps(found, sort_keys=True)
        except RecursionError:  # nested as deeply as no answer should be
            return Grade(False, "", "unparsed")
        return Grade(found == canonical(item.reference), answer)

    def _item(self, rng: random.Random, index: int) -> Item:
        values: dict[str, Any] = {}

        def fill(match: re.Match[str]) -> str:
            slot = _SLOTS[match.group(2)]
            values[match.group(1)] = slot(rng) if callable(slot) else rng.choice(slot)
            return str(values[match.group(1)])

        sentence = re.sub(r"\{(\w+):(\w+)\}", fill, _SENTENCES[index % len(_SENTENCES)])
        *names, last = (f'"{key}"' for key in values)
        prompt = _PROMPT.format(keys=f"{', '.join(names)} and {last}", sentence=sentence)
        return Item(self.name, index, (prompt,), values)

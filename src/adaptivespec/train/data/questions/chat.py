"""Chat: writing, roles, explanation, advice, reasoning, extraction, humanities, everyday talk."""

from __future__ import annotations

import random
import re

from adaptivespec.train.data.questions.chat_slots import ALL_SLOTS, FOLLOW_UPS
from adaptivespec.train.data.questions.chat_templates import FAMILIES
from adaptivespec.train.data.questions.grammar import expand, pick, polish
from adaptivespec.train.data.questions.passages import misspelt, passage
from adaptivespec.train.data.questions.words import CLASSES, people, things

WEIGHTS = {
    "explain": 19, "compare": 8, "advice": 13, "write": 19, "role": 7, "opinion": 7, "reason": 5,
    "passage": 11, "language": 4, "quiz": 7, "talk": 5,
}  # fmt: skip
FOLLOWED = 0.12
#: Families whose questions may begin with a sentence about the user or the occasion.
LED = ("explain", "compare", "advice", "write", "quiz", "opinion")
#: Stands before a wish that follows a sentence, which may still lack its full stop.
WISH = "§"
_WISH = re.compile(rf"([.?!:]['\"]?) *{WISH}")


def draw(rng: random.Random) -> tuple[str, ...]:
    """One chat question, about one in eight with one or two follow-ups."""
    family = pick(rng, WEIGHTS)
    bound = people(rng) | things(rng)
    if family == "reason":
        name, other = rng.sample([name for name in CLASSES if name not in ("words", "names")], 2)
        members = rng.sample(CLASSES[name], 3)
        bound |= dict(zip(("w1", "w2", "w3"), members, strict=True))
        bound["odd"] = rng.choice(CLASSES[other])
    template = rng.choice(FAMILIES[family])
    if family in LED and rng.random() < 0.2:
        template = "{lead} " + template
    if template.endswith("{len}") and rng.random() < 0.2:
        template += "{len}"
    if family in ("write", "role"):
        template = template.replace("{len}", "{wlen}")
    for wish in ("len", "wlen"):
        template = template.replace(f"{{{wish}}}" * 2, f"{{{wish}#1}}{{{wish}#2}}")
    text = _WISH.sub(r"\1", expand(rng, template, ALL_SLOTS, bound)).replace(WISH, ".")
    for mark, make in (("<passage>", passage), ("<short>", _short), ("<wrong>", misspelt)):
        if mark in text:
            text = text.replace(mark, make(rng))
    text = polish(text)
    if "\n" not in text and text[-1] not in ".?!:'":
        text += "."
    turns = [text]
    if rng.random() < FOLLOWED:
        count = rng.choice((1, 1, 1, 2))
        turns += [polish(expand(rng, t, ALL_SLOTS)) for t in rng.sample(FOLLOW_UPS, count)]
    return tuple(turns)


def _short(rng: random.Random) -> str:
    return passage(rng, 1, 2)

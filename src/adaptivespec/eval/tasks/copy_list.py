"""Task: copy a list of six words."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from adaptivespec.eval.grading.exact import words_in_order
from adaptivespec.eval.tasks.base import Grade, Item, Task

_ITEMS, _LENGTH, _SEED = 100, 6, "copy a list of six words"

_WORDS = """
anchor barrel candle dagger engine feather glacier hammock island jungle kettle lantern magnet
needle orchard pebble quarry ribbon saddle tunnel umbrella valley whistle yarn zipper acorn bucket
canyon dolphin elbow fossil goblet helmet icicle jacket kernel ladder marble napkin oyster paddle
quilt rocket sponge thimble urchin velvet walnut yogurt almond bonnet cradle domino ember fountain
gravel harness insect jigsaw kayak locket meadow nugget onion pillow quiver raisin shovel trophy
utensil vulture wagon beacon cobweb drawer easel ferry gadget hinge ivory jewel kitten lumber mitten
nozzle outlet parcel radar sandal teapot veil waffle blanket compass
"""

_FORMS = (  # how it is asked, and how the words stand
    ("Copy these six words in the same order, separated by commas:\n{}", ", "),
    ("Please give this bulleted list back without any change:\n\n- {}", "\n- "),
    ("Copy these six words in the same order:\n{}", " "),
    ("Please give this numbered list back without any change:\n\n{}", "\n"),
)


class CopyList(Task):
    """Lists of six unrelated words, in four layouts."""

    name: ClassVar[str] = "lists"
    title: ClassVar[str] = "List copying"
    summary: ClassVar[str] = "copy six words; graded by exact match of the words in order"
    source: ClassVar[str] = "made for this package, Apache-2.0"
    max_tokens: ClassVar[int] = 64

    def load(self, data: Path | None) -> Sequence[Item]:
        """A hundred lists; ``data`` is not needed."""
        rng = random.Random(_SEED)  # noqa: S311
        words_known = _WORDS.split()
        items = []
        for index in range(_ITEMS):
            words = rng.sample(words_known, _LENGTH)
            ask, between = _FORMS[index % len(_FORMS)]
            shown = [f"{i}. {word}" for i, word in enumerate(words, 1)] if "num" in ask else words
            items.append(Item(self.name, index, (ask.format(between.join(shown)),), words))
        return items

    def grade(self, item: Item, text: str) -> Grade:
        """Right when the answer's list is the item's."""
        words = words_in_order(text)
        if not words:
            return Grade(False, "", "unparsed")
        return Grade(words == item.reference, json.dumps(words))

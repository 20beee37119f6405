"""Prompts from which a training corpus is made: many kinds, composed from templates.

They need neither network nor data files and serve any target.  No benchmark item is among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from adaptivespec.core.errors import ConfigError
from adaptivespec.train.data.questions import chat, code, json_tasks, lists, maths

#: How often a draw may repeat an earlier one, per question wanted, before we give up.
ATTEMPTS = 40

_DRAW: dict[str, Callable[[random.Random], tuple[str, ...]]] = {
    "maths": maths.draw,
    "code": code.draw,
    "chat": chat.draw,
    "json": json_tasks.draw,
    "list": lists.draw,
}

KINDS: tuple[str, ...] = tuple(_DRAW)


@dataclass(frozen=True)
class Question:
    """What a user says: `turns` holds the messages, which the model answers one after another."""

    kind: str
    turns: tuple[str, ...]


def questions(kind: str, count: int, seed: int = 0) -> list[Question]:
    """`count` questions of one of `KINDS`, no two with the same first message.

    The same arguments give the same list, and a smaller `count` gives a prefix of it.

    Raises:
        ConfigError: the kind is unknown, `count` is negative or more than the templates give.
    """
    if kind not in _DRAW:
        raise ConfigError(
            f"{kind!r} is no kind of question",
            field="kinds",
            remedy=f"Choose from {', '.join(KINDS)}",
        )
    if count < 0:
        raise ConfigError(f"{count} questions cannot be made", field="count")
    rng = random.Random(f"questions:{kind}:{seed}")  # noqa: S311
    seen: set[str] = set()
    result: list[Question] = []
    misses = 0
    while len(result) < count:
        turns = _DRAW[kind](rng)
        if turns[0] in seen:
            misses += 1
            if misses > ATTEMPTS * count:
                raise ConfigError(
                    f"only {len(result)} distinct {kind} questions were found, not {count}",
                    field="count",
                    remedy="Ask for fewer",
                )
            continue
        seen.add(turns[0])
        result.append(Question(kind, turns))
    return result

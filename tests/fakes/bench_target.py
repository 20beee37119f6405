"""Targets for runs that need no model: answers and times follow from arm and item by arithmetic."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Any

from adaptivespec.eval.arms import Arm, plain
from adaptivespec.eval.errors import TargetError
from adaptivespec.eval.targets.base import Answer, Ask, Target
from adaptivespec.eval.tasks.base import Item

MODEL = {"name": "scripted", "digest": "0" * 16}
PLACE = "fakes.bench_target:ScriptedTarget"


def number(*parts: object) -> int:
    """The same for the same parts, in any process."""
    return zlib.crc32(repr(parts).encode())


class ScriptedTarget(Target):
    """Tells the capital right for most items; a lossy arm errs on some of those.

    Args:
        seconds: of an answer, by policy; 1.0 where it is not listed.
        broken: raise TargetError in place of being made.
        head: name and digest, for its identity.
        dies_at: end the process when this item is asked.
        threads, and any other option: taken and not used.
    """

    about = "scripted"

    def __init__(
        self,
        seconds: dict[str, float] | None = None,
        broken: str = "",
        dies_at: str = "",
        head: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        if broken:
            raise TargetError(broken, field="scripted")
        self._seconds, self._dies_at = seconds or {}, dies_at
        self.identity = {"model": MODEL, "head": head}

    @property
    def arms(self) -> Sequence[Arm]:
        return [plain()]

    def answer(self, arm: Arm, item: Item, ask: Ask) -> Answer:
        if item.key == self._dies_at:
            os._exit(3)
        lossy = arm.rule.startswith(("margin", "coin"))  # without the import of torch
        knows = number(item.key) % 10 < 8 and not (lossy and number(item.key, arm.rule) % 10 < 2)
        text = f"The capital is {item.reference}." if knows else "I do not know."
        tokens = text.split()
        promoted = min(len(tokens), 2) if lossy else 0
        kinds = "p" * promoted + "e" * (len(tokens) - promoted)
        return Answer(
            text=text,
            finish_reason="stop",
            prompt_tokens=len(item.turns[0].split()),
            completion_tokens=len(tokens),
            seconds=self._seconds.get(arm.policy, 1.0) * len(tokens),
            token_ids=[number(token) % 1000 for token in tokens],
            pieces=tokens if ask.detail else None,
            kinds=kinds,
            margins=[0.5] * promoted,
            lossless=not lossy,
            rule=arm.rule,
            policy=arm.policy,
            stats={
                "num_spec_steps": len(tokens),
                "num_committed_tokens": len(tokens),
                "num_promoted_tokens": promoted,
            },
        )

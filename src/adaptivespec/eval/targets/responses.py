"""Responses of OpenAI's interface, whole or in chunks, as answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from adaptivespec.eval.targets import reported
from adaptivespec.eval.targets.base import Answer

__all__ = ["BadAnswer", "Turn", "together"]


class BadAnswer(Exception):
    """A response that is not what the interface promises."""


@dataclass
class Turn:
    """One response as it comes in. `begin` is when the item was first asked."""

    begin: float
    text: str = ""
    finish_reason: str | None = None
    usage: Any = None
    chunks: list[list[float]] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def add(self, part: Any) -> None:
        """Take in a chunk, or a whole response."""
        now = perf_counter() - self.begin
        self.extra |= {key: value for key, value in _extras(part).items() if value is not None}
        self.usage = getattr(part, "usage", None) or self.usage
        for choice in (getattr(part, "choices", None) or [])[:1]:
            said = getattr(choice, "delta", None) or getattr(choice, "message", None)
            content = getattr(said, "content", None) or ""
            # Thinking that the server keeps apart is waited for like any text.
            shown = content or getattr(said, "reasoning_content", None) or ""
            if shown:
                self.chunks.append([now, len(shown)])
            self.text += content
            self.finish_reason = choice.finish_reason or self.finish_reason
            if (meta := _extras(choice).get("meta_info")) is not None:
                self.extra["meta_info"] = meta
            for token in getattr(getattr(choice, "logprobs", None), "content", None) or []:
                self.pieces.append(token.token)
                self.logprobs.append(token.logprob)

    def check(self) -> None:
        """Raise what is missing in a response that has ended."""
        if self.finish_reason is None:
            raise BadAnswer("the stream was cut: it ended without a finish_reason")
        if self.finish_reason not in ("stop", "length"):
            raise BadAnswer(f"it ended by finish_reason {self.finish_reason!r}")
        if self.usage is None:
            raise BadAnswer("no usage: the server does not honour stream_options.include_usage")

    def reported(self) -> reported.Reported:
        return reported.read(self.extra, self.usage.completion_tokens)


def together(turns: Sequence[Turn], seconds: float) -> Answer:
    """The answer to an item of which these are the turns, in `seconds` of wall time."""
    chunks = [chunk for turn in turns for chunk in turn.chunks]
    said = reported.merge([turn.reported() for turn in turns])
    words = {name: said.pop(name, None) for name in reported.WORDS}
    logprobs = [p for turn in turns for p in turn.logprobs if math.isfinite(p)]
    return Answer(
        text=turns[-1].text,
        finish_reason="length" if any(t.finish_reason == "length" for t in turns) else "stop",
        prompt_tokens=sum(turn.usage.prompt_tokens for turn in turns),
        completion_tokens=sum(turn.usage.completion_tokens for turn in turns),
        seconds=seconds,
        first_token_s=chunks[0][0] if chunks else None,
        pieces=[piece for turn in turns for piece in turn.pieces] or None,
        nll=-sum(logprobs) if logprobs else None,
        nll_tokens=len(logprobs),
        stats=said or None,
        chunks=chunks,
        **words,
    )


def _extras(part: Any) -> Mapping[str, Any]:
    """Fields that OpenAI's schema does not have."""
    return getattr(part, "model_extra", None) or {}

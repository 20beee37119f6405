"""What a generation gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adaptivespec.core.stats import Statistics
from adaptivespec.core.trace import StepTrace
from adaptivespec.core.verdict import Kind


@dataclass(frozen=True)
class TokenInfo:
    """One committed token.

    Attributes:
        token_id: id.
        text: what it reads as on its own; part of a character shows as U+FFFD.
        kind: exact (drafted, the target's choice), promoted (drafted, accepted in place of the
            target's choice) or bonus (the target's own).
        margin: p(token) / max p under the target, in (0, 1]; 1 for its first choice.
        logprob: log p(token) under the target in nats, or None when not asked for.
        top_logprobs: (id, log p) of the likeliest tokens at its place, best first; empty when not
            asked for.
    """

    token_id: int
    text: str
    kind: Kind
    margin: float
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass
class Timings:
    """Wall time in seconds: `host` is choosing, committing and all else between the passes."""

    prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    host_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.prefill_s + self.draft_s + self.verify_s + self.host_s

    def as_dict(self) -> dict[str, float]:
        names = ("prefill_s", "draft_s", "verify_s", "host_s", "total_s")
        return {name: getattr(self, name) for name in names}


@dataclass
class GenerationResult:
    """An answer and how it came about.

    Attributes:
        text: the answer, cut before a stop string.
        token_ids: committed ids without the id that ended the answer.
        tokens: the same tokens with their kinds.
        finish_reason: "stop", "length", or "cancelled" when the caller left early.
        matched_stop: the stop id or string, when there was one.
        usage: prompt_tokens and completion_tokens (an ending EOS counts).
        lossless: whether the rule in force guarantees the target's own output.
        rule, policy: as given.
        statistics: accept_length and the rest, over verify steps.
        trace: one record per step, when asked for.
    """

    rule: str
    policy: str
    lossless: bool
    prompt_tokens: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    tokens: list[TokenInfo] = field(default_factory=list)
    completion_tokens: int = 0
    finish_reason: str = "cancelled"
    matched_stop: int | str | None = None
    stats: Statistics = field(default_factory=Statistics)
    times: Timings = field(default_factory=Timings)
    trace: list[StepTrace] | None = None

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }

    @property
    def statistics(self) -> dict[str, Any]:
        return self.stats.as_dict()

    @property
    def timings(self) -> dict[str, float]:
        return self.times.as_dict()

    def to_json(self) -> dict[str, Any]:
        """The object that `adaptivespec generate --json` prints."""
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "lossless": self.lossless,
            "rule": self.rule,
            "policy": self.policy,
            "speculative": self.statistics,
            "timings": self.timings,
        }


@dataclass
class Chunk:
    """One piece of a stream: the text that one step made safe to show, and its tokens.

    The last chunk carries the whole `result`.
    """

    text: str
    tokens: list[TokenInfo]
    step: StepTrace | None = None
    result: GenerationResult | None = None

"""The contract of a target: something that answers items in one or several ways.

A target lives in a process of its own (``worker.py``). Its arms are asked one at a time, and what
one request leaves behind must not help the next: caches of earlier prompts are dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaptivespec.eval.arms import Arm
from adaptivespec.eval.tasks.base import Item


@dataclass(frozen=True)
class Ask:
    """How an item is to be answered.

    Attributes:
        max_tokens: of each turn.
        stop: texts that end an answer.
        temperature, seed: of sampling; greedy at 0.
        detail: give log probabilities and pieces, at a price in time; timed requests do not.
        ignore_eos: go on to max_tokens.
        split_prompt: read the prompt in two parts, so that its passes have other sizes; targets
            that cannot do so just answer again.
    """

    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0
    detail: bool = False
    ignore_eos: bool = False
    split_prompt: bool = False


@dataclass
class Answer:
    """What came back, summed over turns. None where the target does not say.

    Attributes:
        text: of the last turn.
        finish_reason: "stop" or "length"; "length" when any turn was cut.
        prompt_tokens, completion_tokens: an ending EOS counts.
        seconds: wall time from request to end; first_token_s until the first text.
        token_ids: of all turns, without the ids that ended them.
        pieces: what each of these tokens reads as.
        kinds: a letter for each: e exact, p promoted, b bonus.
        margins: p / max p of the promoted ones, in order.
        nll: -ln p(token) under the target, summed over the tokens that carry one; nll_tokens of
            them. Nats.
        lossless, rule, policy: as the target reports them.
        stats: ``Statistics.details()``; without speculation its counts are 0.
        timings: prefill_s, draft_s, verify_s, host_s, total_s.
        shapes: [output position // 32, [num_steps, topk, num_draft_tokens], steps] of each tree
            that was asked for.
        chunks: for streams: [seconds since the request, characters] of each piece of text.
        error: why there is no answer; all else is then empty.
    """

    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    first_token_s: float | None = None
    token_ids: list[int] | None = None
    pieces: list[str] | None = None
    kinds: str | None = None
    margins: list[float] | None = None
    nll: float | None = None
    nll_tokens: int = 0
    lossless: bool | None = None
    rule: str | None = None
    policy: str | None = None
    stats: dict[str, Any] | None = None
    timings: dict[str, float] | None = None
    shapes: list[list[Any]] = field(default_factory=list)
    chunks: list[list[float]] | None = None
    error: str | None = None


class Target(ABC):
    """Answers items.

    Attributes:
        about: what it is, in words: makers, versions, precision, machine settings.
        identity: what has to be equal for rows to be comparable: model and head with hashes.
    """

    about: str
    identity: Mapping[str, Any]

    @property
    @abstractmethod
    def arms(self) -> Sequence[Arm]:
        """The arms it can be asked for, in order."""

    @abstractmethod
    def answer(self, arm: Arm, item: Item, ask: Ask) -> Answer:
        """Answer `item` by `arm`; what a model or server does wrong comes back as `error`."""

    def close(self) -> None:  # noqa: B027
        """Let go of weights, servers and connections."""

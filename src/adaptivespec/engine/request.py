"""What the decode loop takes and gives: a request, and the steps that answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from adaptivespec.core.commit import Commit, StopState
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.trace import StepTrace
from adaptivespec.core.verdict import Verdict
from adaptivespec.engine.target import PrefillProgress
from adaptivespec.policy.base import Policy, TreePlan
from adaptivespec.verify.base import Rule


@dataclass
class Request:
    """One generation, everything checked.

    `protected bool[V]` marks tokens that are never promoted nor overridden.  `record_nodes` puts
    every node of every tree into the trace.  With `record_plan` that tree is drafted at every
    position of the output, and each step commits the target's own token alone: a recording from
    which any policy that draws smaller trees can be replayed.  `logprobs` asks for the log
    probability of each token, `top_logprobs` for so many alternatives beside it.  `progress` hears
    how much of the prompt is read.
    """

    prompt: list[int]
    params: SamplingParams
    rule: Rule
    policy: Policy
    stop: StopState
    eos_ids: frozenset[int]
    protected: Tensor
    digits: Tensor | None = None
    think_ids: tuple[int, int] | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    record_nodes: bool = False
    record_plan: TreePlan | None = None
    progress: PrefillProgress | None = None


@dataclass
class Step:
    """What one step committed: `verdict` and `trace` are cut to it.

    `trace` is None for the prefill, which verifies nothing.  `finish` is "stop", "length" or None;
    "length" also when the context is full.  `logprobs` has one entry per committed token, and
    `top_logprobs` its likeliest alternatives, where they were asked for.
    """

    verdict: Verdict
    commit: Commit
    finish: str | None
    trace: StepTrace | None = None
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    nodes: dict[str, list[Any]] | None = None
    seconds: float = 0.0

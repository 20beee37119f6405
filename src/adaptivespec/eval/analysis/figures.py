"""What a report is made of: plain figures, each None where a run does not tell it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from adaptivespec.eval.statistics import NOTHING, Estimate, Pairs

__all__ = [
    "POOLED",
    "Cell",
    "Control",
    "Decoding",
    "Divergence",
    "NoiseLine",
    "Quality",
    "Speed",
    "flat",
]

POOLED = "pooled"
"""The name of the line that takes all tasks together."""


@dataclass(frozen=True)
class Quality:
    """Answers of an arm, graded and against the baseline's on the same items.

    Attributes:
        answers, errors: items answered; requests that failed, which count nowhere else.
        truncated: share of answers cut at the bound of tokens.
        unparsed: share of graded answers in which no final answer was found; these are wrong.
        loops, loops_16, loops_32: share of answers in which an n-gram of 8, 16 or 32 tokens (16 or
            32, 32) occurs three times or more.
        length_ratio: tokens of the arm over tokens of the baseline.
        graded, correct, accuracy: Wilson interval.
        pairs: items by who is right.
        difference, recovery: accuracy less, and over, the baseline's; bootstrap intervals.
        mcnemar_p: exact, two-sided.
        detectable: the true difference found with power 80 %.
        significant: the least one-way difference that is significant.
        agreement: share of items with the final answer of the baseline, right or wrong.
    """

    answers: int = 0
    errors: int = 0
    truncated: float | None = None
    unparsed: float | None = None
    loops: float | None = None
    loops_16: float | None = None
    loops_32: float | None = None
    length_ratio: float | None = None
    graded: int = 0
    correct: int = 0
    accuracy: Estimate = NOTHING
    pairs: Pairs | None = None
    difference: Estimate = NOTHING
    recovery: Estimate = NOTHING
    mcnemar_p: float | None = None
    detectable: float | None = None
    significant: float | None = None
    agreement: float | None = None


@dataclass(frozen=True)
class Divergence:
    """How far the text of an arm goes from the target's own.

    Attributes:
        identical: share of answers equal to the baseline's, token for token.
        divergence_at: median position of the first token that differs, over those that do.
        promotions_per_100: promoted tokens in 100.
        unpromoted: share of answers without a promotion.
        strict_arm: the lossless arm that these have to equal.
        strict_compared, strict_equal: how many were compared with it, and how many equal it.
        strict_violations: keys of the items where they do not.
        regret_mean, regret_p95: -ln margin summed over a request, in nats.
        margin: mean of p / max p over promoted tokens.
        choice: share of tokens that are the target's own choice.
        nll, nll_baseline: -ln p a token under the target, of the arm's and the baseline's answers
            to the same items, in nats.
    """

    identical: float | None = None
    divergence_at: float | None = None
    promotions_per_100: float | None = None
    unpromoted: float | None = None
    strict_arm: str | None = None
    strict_compared: int = 0
    strict_equal: int = 0
    strict_violations: list[str] = field(default_factory=list)
    regret_mean: float | None = None
    regret_p95: float | None = None
    margin: float | None = None
    choice: float | None = None
    nll: float | None = None
    nll_baseline: float | None = None


@dataclass(frozen=True)
class Decoding:
    """Acceptance, as sums over verify steps.

    Attributes:
        steps: verify passes.
        accept_length: tokens a verify pass, the bonus included (tau).
        acceptance_rate: accepted drafts over verified drafts.
        tree_nodes: mean nodes of a verified tree, the root included.
        verified_per_step: drafted nodes verified in a pass.
        passes_per_step: draft passes asked for before one.
        exact_by_depth, promoted_by_depth: share of drafting steps whose draft at that depth was
            accepted as the target's choice, and promoted.
        shapes: output position // 32 -> "steps,top-k,nodes" -> verify passes.
    """

    steps: int = 0
    accept_length: float | None = None
    acceptance_rate: float | None = None
    tree_nodes: float | None = None
    verified_per_step: float | None = None
    passes_per_step: float | None = None
    exact_by_depth: list[float] = field(default_factory=list)
    promoted_by_depth: list[float] = field(default_factory=list)
    shapes: dict[int, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Speed:
    """Times of an arm, from the timed requests alone.

    Attributes:
        prompts, restarts: timed prompts; processes they were timed in.
        errors: timed requests that failed.
        speedup: time of the baseline over time of the arm: within a block, then the median over
            restarts, then the geometric mean over prompts; bootstrap interval over prompts.
        token_speedup: ratio of total tokens a second.
        tokens_per_s, request_s, first_token_s: of one request, on this machine and that day.
        correct_s: seconds a request over accuracy: time for one correct answer.
        same_text: share of timed answers that read as the arm's graded answer to the same item.
        prefill_ms, draft_ms, verify_ms, host_ms: a token of output.
        requests_per_s: concurrency over mean time (Little's law); None at a set request rate.
        gap_ms, gap_ms_p95: between chunks of a stream: median and 95th percentile.
        chunk_characters, chunk_tokens: mean size of a chunk.
    """

    prompts: int = 0
    restarts: int = 0
    errors: int = 0
    speedup: Estimate = NOTHING
    token_speedup: Estimate = NOTHING
    tokens_per_s: float | None = None
    request_s: float | None = None
    first_token_s: float | None = None
    correct_s: float | None = None
    same_text: float | None = None
    prefill_ms: float | None = None
    draft_ms: float | None = None
    verify_ms: float | None = None
    host_ms: float | None = None
    requests_per_s: float | None = None
    gap_ms: float | None = None
    gap_ms_p95: float | None = None
    chunk_characters: float | None = None
    chunk_tokens: float | None = None


@dataclass(frozen=True)
class Cell:
    """An arm on a task, or on all of them. ``noise`` says how its loss compares with the floor."""

    arm: str
    task: str
    role: str
    lossless: bool | None
    quality: Quality
    divergence: Divergence
    decoding: Decoding
    speed: Speed
    below_noise: bool | None = None


@dataclass(frozen=True)
class NoiseLine:
    """Plain decoding against what should be the same: a difference here is noise.

    Attributes:
        what: the baseline again, its prompt read in other pieces, or a lossless arm.
        items, diverged: answers compared, and those that differ.
        divergence_at: median position of the first differing token.
        difference: of accuracy, with its detectable difference.
    """

    what: str
    task: str
    items: int
    diverged: int
    divergence_at: float | None
    difference: Estimate
    detectable: float | None


@dataclass(frozen=True)
class Control:
    """A control beside the arm whose rate of promotion is the nearest to its own.

    Attributes:
        difference: accuracy of the arm less the control's, bootstrap interval by question.
        arm_rate, control_rate: promotions in 100 tokens.
    """

    control: str
    arm: str
    control_rate: float | None
    arm_rate: float | None
    control_accuracy: float | None
    arm_accuracy: float | None
    difference: Estimate
    mcnemar_p: float | None
    detectable: float | None
    control_nll: float | None
    arm_nll: float | None


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Fields of nested dataclasses by name, estimates as three; lists and mappings as JSON."""
    result: dict[str, Any] = {}
    for item in dataclasses.fields(value):
        content = getattr(value, item.name)
        name = prefix + item.name
        if isinstance(content, Estimate):
            result[name] = content.value
            result[f"{name}_low"] = content.low
            result[f"{name}_high"] = content.high
        elif item.name == "pairs":
            pairs = content or Pairs()
            known = content is not None
            result |= {f"{prefix}{k}": getattr(pairs, k) if known else None for k in _PAIR_FIELDS}
        elif dataclasses.is_dataclass(content):
            result |= flat(content, prefix)
        elif isinstance(content, list | dict):
            result[name] = json.dumps(content) if content else None
        else:
            result[name] = content
    return result


_PAIR_FIELDS = ("both", "arm_only", "base_only", "neither")

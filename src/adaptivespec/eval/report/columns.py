"""The columns of the tables that have a line for an arm, each a function from it to text."""

from __future__ import annotations

from collections.abc import Callable

from adaptivespec.eval.analysis import Cell
from adaptivespec.eval.analysis.text import (
    DASH,
    interval,
    number,
    percent,
    points,
    promise,
    times,
)
from adaptivespec.eval.statistics import Estimate

Column = tuple[str, Callable[[Cell], str]]


def bounded(value: str, estimate: Estimate, scale: str = "number") -> str:
    """A figure with its interval in brackets, where it has one."""
    return f"{value} {interval(estimate, scale)}".strip()


def _speedup(cell: Cell) -> str:
    return bounded(times(cell.speed.speedup.value), cell.speed.speedup)


def _difference(cell: Cell) -> str:
    return bounded(points(cell.quality.difference.value), cell.quality.difference, "points")


def _detectable(cell: Cell) -> str:
    if cell.quality.pairs is None or cell.quality.detectable is not None:
        return points(cell.quality.detectable).lstrip("+")
    return "none" if cell.quality.pairs.n else DASH


def _recovery(cell: Cell) -> str:
    return bounded(percent(cell.quality.recovery.value), cell.quality.recovery, "percent")


def _strictness(cell: Cell) -> str:
    text = cell.divergence
    return f"{text.strict_equal} of {text.strict_compared}" if text.strict_compared else DASH


def _floor(cell: Cell) -> str:
    return {True: "below", False: "above", None: DASH}[cell.below_noise]


_ARM: Column = ("arm", lambda c: c.arm)
_TASK: Column = ("task", lambda c: c.task)

GLANCE_NOTE = (
    "All tasks pooled, stratified; accuracy over those on which the baseline is right once in "
    "twenty times or more, since others cannot show a loss. Brackets are 95 % intervals (paired "
    "bootstrap, 10,000 resamples by question). Detectable: the true accuracy difference that this "
    "run would find with power 80 %; a smaller observed one is no evidence of no loss. Noise: "
    "whether the difference is within what runs show that ought to be equal."
)
GLANCE: list[Column] = [
    _ARM,
    ("text", lambda c: promise(c.lossless)),
    ("speed-up", _speedup),
    ("tau", lambda c: number(c.decoding.accept_length)),
    ("accuracy", lambda c: percent(c.quality.accuracy.value)),
    ("difference, points", _difference),
    ("detectable", _detectable),
    ("McNemar p", lambda c: number(c.quality.mcnemar_p, 3)),
    ("recovery", _recovery),
    ("noise", _floor),
]

ACCURACY_NOTE = (
    "Accuracy with Wilson intervals. Gained and lost: items that only the arm, and only the "
    "baseline, answers rightly; exact McNemar tests these. Least: the smallest one-way difference "
    "that can be significant. Same answer: final answers equal to the baseline's, right or wrong."
)
ACCURACY: list[Column] = [
    _TASK,
    _ARM,
    ("n", lambda c: str(c.quality.graded)),
    (
        "accuracy",
        lambda c: bounded(percent(c.quality.accuracy.value), c.quality.accuracy, "percent"),
    ),
    ("difference, points", _difference),
    ("detectable", _detectable),
    ("least", lambda c: points(c.quality.significant).lstrip("+")),
    ("gained", lambda c: DASH if c.quality.pairs is None else str(c.quality.pairs.arm_only)),
    ("lost", lambda c: DASH if c.quality.pairs is None else str(c.quality.pairs.base_only)),
    ("McNemar p", lambda c: number(c.quality.mcnemar_p, 3)),
    ("recovery", _recovery),
    ("same answer", lambda c: percent(c.quality.agreement)),
    ("unparsed", lambda c: percent(c.quality.unparsed)),
]

TEXT_NOTE = (
    "Same text: answers equal to the baseline's, token for token. Answers without a promotion have "
    "to equal the lossless arm's. Regret: -ln (p / max p) summed over the promotions of a request, "
    "in nats. NLL: of the output under the target, per token, beside the baseline's on the same "
    "items."
)
TEXT: list[Column] = [
    _ARM,
    ("same text", lambda c: percent(c.divergence.identical)),
    ("first difference", lambda c: number(c.divergence.divergence_at, 0)),
    ("promoted / 100", lambda c: number(c.divergence.promotions_per_100)),
    ("without promotion", lambda c: percent(c.divergence.unpromoted)),
    ("of these as strict", _strictness),
    ("regret", lambda c: number(c.divergence.regret_mean)),
    ("95th percentile", lambda c: number(c.divergence.regret_p95)),
    ("mean margin", lambda c: number(c.divergence.margin)),
    ("target's choice", lambda c: percent(c.divergence.choice)),
    ("NLL", lambda c: number(c.divergence.nll, 3)),
    ("baseline NLL", lambda c: number(c.divergence.nll_baseline, 3)),
]

LENGTH_NOTE = (
    "Length: tokens over the baseline's on the same items. Cut: answers that reached the bound of "
    "tokens. Loops: an n-gram of 8 tokens or more (of 16, of 32) three times or more. Errors are "
    "failed requests, of all phases that are reported; they count nowhere else."
)
LENGTH: list[Column] = [
    _TASK,
    _ARM,
    ("answers", lambda c: str(c.quality.answers)),
    ("errors", lambda c: str(c.quality.errors + c.speed.errors)),
    ("cut", lambda c: percent(c.quality.truncated)),
    ("length", lambda c: times(c.quality.length_ratio)),
    ("loops", lambda c: percent(c.quality.loops)),
    ("of 16", lambda c: percent(c.quality.loops_16)),
    ("of 32", lambda c: percent(c.quality.loops_32)),
]

DECODING_NOTE = (
    "tau: committed tokens per verify step, the bonus included. Accepted: of verified drafts. "
    "Tree: nodes, the root included. Draft passes: asked for before a verify pass."
)
DECODING: list[Column] = [
    _TASK,
    _ARM,
    ("tau", lambda c: number(c.decoding.accept_length)),
    ("accepted", lambda c: percent(c.decoding.acceptance_rate)),
    ("tree", lambda c: number(c.decoding.tree_nodes, 1)),
    ("drafts / step", lambda c: number(c.decoding.verified_per_step, 1)),
    ("draft passes / step", lambda c: number(c.decoding.passes_per_step)),
    ("steps", lambda c: str(c.decoding.steps) if c.decoding.steps else DASH),
]

TIME_NOTE = (
    "Timed requests only: arms in shuffled turns within one process, several processes. Speed-up: "
    "time per request, baseline over arm: the median over restarts, then the geometric mean over "
    "prompts. Tokens/s ratio: of totals; it hides longer outputs. Same text: timed answers that "
    "read as the graded ones. Tokens/s: of one request. Time per correct answer is time per "
    "request over accuracy. Seconds belong to this machine and this day alone."
)
TIME: list[Column] = [
    _TASK,
    _ARM,
    ("prompts", lambda c: str(c.speed.prompts) if c.speed.prompts else DASH),
    ("restarts", lambda c: str(c.speed.restarts) if c.speed.restarts else DASH),
    ("speed-up", _speedup),
    (
        "tokens/s ratio",
        lambda c: bounded(times(c.speed.token_speedup.value), c.speed.token_speedup),
    ),
    ("same text", lambda c: percent(c.speed.same_text)),
    ("tokens/s", lambda c: number(c.speed.tokens_per_s, 1)),
    ("s / request", lambda c: number(c.speed.request_s, 3)),
    ("s / correct", lambda c: number(c.speed.correct_s, 3)),
    ("first token, s", lambda c: number(c.speed.first_token_s, 3)),
    ("prefill, ms/token", lambda c: number(c.speed.prefill_ms)),
    ("draft", lambda c: number(c.speed.draft_ms)),
    ("verify", lambda c: number(c.speed.verify_ms)),
    ("host", lambda c: number(c.speed.host_ms)),
]

STREAM_NOTE = (
    "Requests/s: concurrency over mean time. Gap: between chunks of a stream, which hold several "
    "tokens each: not a time per token."
)
STREAM: list[Column] = [
    _TASK,
    _ARM,
    ("requests/s", lambda c: number(c.speed.requests_per_s)),
    ("first token, s", lambda c: number(c.speed.first_token_s, 3) if c.speed.gap_ms else DASH),
    ("gap, ms", lambda c: number(c.speed.gap_ms, 1)),
    ("gap p95, ms", lambda c: number(c.speed.gap_ms_p95, 1)),
    ("characters / chunk", lambda c: number(c.speed.chunk_characters, 1)),
    ("tokens / chunk", lambda c: number(c.speed.chunk_tokens)),
]

"""Times of an arm against the baseline's, from the timed requests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from adaptivespec.eval.analysis.figures import Speed
from adaptivespec.eval.analysis.samples import Samples, Timed, good, percentile, ratio
from adaptivespec.eval.rows import Row
from adaptivespec.eval.statistics import NOTHING, Floats, geometric_mean, ratio_of_rates
from adaptivespec.eval.targets.base import Answer

__all__ = ["prompt_speedups", "speed"]


def speed(samples: Samples, arm: str, tasks: Sequence[str], accuracy: float | None) -> Speed:
    """The figures of one arm on some tasks.

    Args:
        accuracy: of the arm on those of the tasks that can show a loss (``Samples.telling``), for
            the time of a correct answer.
    """
    rows = samples.timed(arm, tasks)
    errors = samples.timed_errors(arm, tasks)
    if not rows:
        return Speed(errors=errors)
    base = samples.timed(samples.settings.baseline, tasks)
    other = arm != samples.settings.baseline
    answers = [row.answer for row in rows.values()]
    request_s = sum(answer.seconds for answer in answers) / len(answers)
    judged = samples.telling(tasks)
    judged_s = [row.answer.seconds for key, row in rows.items() if key[0] in judged]
    firsts = [answer.first_token_s for answer in answers if answer.first_token_s is not None]
    return Speed(
        prompts=len({key[:2] for key in rows}),
        restarts=len({key[2] for key in rows}),
        errors=errors,
        speedup=geometric_mean(_strata(prompt_speedups(rows, base), tasks)) if other else NOTHING,
        token_speedup=ratio_of_rates(_rates(rows, base, tasks)) if other else NOTHING,
        tokens_per_s=ratio(
            sum(answer.completion_tokens for answer in answers),
            sum(answer.seconds for answer in answers),
        ),
        request_s=request_s,
        first_token_s=ratio(sum(firsts), len(firsts)),
        correct_s=sum(judged_s) / len(judged_s) / accuracy if accuracy and judged_s else None,
        same_text=_same_text(samples, arm, rows),
        **_phases(answers),
        requests_per_s=_throughput(samples, request_s) if _streamed(answers) else None,
        **_stream(answers),
    )


def prompt_speedups(
    rows: Mapping[Timed, Row], base: Mapping[Timed, Row]
) -> dict[tuple[str, int], float]:
    """Time of the baseline over time of the arm for each prompt: the median over restarts."""
    found: dict[tuple[str, int], list[float]] = {}
    for key, row in rows.items():
        other = base.get(key)
        if other is not None and row.answer.seconds > 0 and other.answer.seconds > 0:
            found.setdefault(key[:2], []).append(other.answer.seconds / row.answer.seconds)
    return {key: median(ratios) for key, ratios in found.items()}


def _strata(ratios: Mapping[tuple[str, int], float], tasks: Sequence[str]) -> list[list[float]]:
    return [[value for key, value in ratios.items() if key[0] == task] for task in tasks]


def _rates(
    rows: Mapping[Timed, Row], base: Mapping[Timed, Row], tasks: Sequence[str]
) -> list[Floats]:
    """Tokens and seconds of both arms, summed over the restarts of each prompt."""
    sums: dict[tuple[str, int], Floats] = {}
    for key, row in rows.items():
        other = base.get(key)
        if other is None:
            continue
        both = [value for a in (row.answer, other.answer) for value in _rate(a)]
        if all(value > 0 for value in both):
            sums[key[:2]] = sums.get(key[:2], np.zeros(4)) + np.asarray(both, dtype=np.float64)
    strata = [[value for key, value in sums.items() if key[0] == task] for task in tasks]
    return [np.stack(values) for values in strata if values]


def _rate(answer: Answer) -> tuple[float, float]:
    return answer.completion_tokens, answer.seconds


def _same_text(samples: Samples, arm: str, rows: Mapping[Timed, Row]) -> float | None:
    graded = good(samples.quality.get(arm, {}))
    same = [
        row.answer.text == graded[key[:2]].answer.text
        for key, row in rows.items()
        if key[:2] in graded
    ]
    return ratio(sum(same), len(same))


def _phases(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Milliseconds a token of output in each phase."""
    told = [answer for answer in answers if answer.timings]
    tokens = sum(answer.completion_tokens for answer in told)
    result = {}
    for phase in ("prefill", "draft", "verify", "host"):
        seconds = sum((answer.timings or {}).get(f"{phase}_s", 0.0) for answer in told)
        rate = ratio(seconds, tokens)
        result[f"{phase}_ms"] = None if rate is None else 1000 * rate
    return result


def _throughput(samples: Samples, request_s: float) -> float | None:
    """Requests a second by Little's law; not at a set rate, where load does not follow speed."""
    load = samples.settings.load
    if not load.get("concurrency") or load.get("request_rate") or request_s <= 0:
        return None
    return float(load["concurrency"]) / request_s


def _streamed(answers: Sequence[Answer]) -> bool:
    return any(answer.chunks for answer in answers)


def _stream(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Chunks of streamed answers: their size, and the time between them."""
    streams = [answer for answer in answers if answer.chunks]
    chunks = sum(len(answer.chunks or ()) for answer in streams)
    gaps = [
        later[0] - earlier[0]
        for answer in streams
        for earlier, later in zip(answer.chunks or (), (answer.chunks or ())[1:], strict=False)
    ]
    middle, high = percentile(gaps, 50), percentile(gaps, 95)
    characters = sum(chunk[1] for answer in streams for chunk in answer.chunks or ())
    return {
        "gap_ms": None if middle is None else 1000 * middle,
        "gap_ms_p95": None if high is None else 1000 * high,
        "chunk_characters": ratio(characters, chunks),
        "chunk_tokens": ratio(sum(answer.completion_tokens for answer in streams), chunks),
    }

"""The tables of `grid.py --report`.

A speed is the time of plain decoding / the time of a cell, so above 1 is faster: the median over
prompts with a bootstrap interval of 95 %. The best cell of a row is bold.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from grid_rows import RATIOS, Interval, Run, paired, policies_of, rules_of, table, tasks_of, where

Shown = tuple[float | None, str]
"""The value of a measure, which orders cells, and the text that is shown."""


def report(rows: Sequence[dict[str, Any]]) -> str:
    """A matrix for each measure (rules down, policies across), and the full list, by task."""
    runs = paired(rows)
    rules, policies = rules_of(runs), policies_of(runs)
    parts = [_plain(runs)]
    for measure in MEASURES:
        body = []
        for rule in rules:
            values = [measure.of(where(runs, rule=rule, policy=policy)) for policy in policies]
            body.append([rule, *_marked(values, measure.best)])
        parts += [f"## {measure.title}", table(["rule", *policies], body)]
    body = []
    for task in tasks_of(runs):
        for rule in rules:
            for policy in policies:
                cell = where(runs, rule=rule, policy=policy, task=task)
                if cell:
                    body.append([task, rule, policy, str(len(cell)), *_details(cell)])
    parts += ["## All cells", table(["task", "rule", "policy", "prompts", *DETAILS], body)]
    failed = {f"* {row['rule']} {row['policy']}: {row['error']}" for row in _failed(rows)}
    if failed:
        parts += ["## Not possible", "\n".join(sorted(failed))]
    return "\n\n".join(parts)


def _tau(runs: Sequence[Run]) -> Shown:
    return _ratio(_sum(runs, "step_tokens"), _sum(runs, "steps"), "{:.2f}")


def _speed(name: str, runs: Sequence[Run]) -> Shown:
    if not runs:
        return None, "-"
    value = statistics.median(getattr(run, name) for run in runs)
    return value, f"{value:.2f}"


def _promoted(runs: Sequence[Run]) -> Shown:
    return _ratio(100 * _sum(runs, "promoted"), _sum(runs, "tokens"), "{:.1f}")


def _answers(runs: Sequence[Run]) -> Shown:
    same = [run.same_answer for run in where(runs, task="gsm8k")]
    known = [answer for answer in same if answer is not None]
    return _ratio(sum(known), len(known), f"{sum(known)}/{len(known)}")


def _identical(runs: Sequence[Run]) -> Shown:
    same = [run.row["text"] == run.plain[0]["text"] for run in _texts(runs)]
    return _ratio(sum(same), len(same), f"{sum(same)}/{len(same)}")


def _prefix(runs: Sequence[Run]) -> Shown:
    shares = [run.prefix for run in _texts(runs)]
    return _ratio(sum(shares), len(shares), "{:.2f}")


class Measure(NamedTuple):
    """A matrix of the report; where more is better, the best of a row is marked."""

    title: str
    of: Callable[[Sequence[Run]], Shown]
    best: bool = True


MEASURES = (
    Measure("Tokens per step", _tau),
    Measure("Speed of a request, plain = 1", partial(_speed, "request_ratio")),
    Measure("Speed of a token, plain = 1", partial(_speed, "token_ratio")),
    Measure("Promotions per 100 tokens", _promoted, best=False),
    Measure("GSM8K: the last number is that of plain, of those where plain has one", _answers),
    Measure("HumanEval, MT-bench: texts identical to plain", _identical),
    Measure("HumanEval, MT-bench: mean share of text before the first difference", _prefix),
)
DETAILS = (
    *("tau", "drafted", "verified", "request", "95 %", "token", "95 %"),
    *("promoted/100", "answers", "identical", "prefix"),
)


def _details(runs: Sequence[Run]) -> list[str]:
    """One text for each of DETAILS; drafted and verified nodes are per step."""
    steps = _sum(runs, "steps")
    nodes = [_ratio(_sum(runs, name), steps, "{:.1f}")[1] for name in ("drafted", "verified")]
    speeds = []
    for name in RATIOS:
        speed = Interval.of([getattr(run, name) for run in runs], np.median)
        speeds += [f"{speed.value:.2f}", speed.bounds(".2f")]
    shown = [of(runs)[1] for of in (_promoted, _answers, _identical, _prefix)]
    return [_tau(runs)[1], *nodes, *speeds, *shown]


def _plain(runs: Sequence[Run]) -> str:
    """What plain decoding took, and how much its runs within a block differ."""
    blocks = {(run.row["task"], run.row["index"]): run.plain for run in runs}
    counts = Counter(task for task, _ in blocks)
    seconds = [[row["seconds"] for row in rows] for rows in blocks.values()]
    tokens = sum(rows[0]["tokens"] for rows in blocks.values())
    took = 1000 * sum(map(statistics.median, seconds)) / max(1, tokens)
    spread = 100 * statistics.median(max(s) / min(s) - 1 for s in seconds) if seconds else 0.0
    return (
        f"{len(blocks)} prompts ({', '.join(f'{n} {task}' for task, n in counts.items())}), plain "
        f"decoding takes {took:.1f} ms a token; its runs in a block differ by {spread:.0f} % "
        "(median)"
    )


def _failed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    done = {(row["rule"], row["policy"]) for row in rows if "error" not in row}
    return [row for row in rows if "error" in row and (row["rule"], row["policy"]) not in done]


def _texts(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.row["task"] != "gsm8k"]


def _sum(runs: Sequence[Run], name: str) -> int:
    return sum(run.row[name] for run in runs)


def _ratio(numerator: float, denominator: float, form: str) -> Shown:
    if not denominator:
        return None, "-"
    return numerator / denominator, form.format(numerator / denominator)


def _marked(values: Sequence[Shown], best: bool) -> list[str]:
    """The texts, the best in bold unless all are equal."""
    known = {value for value, _ in values if value is not None}
    top = max(known) if best and len(known) > 1 else None
    return [f"**{text}**" if top is not None and value == top else text for value, text in values]

"""The table of `grid.py --compare`: one policy against others, prompt by prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from grid_rows import RATIOS, Interval, Run, paired, policies_of, rules_of, table, tasks_of, where

from adaptivespec.core.errors import ConfigError

ALLOWED = math.log(1.01)  # a policy that wins is never slower than its rivals by more than 1 %


class Comparison(NamedTuple):
    """ln(seconds of one policy / seconds of a rival): mean over the prompts that both answered."""

    rule: str
    task: str
    rival: str
    prompts: int
    request: Interval
    token: Interval


def compare(rows: Sequence[dict[str, Any]], policy: str, rivals: Sequence[str]) -> str:
    """Is ``policy`` faster than each rival, under every rule and for every task?"""
    found = comparisons(paired(rows), policy, rivals)
    body = [
        [c.rule, c.task, c.rival, str(c.prompts), _percent(c.request), _percent(c.token)]
        for c in found
    ]
    head = ["rule", "task", "against", "prompts", "request", "token"]
    parts = [f"## Time of {policy} against others", table(head, body)]
    for rival in rivals:
        cells = [c for c in found if c.rival == rival and c.task != "all"]
        parts.append("\n".join(_verdict(rival, cells, name) for name in ("request", "token")))
    return "\n\n".join(parts)


def comparisons(runs: Sequence[Run], policy: str, rivals: Sequence[str]) -> list[Comparison]:
    """Paired by rule and prompt; each time is taken against the plain runs of its own block."""
    known = policies_of(runs)
    for name in (policy, *rivals):
        if name not in known:
            raise ConfigError(
                f"no rows of policy '{name}'", field="--compare", remedy=f"Have: {'; '.join(known)}"
            )
    found = []
    for rival in rivals:
        for rule in rules_of(runs):
            for task in tasks_of(runs):
                ours, theirs = (
                    {
                        (run.row["task"], run.row["index"]): run
                        for run in where(runs, rule=rule, policy=name, task=task)
                    }
                    for name in (policy, rival)
                )
                both = [(run, theirs[key]) for key, run in ours.items() if key in theirs]
                if not both:
                    continue
                request, token = (
                    Interval.of(
                        [math.log(getattr(b, name) / getattr(a, name)) for a, b in both], np.mean
                    )
                    for name in RATIOS
                )
                found.append(Comparison(rule, task, rival, len(both), request, token))
    return found


def _verdict(rival: str, cells: Sequence[Comparison], name: str) -> str:
    """How many cells are surely faster, may be slower, and surely are, in words."""
    intervals = [getattr(cell, name) for cell in cells]
    below = sum(each.high < 0 for each in intervals)
    reach = sum(each.high > ALLOWED for each in intervals)
    above = sum(each.low > ALLOWED for each in intervals)
    return (
        f"* against {rival}, time of a {name}: of {len(cells)} intervals (rule x task) {below} lie "
        f"wholly below 0, {reach} reach above +1 %, {above} lie wholly above +1 %"
    )


def _percent(ratio: Interval) -> str:
    """A log ratio in per cent: -5.0 % (-7.1 to -2.9)."""
    if math.isinf(ratio.low):
        return f"{100 * math.expm1(ratio.value):+.1f} % (-)"
    percent = Interval(*(100 * math.expm1(end) for end in ratio))
    return f"{percent.value:+.1f} % ({percent.bounds('+.1f')})"

"""The noise floor: how far apart two runs are that should give the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from adaptivespec.eval.analysis.divergence import divergence_positions
from adaptivespec.eval.analysis.figures import NoiseLine
from adaptivespec.eval.analysis.quality import paired_verdicts
from adaptivespec.eval.analysis.samples import Key, Samples, good
from adaptivespec.eval.rows import Row
from adaptivespec.eval.statistics import (
    Pairs,
    accuracy_difference,
    minimal_detectable_difference,
)

__all__ = ["floor", "noise_lines"]


def noise_lines(samples: Samples) -> list[NoiseLine]:
    """The baseline against itself, its prompt read in other pieces, and against lossless arms."""
    baseline = samples.settings.baseline
    again = good(samples.noise.get(baseline, {}))
    lines = []
    for scope, tasks in samples.scopes():
        judged = samples.telling(tasks)
        base = samples.answers(baseline, tasks)
        lines.append(_line(f"{baseline} again", scope, tasks, judged, again, base))
        for arm in samples.lossless_arms():
            if arm.name in samples.quality:
                rows = samples.answers(arm.name, tasks)
                lines.append(_line(arm.name, scope, tasks, judged, rows, base))
    return [line for line in lines if line.items]


def floor(lines: Sequence[NoiseLine], scope: str) -> float | None:
    """The largest accuracy difference that is noise, on a task or pooled; None: not measured."""
    here = [line.difference.value for line in lines if line.task == scope]
    return max((abs(value) for value in here if value is not None), default=None)


def _line(
    what: str,
    scope: str,
    tasks: Sequence[str],
    judged: Sequence[str],
    rows: Mapping[Key, Row],
    base: Mapping[Key, Row],
) -> NoiseLine:
    rows = {key: row for key, row in rows.items() if key in base and key[0] in tasks}
    positions = divergence_positions(rows, base)
    strata = paired_verdicts(rows, base, judged)
    total = sum(strata, Pairs())
    return NoiseLine(
        what=what,
        task=scope,
        items=len(rows),
        diverged=len(positions),
        divergence_at=float(median(positions)) if positions else None,
        difference=accuracy_difference(strata),
        detectable=minimal_detectable_difference(total.n, total.discordant),
    )

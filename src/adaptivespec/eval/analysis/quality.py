"""Accuracy, lengths and loops of an arm, paired with the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adaptivespec.eval.analysis.figures import Quality
from adaptivespec.eval.analysis.samples import Key, Samples, ratio
from adaptivespec.eval.measures import loop_length, tokens_of
from adaptivespec.eval.rows import Row
from adaptivespec.eval.statistics import (
    Pairs,
    accuracy_difference,
    exact_mcnemar,
    minimal_detectable_difference,
    proportion,
    recovery_ratio,
    smallest_significant_difference,
)

__all__ = ["paired_verdicts", "quality"]


def quality(samples: Samples, arm: str, tasks: Sequence[str]) -> Quality:
    """The figures of one arm on some tasks, stratified by task.

    Accuracy and all that compares it are of those tasks that can show a loss, see
    ``Samples.telling``; everything else is of all.
    """
    rows = samples.answers(arm, tasks)
    base = samples.answers(samples.settings.baseline, tasks)
    errors = len(samples.errors(arm, tasks))
    if not rows:
        return Quality(errors=errors)
    loops = [loop_length(tokens_of(row.answer)) for row in rows.values()]
    graded = [row.grade for row in rows.values() if row.grade and row.grade.correct is not None]
    judged = samples.telling(tasks)
    verdicts = [
        bool(row.grade.correct)
        for key, row in rows.items()
        if key[0] in judged and row.grade and row.grade.correct is not None
    ]
    strata = paired_verdicts(rows, base, judged)
    total = sum(strata, Pairs())
    paired = total.n > 0 and arm != samples.settings.baseline
    both = [key for key in rows if key in base]
    return Quality(
        answers=len(rows),
        errors=errors,
        truncated=_share(row.answer.finish_reason == "length" for row in rows.values()),
        unparsed=_share(grade.status == "unparsed" for grade in graded),
        loops=_share(length >= 8 for length in loops),
        loops_16=_share(length >= 16 for length in loops),
        loops_32=_share(length >= 32 for length in loops),
        length_ratio=ratio(
            sum(rows[key].answer.completion_tokens for key in both),
            sum(base[key].answer.completion_tokens for key in both),
        ),
        graded=len(verdicts),
        correct=sum(verdicts),
        accuracy=proportion(sum(verdicts), len(verdicts)),
        agreement=None if arm == samples.settings.baseline else _agreement(rows, base),
        **(_against_baseline(strata, total) if paired else {}),
    )


def paired_verdicts(
    rows: Mapping[Key, Row], base: Mapping[Key, Row], tasks: Sequence[str]
) -> list[Pairs]:
    """Verdicts of two arms on the items that both answered, a table for each task."""
    strata = []
    for task in tasks:
        verdicts = [
            (row.grade.correct, other.grade.correct)
            for key, row in rows.items()
            if key[0] == task
            and row.grade is not None
            and row.grade.correct is not None
            and (other := base.get(key)) is not None
            and other.grade is not None
            and other.grade.correct is not None
        ]
        strata.append(Pairs.of([ours for ours, _ in verdicts], [theirs for _, theirs in verdicts]))
    return strata


def _against_baseline(strata: Sequence[Pairs], total: Pairs) -> dict[str, Any]:
    return {
        "pairs": total,
        "difference": accuracy_difference(strata),
        "recovery": recovery_ratio(strata),
        "mcnemar_p": exact_mcnemar(total.arm_only, total.base_only),
        "detectable": minimal_detectable_difference(total.n, total.discordant),
        "significant": smallest_significant_difference(total.n),
    }


def _agreement(rows: Mapping[Key, Row], base: Mapping[Key, Row]) -> float | None:
    """Share of items on which both found a final answer or neither did, and it is the same."""
    same = [
        row.grade.answer == other.grade.answer and row.grade.status == other.grade.status
        for key, row in rows.items()
        if row.grade is not None
        and row.grade.status != "ungraded"
        and (other := base.get(key)) is not None
        and other.grade is not None
    ]
    return _share(same)


def _share(flags: Iterable[bool]) -> float | None:
    values = list(flags)
    return ratio(sum(values), len(values))

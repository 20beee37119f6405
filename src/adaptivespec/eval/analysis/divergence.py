"""How far an arm's text goes from the target's own, and what its promotions cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from adaptivespec.eval.analysis.figures import Divergence
from adaptivespec.eval.analysis.samples import Key, Samples, percentile, ratio
from adaptivespec.eval.measures import (
    first_divergence,
    promotions,
    regret,
    same_output,
    tokens_of,
)
from adaptivespec.eval.rows import Row

__all__ = ["divergence", "divergence_positions"]


def divergence(samples: Samples, arm: str, tasks: Sequence[str]) -> Divergence:
    """The figures of one arm on some tasks."""
    rows = samples.answers(arm, tasks)
    base = samples.answers(samples.settings.baseline, tasks)
    both = [key for key in rows if key in base]
    positions = divergence_positions(rows, base)
    promoted = {
        key: count for key, row in rows.items() if (count := promotions(row.answer)) is not None
    }
    tokens = sum(rows[key].answer.completion_tokens for key in promoted)
    regrets = [value for row in rows.values() if (value := regret(row.answer)) is not None]
    margins = [margin for row in rows.values() for margin in row.answer.margins or ()]
    rate = ratio(sum(promoted.values()), tokens)
    baseline = arm == samples.settings.baseline
    return Divergence(
        identical=None if baseline else ratio(len(both) - len(positions), len(both)),
        divergence_at=float(median(positions)) if positions and not baseline else None,
        promotions_per_100=None if rate is None else 100 * rate,
        unpromoted=ratio(sum(count == 0 for count in promoted.values()), len(promoted)),
        **_strictness(samples, arm, [key for key, count in promoted.items() if count == 0]),
        regret_mean=ratio(sum(regrets), len(regrets)),
        regret_p95=percentile(regrets, 95),
        margin=ratio(sum(margins), len(margins)),
        choice=None if rate is None else 1 - rate,
        nll=_nll(rows, base),
        nll_baseline=_nll(base, rows),
    )


def divergence_positions(rows: Mapping[Key, Row], base: Mapping[Key, Row]) -> list[int]:
    """Where the answers that differ do so first, over items that both answered."""
    positions = []
    for key, row in rows.items():
        other = base.get(key)
        if other is None or same_output(row.answer, other.answer):
            continue
        ids = row.answer.token_ids is not None and other.answer.token_ids is not None
        one, two = (
            (tokens_of(row.answer), tokens_of(other.answer))
            if ids
            else (row.answer.text, other.answer.text)
        )
        position = first_divergence(one, two)
        positions.append(min(len(one), len(two)) if position is None else position)
    return positions


def _strictness(samples: Samples, arm: str, unpromoted: Sequence[Key]) -> dict[str, Any]:
    """Whether a lossy arm's answers without a promotion are the strict arm's, token for token."""
    strict = _strict_arm(samples, arm)
    if strict is None or samples.settings.temperature > 0:
        return {}
    ours = samples.answers(arm, samples.tasks)
    theirs = samples.answers(strict, samples.tasks)
    keys = [key for key in unpromoted if key in theirs]
    wrong = [key for key in keys if not same_output(ours[key].answer, theirs[key].answer)]
    return {
        "strict_arm": strict,
        "strict_compared": len(keys),
        "strict_equal": len(keys) - len(wrong),
        "strict_violations": [f"{task}/{index}" for task, index in wrong],
    }


def _strict_arm(samples: Samples, name: str) -> str | None:
    """The strict arm of the same policy, else another one, else the baseline."""
    arms = {arm.name: arm for arm in samples.settings.arms}
    arm = arms[name]
    if arm.lossless is not False:
        return None
    strict = [other for other in samples.lossless_arms() if other.target == arm.target]
    strict.sort(key=lambda other: (other.policy != arm.policy, other.rule != "strict"))
    names = [other.name for other in strict if other.name in samples.quality]
    baseline = samples.settings.baseline
    if baseline in arms and arms[baseline].target == arm.target:
        names.append(baseline)
    return names[0] if names else None


def _nll(rows: Mapping[Key, Row], others: Mapping[Key, Row]) -> float | None:
    """-ln p a token, over items for which both sides tell it."""
    told = [
        row.answer
        for key, row in rows.items()
        if row.answer.nll is not None
        and (other := others.get(key)) is not None
        and other.answer.nll is not None
    ]
    return ratio(sum(answer.nll or 0.0 for answer in told), sum(a.nll_tokens for a in told))

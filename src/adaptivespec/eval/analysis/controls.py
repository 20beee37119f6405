"""Controls: an arm against one that promotes as often, but by a coin instead of by margins."""

from __future__ import annotations

from collections.abc import Sequence

from adaptivespec.eval.analysis.figures import POOLED, Cell, Control
from adaptivespec.eval.analysis.quality import paired_verdicts
from adaptivespec.eval.analysis.samples import Samples
from adaptivespec.eval.statistics import (
    Pairs,
    accuracy_difference,
    exact_mcnemar,
    minimal_detectable_difference,
)
from adaptivespec.verify import PRESETS

__all__ = ["controls"]


def controls(samples: Samples, cells: Sequence[Cell]) -> list[Control]:
    """Each coin beside the margin arm of its policy with the nearest rate of promotion.

    Where its policy or the margin rule was not run, another lossy arm of the target stands in.
    """
    pooled = [cell for cell in cells if cell.task == POOLED]
    found = []
    rules = {arm.name: arm.rule.partition(":")[0] for arm in samples.settings.arms}
    for control in (cell for cell in pooled if rules[cell.arm] == "coin"):
        arm = _partner(samples, control, pooled)
        if arm is not None:
            found.append(_compared(samples, control, arm))
    return found


def _partner(samples: Samples, control: Cell, pooled: Sequence[Cell]) -> Cell | None:
    arms = {arm.name: arm for arm in samples.settings.arms}
    mine = arms[control.arm]
    rate = control.divergence.promotions_per_100
    candidates = [
        cell
        for cell in pooled
        if cell.role not in ("control", "plain")
        and cell.lossless is False
        and arms[cell.arm].target == mine.target
        and cell.divergence.promotions_per_100 is not None
    ]
    if rate is None or not candidates:
        return None

    def distance(cell: Cell) -> tuple[bool, bool, float]:
        arm, other = arms[cell.arm], cell.divergence.promotions_per_100 or 0.0
        margin = arm.rule.partition(":")[0] in ("margin", *PRESETS)
        return arm.policy != mine.policy, not margin, abs(other - rate)

    return min(candidates, key=distance)


def _compared(samples: Samples, control: Cell, arm: Cell) -> Control:
    strata = paired_verdicts(
        samples.answers(arm.arm, samples.tasks),
        samples.answers(control.arm, samples.tasks),
        samples.telling(samples.tasks),
    )
    total = sum(strata, Pairs())
    return Control(
        control=control.arm,
        arm=arm.arm,
        control_rate=control.divergence.promotions_per_100,
        arm_rate=arm.divergence.promotions_per_100,
        control_accuracy=control.quality.accuracy.value,
        arm_accuracy=arm.quality.accuracy.value,
        difference=accuracy_difference(strata),
        mcnemar_p=exact_mcnemar(total.arm_only, total.base_only) if total.n else None,
        detectable=minimal_detectable_difference(total.n, total.discordant),
        control_nll=control.divergence.nll,
        arm_nll=arm.divergence.nll,
    )

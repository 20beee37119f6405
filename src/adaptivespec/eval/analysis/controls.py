"""Controls: an arm against one that promotes as often, but without looking at margins."""

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

__all__ = ["controls"]


def controls(samples: Samples, cells: Sequence[Cell]) -> list[Control]:
    """Each control beside the lossy arm of its policy with the nearest rate of promotion."""
    pooled = [cell for cell in cells if cell.task == POOLED]
    found = []
    for control in (cell for cell in pooled if cell.role == "control"):
        arm = _partner(samples, control, pooled)
        if arm is not None:
            found.append(_compared(samples, control, arm))
    return found


def _partner(samples: Samples, control: Cell, pooled: Sequence[Cell]) -> Cell | None:
    policies = {
        arm.name: (arm.target, arm.resolved_policy or arm.policy) for arm in samples.settings.arms
    }
    rate = control.divergence.promotions_per_100
    candidates = [
        cell
        for cell in pooled
        if cell.role not in ("control", "plain")
        and cell.lossless is False
        and policies[cell.arm][0] == policies[control.arm][0]
        and cell.divergence.promotions_per_100 is not None
    ]
    if rate is None or not candidates:
        return None

    def distance(cell: Cell) -> tuple[bool, float]:
        other = cell.divergence.promotions_per_100 or 0.0
        return policies[cell.arm] != policies[control.arm], abs(other - rate)

    return min(candidates, key=distance)


def _compared(samples: Samples, control: Cell, arm: Cell) -> Control:
    strata = paired_verdicts(
        samples.answers(arm.arm, samples.tasks),
        samples.answers(control.arm, samples.tasks),
        samples.tasks,
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

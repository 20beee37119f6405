"""What a sceptic would say of a run, in plain sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from adaptivespec.eval.analysis.figures import POOLED, Cell, NoiseLine
from adaptivespec.eval.analysis.samples import SELDOM, Samples
from adaptivespec.eval.analysis.text import percent, points
from adaptivespec.eval.statistics import LEVEL

__all__ = ["warnings"]

_TOO_OFTEN = 0.05
_RESTARTS = 3
_LONGER = 1.1
_MANY = 5


def warnings(samples: Samples, cells: Sequence[Cell], noise: Sequence[NoiseLine]) -> list[str]:
    """Everything that weakens the run's claims, the gravest first."""
    tasks = [cell for cell in cells if cell.task != POOLED]
    pooled = [cell for cell in cells if cell.task == POOLED]
    lossy = [cell for cell in pooled if cell.lossless is False and cell.role != "control"]
    found = [
        *_errors(pooled),
        *_missing(samples, pooled),
        *_violations(pooled),
        *_unequal(pooled),
        *_baseline(samples, tasks),
        *_power(lossy),
        *_many(lossy),
        *_noise(lossy, noise),
        *_shares(tasks, "cut at the bound of tokens", lambda cell: cell.quality.truncated),
        *_shares(tasks, "without a final answer", lambda cell: cell.quality.unparsed),
        *_longer(lossy),
        *_restarts(pooled),
        *_repeated(samples, pooled),
        *_load(samples.settings.provenance),
    ]
    if any(cell.role == "frontier" for cell in pooled):
        found.append(
            "The frontier shows every kappa on the same items: choosing the best of them here would"
            " be choosing on the test set. adaptivespec calibrate chooses on other items."
        )
    return found


def _errors(pooled: Sequence[Cell]) -> Iterator[str]:
    for cell in pooled:
        count = cell.quality.errors + cell.speed.errors
        if count:
            yield f"{cell.arm}: {count} requests failed; they are left out of every other figure."


def _missing(samples: Samples, pooled: Sequence[Cell]) -> Iterator[str]:
    if not samples.quality:
        yield "No item was graded: the run tells of speed alone."
        return
    expected = sum(len(task.items) for task in samples.settings.tasks)
    for cell in pooled:
        missing = expected - cell.quality.answers - cell.quality.errors
        if samples.is_graded(cell.arm) and missing > 0:
            yield f"{cell.arm}: {missing} of {expected} items have no answer; the run is not whole."


def _violations(pooled: Sequence[Cell]) -> Iterator[str]:
    for cell in pooled:
        keys = cell.divergence.strict_violations
        if keys:
            yield (
                f"{cell.arm}: {len(keys)} of {cell.divergence.strict_compared} answers without a "
                f"promotion differ from {cell.divergence.strict_arm}, though none may: "
                f"{_listed(keys)}."
            )


def _unequal(pooled: Sequence[Cell]) -> Iterator[str]:
    for cell in pooled:
        identical = cell.divergence.identical
        if cell.lossless and identical is not None and identical < 1:
            yield (
                f"{cell.arm} is lossless, but {percent(1 - identical)} of its answers differ from "
                "plain decoding: rounding in passes of other sizes, or a fault. Compare with the "
                "noise floor."
            )


def _baseline(samples: Samples, tasks: Sequence[Cell]) -> Iterator[str]:
    telling = samples.telling(samples.tasks)
    for cell in tasks:
        accuracy = cell.quality.accuracy.value
        if cell.arm == samples.settings.baseline and accuracy is not None and accuracy < SELDOM:
            left_out = "" if cell.task in telling else ", and is left out of pooled accuracies"
            yield (
                f"{cell.task}: the baseline is right on {percent(accuracy)} of the items; this "
                f"task cannot show a loss{left_out}."
            )


def _power(lossy: Sequence[Cell]) -> Iterator[str]:
    weak = []
    for cell in lossy:
        value, detectable = cell.quality.difference.value, cell.quality.detectable
        unseen = (cell.quality.mcnemar_p or 0.0) > LEVEL
        if value is not None and unseen and (detectable is None or detectable > abs(value)):
            weak.append(cell)
    if not weak:
        return
    found = [cell.quality.detectable for cell in weak if cell.quality.detectable is not None]
    items = max(cell.quality.graded for cell in weak)
    finds = (
        f"and power 80 % the run finds true differences of about {points(min(found))[1:]} points "
        "or more, and saw smaller ones"
        if found
        else "the run is too small to find any difference"
    )
    yield (
        f"{_listed([cell.arm for cell in weak])}: with {items} items {finds}: no evidence that "
        "nothing is lost."
    )


def _many(lossy: Sequence[Cell]) -> Iterator[str]:
    tested = sum(cell.quality.mcnemar_p is not None for cell in lossy)
    if tested >= _MANY:
        yield (
            f"{tested} lossy arms are tested, each at 5 %: with so many, one small p-value or one "
            "lucky arm is to be expected by chance."
        )


def _noise(lossy: Sequence[Cell], noise: Sequence[NoiseLine]) -> Iterator[str]:
    if lossy and not noise:
        yield "The noise floor was not measured: small differences may be rounding."
    below = [cell.arm for cell in lossy if cell.below_noise]
    if below:
        yield (
            f"{_listed(below)}: below the noise floor; runs that should be equal differ as much."
        )


def _shares(
    tasks: Sequence[Cell], what: str, share: Callable[[Cell], float | None]
) -> Iterator[str]:
    names = dict.fromkeys(cell.task for cell in tasks)
    for name in names:
        over = [
            (cell.arm, value)
            for cell in tasks
            if cell.task == name and (value := share(cell)) is not None and value > _TOO_OFTEN
        ]
        if over:
            most = max(value for _, value in over)
            arms = _listed([arm for arm, _ in over])
            yield f"{name}: up to {percent(most)} of answers {what} ({arms})."


def _longer(lossy: Sequence[Cell]) -> Iterator[str]:
    for cell in lossy:
        ratio = cell.quality.length_ratio
        if ratio is not None and ratio > _LONGER:
            yield (
                f"{cell.arm}: answers are {ratio:.2f} times as long as the baseline's; look at "
                "time per request, not at tokens per second."
            )


def _restarts(pooled: Sequence[Cell]) -> Iterator[str]:
    restarts = [cell.speed.restarts for cell in pooled if cell.speed.prompts]
    if not restarts:
        yield "Nothing was timed: the run tells of quality alone."
    elif min(restarts) < _RESTARTS:
        yield (
            f"Times are from {min(restarts)} restarts; at least {_RESTARTS} are needed to see what "
            "a fresh process changes."
        )


def _repeated(samples: Samples, pooled: Sequence[Cell]) -> Iterator[str]:
    """Timed answers that are not the graded ones: times and accuracy are of different texts."""
    if samples.settings.temperature > 0:
        return
    for cell in pooled:
        same = cell.speed.same_text
        if same is not None and same < 1:
            yield (
                f"{cell.arm}: {percent(1 - same)} of the timed answers are not those that were "
                "graded; decoding does not repeat itself."
            )


def _load(provenance: Mapping[str, Any]) -> Iterator[str]:
    loads = list(_numbers_below(provenance, "load"))
    cores = list(_numbers_below(provenance, "cpus"))
    if loads and cores and max(loads) > max(cores) / 2:
        yield (
            f"The machine was busy with a load of {max(loads):.1f} on {max(cores):.0f} cores. "
            "Ratios suffer less than seconds, but measure again on a quiet machine."
        )


def _numbers_below(value: Any, prefix: str, inside: bool = False) -> Iterator[float]:
    """Numbers under any key that begins with ``prefix``."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers_below(item, prefix, inside or str(key).startswith(prefix))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers_below(item, prefix, inside)
    elif inside and isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _listed(names: Sequence[str], most: int = 6) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")

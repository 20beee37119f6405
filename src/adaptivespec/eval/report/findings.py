"""The headline of a report: what the run found, in sentences that carry their own doubt."""

from __future__ import annotations

from adaptivespec.eval.analysis import Cell, Summary
from adaptivespec.eval.analysis.text import interval, percent, points, times

__all__ = ["findings"]


def findings(summary: Summary) -> list[str]:
    """The quickest lossless arm and the quickest lossy one, each with what it costs.

    Arms of the frontier and controls are left out: they were not chosen beforehand.
    """
    arms = [cell for cell in summary.pooled() if cell.role == "arm"]
    found = []
    for lossless, what in ((True, "lossless"), (False, "lossy"), (None, "other")):
        timed = [
            cell
            for cell in arms
            if cell.lossless is lossless and cell.speed.speedup.value is not None
        ]
        if timed:
            best = max(timed, key=lambda cell: cell.speed.speedup.value or 0.0)
            among = f"of {len(timed)} {what} arms, the quickest is" if len(timed) > 1 else ""
            found.append(_sentence(summary, best, among or f"the only {what} arm timed is"))
    if not found:
        found = [_quality(cell) for cell in arms if cell.quality.difference.value is not None][:3]
    return found


def _sentence(summary: Summary, cell: Cell, opening: str) -> str:
    speed = cell.speed
    slower = " (slower)" if (speed.speedup.value or 0.0) < 1 else ""
    text = (
        f"{opening[0].upper()}{opening[1:]} {cell.arm}: {times(speed.speedup.value)} "
        f"{interval(speed.speedup)} the speed of {summary.settings.baseline}{slower}, by time per "
        f"request over {speed.prompts} prompts"
    )
    if cell.lossless:
        identical = cell.divergence.identical
        same = "" if identical is None else f"; {percent(identical)} of its answers are equal to it"
        return f"{text}{same}."
    return f"{text}. {_quality(cell)}"


def _quality(cell: Cell) -> str:
    quality = cell.quality
    if quality.difference.value is None:
        return f"What {cell.arm} loses was not measured."
    least = (
        "so few items can detect no difference"
        if quality.detectable is None
        else f"the run can detect {points(quality.detectable).lstrip('+')} points or more"
    )
    recovery = (
        ""
        if quality.recovery.value is None
        else f", recovery {percent(quality.recovery.value)} {interval(quality.recovery, 'percent')}"
    )
    pairs = 0 if quality.pairs is None else quality.pairs.n
    return (
        f"Accuracy of {cell.arm} against the baseline on {pairs} items: "
        f"{points(quality.difference.value)} points {interval(quality.difference, 'points')}"
        f"{recovery}; {least}."
    )

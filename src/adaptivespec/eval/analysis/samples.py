"""Rows of a run, by phase, item and arm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adaptivespec.eval.analysis.figures import POOLED
from adaptivespec.eval.rows import Row
from adaptivespec.eval.settings import ArmSettings, Settings

__all__ = ["Key", "Samples", "Timed", "good", "percentile", "ratio"]

Key = tuple[str, int]
"""Task and index of an item."""

K = TypeVar("K", Key, tuple[str, int, int])

Timed = tuple[str, int, int]
"""Task and index of an item, and the restart in which it was timed."""


SELDOM = 0.05
"""Accuracy of the baseline below which a task tells nothing of losses."""


@dataclass
class Samples:
    """Rows, found quickly.

    Attributes:
        settings: of the run.
        quality, noise: arm -> item -> row.
        speed: arm -> item and restart -> row.
    """

    settings: Settings
    quality: dict[str, dict[Key, Row]] = field(default_factory=dict)
    noise: dict[str, dict[Key, Row]] = field(default_factory=dict)
    speed: dict[str, dict[Timed, Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, rows: Iterable[Row]) -> Samples:
        """Sort rows into their phases; rows of arms and tasks that are not the run's are left."""
        samples = cls(settings)
        arms = {arm.name for arm in settings.arms}
        tasks = {task.name for task in settings.tasks}
        for row in rows:
            place = row.place
            if place.arm not in arms or place.task not in tasks:
                continue
            key = (place.task, place.index)
            if place.phase == "quality":
                samples.quality.setdefault(place.arm, {}).setdefault(key, row)
            elif place.phase == "noise":
                samples.noise.setdefault(place.arm, {}).setdefault(key, row)
            elif place.phase == "speed":
                samples.speed.setdefault(place.arm, {})[(*key, place.restart)] = row
        told = [arm.model_copy(update={"lossless": samples._promise(arm)}) for arm in settings.arms]
        samples.settings = settings.model_copy(update={"arms": told})
        return samples

    def _promise(self, arm: ArmSettings) -> bool | None:
        """Whether an arm's text is the target's own: by its rule, else by what its answers say."""
        if arm.lossless is not None:
            return arm.lossless
        rows = [*self.quality.get(arm.name, {}).values(), *self.speed.get(arm.name, {}).values()]
        said = {row.answer.lossless for row in rows if row.answer.error is None}
        if False in said:
            return False
        return True if said == {True} else None

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in order."""
        return [task.name for task in self.settings.tasks]

    def answers(self, arm: str, tasks: Sequence[str]) -> dict[Key, Row]:
        """An arm's answers, errors left out, in the order of the items.

        Of an arm that was timed and not graded, the timed answers stand in: one of each item.
        """
        found = good(self.quality.get(arm, {}))
        if arm not in self.quality:
            for (task, index, _), row in sorted(good(self.speed.get(arm, {})).items()):
                found.setdefault((task, index), row)
        return {key: found[key] for key in sorted(found) if key[0] in tasks}

    def errors(self, arm: str, tasks: Sequence[str]) -> list[Row]:
        """Requests of the quality phase that failed."""
        rows = self.quality.get(arm, {})
        return [row for key, row in sorted(rows.items()) if key[0] in tasks and row.answer.error]

    def timed(self, arm: str, tasks: Sequence[str]) -> dict[Timed, Row]:
        """An arm's timed requests, errors left out."""
        rows = good(self.speed.get(arm, {}))
        return {key: rows[key] for key in sorted(rows) if key[0] in tasks}

    def timed_errors(self, arm: str, tasks: Sequence[str]) -> int:
        """Timed requests that failed."""
        rows = self.speed.get(arm, {})
        return sum(key[0] in tasks and row.answer.error is not None for key, row in rows.items())

    def telling(self, tasks: Sequence[str]) -> list[str]:
        """Those of several tasks that can show a loss: the baseline is right often enough.

        Others can only gain, by luck, and would hide a loss among themselves. All of them where
        there is no other; one task by itself always stays.
        """
        if len(tasks) < 2:
            return list(tasks)
        found = []
        for task in tasks:
            grades = [row.grade for row in self.answers(self.settings.baseline, [task]).values()]
            verdicts = [g.correct for g in grades if g is not None and g.correct is not None]
            if verdicts and sum(verdicts) >= SELDOM * len(verdicts):
                found.append(task)
        return found or list(tasks)

    def scopes(self) -> Iterator[tuple[str, list[str]]]:
        """Each task by itself, then all of them under the name of the pooled line."""
        for task in self.tasks:
            yield task, [task]
        yield POOLED, self.tasks

    def is_graded(self, arm: str) -> bool:
        """Whether an arm answers every item, as those of the baseline's target do."""
        targets = {item.name: item.target for item in self.settings.arms}
        return targets[arm] == targets.get(self.settings.baseline)

    def lossless_arms(self) -> list[ArmSettings]:
        """Arms other than the baseline that promise the target's own text."""
        baseline = self.settings.baseline
        return [arm for arm in self.settings.arms if arm.lossless and arm.name != baseline]


def good(rows: Mapping[K, Row]) -> dict[K, Row]:
    """Those without an error."""
    return {key: row for key, row in rows.items() if row.answer.error is None}


def ratio(numerator: float, denominator: float) -> float | None:
    """Their quotient; None for nothing over nothing."""
    return numerator / denominator if denominator else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """A percentile by linear interpolation; None of nothing."""
    import numpy as np

    return float(np.percentile(values, percent)) if len(values) else None

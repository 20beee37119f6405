"""The whole analysis of a run, and the short tables that are drawn from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adaptivespec.eval.analysis.controls import controls
from adaptivespec.eval.analysis.decoding import decoding
from adaptivespec.eval.analysis.divergence import divergence
from adaptivespec.eval.analysis.figures import POOLED, Cell, Control, NoiseLine, flat
from adaptivespec.eval.analysis.noise import floor, noise_lines
from adaptivespec.eval.analysis.quality import quality
from adaptivespec.eval.analysis.samples import Samples
from adaptivespec.eval.analysis.speed import speed
from adaptivespec.eval.analysis.text import interval, number, percent, points, promise, times
from adaptivespec.eval.analysis.warnings import warnings
from adaptivespec.eval.rows import Row
from adaptivespec.eval.settings import ArmSettings, Settings

__all__ = ["Summary", "analyse"]


@dataclass(frozen=True)
class Summary:
    """Everything that a report says.

    Attributes:
        settings: of the run.
        cells: arms in order, each on every task and then pooled.
        noise, controls: see their classes.
        warnings: sentences, the gravest first.
    """

    settings: Settings
    cells: list[Cell]
    noise: list[NoiseLine]
    controls: list[Control]
    warnings: list[str]

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in order."""
        return [task.name for task in self.settings.tasks]

    def cell(self, arm: str, task: str = POOLED) -> Cell:
        """The figures of an arm on a task; KeyError for others than those of the run."""
        for cell in self.cells:
            if (cell.arm, cell.task) == (arm, task):
                return cell
        raise KeyError((arm, task))

    def pooled(self) -> list[Cell]:
        """The pooled line of every arm."""
        return [cell for cell in self.cells if cell.task == POOLED]

    def frontier(self) -> list[Cell]:
        """Pooled lines with a place between speed and accuracy: speed-up and accuracy are known."""
        return [
            cell
            for cell in self.pooled()
            if cell.arm != self.settings.baseline
            and cell.speed.speedup.value is not None
            and cell.quality.difference.value is not None
        ]

    def headline(self) -> list[dict[str, str]]:
        """A line for each arm, as text, with the same keys in each: the table of the terminal."""
        return [
            {
                "arm": cell.arm,
                "text": promise(cell.lossless),
                "speed-up": f"{times(cell.speed.speedup.value)} "
                f"{interval(cell.speed.speedup)}".strip(),
                "tau": number(cell.decoding.accept_length),
                "accuracy": percent(cell.quality.accuracy.value),
                "difference": f"{points(cell.quality.difference.value)} "
                f"{interval(cell.quality.difference, 'points')}".strip(),
                "detectable": points(cell.quality.detectable).lstrip("+"),
                "recovery": percent(cell.quality.recovery.value),
                "same answer": percent(cell.quality.agreement),
                "same text": percent(cell.divergence.identical),
                "promoted/100": number(cell.divergence.promotions_per_100),
                "cut": percent(cell.quality.truncated),
                "errors": str(cell.quality.errors + cell.speed.errors),
            }
            for cell in self.pooled()
        ]

    def paper_table(self) -> list[dict[str, str]]:
        """Rows model x task, and for each arm its speed-up, tau and recovery, as papers print."""
        table = []
        arms = [arm for arm in self.settings.arms if arm.role != "frontier"]
        for task in [*self.tasks, POOLED]:
            line = {"model": ", ".join(model_names(self.settings, arms)), "task": task}
            for arm in arms:
                cell = self.cell(arm.name, task)
                line[arm.name] = " / ".join(
                    (
                        times(cell.speed.speedup.value),
                        number(cell.decoding.accept_length),
                        percent(cell.quality.recovery.value),
                    )
                )
            table.append(line)
        return table

    def csv_rows(self) -> list[dict[str, Any]]:
        """A flat line for each arm and task, numbers bare and None where there is none."""
        return [flat(cell) for cell in self.cells]


def analyse(settings: Settings, rows: Iterable[Row]) -> Summary:
    """All figures of a run. What it lacks is None; nothing is guessed and nothing fails for it."""
    samples = Samples.of(settings, rows)
    settings = samples.settings
    noise = noise_lines(samples)
    cells = []
    for arm in settings.arms:
        for scope, tasks in samples.scopes():
            cell = _cell(samples, arm, scope, tasks)
            cells.append(_beside_noise(cell, noise))
    return Summary(
        settings=settings,
        cells=cells,
        noise=noise,
        controls=controls(samples, cells),
        warnings=warnings(samples, cells, noise),
    )


def model_names(settings: Settings, arms: Iterable[ArmSettings]) -> list[str]:
    """What the models of some arms are called, each once."""
    names = []
    for arm in arms:
        identity = settings.model.get(arm.target, {})
        told = identity if isinstance(identity, Mapping) else {"model": identity}
        name = next((told[key] for key in ("model", "name", "id") if told.get(key)), arm.target)
        if isinstance(name, Mapping):
            name = name.get("name") or name.get("id") or arm.target
        names.append(str(name))
    return list(dict.fromkeys(names))


def _cell(samples: Samples, arm: ArmSettings, scope: str, tasks: list[str]) -> Cell:
    graded = quality(samples, arm.name, tasks)
    return Cell(
        arm=arm.name,
        task=scope,
        role=arm.role,
        lossless=arm.lossless,
        quality=graded,
        divergence=divergence(samples, arm.name, tasks),
        decoding=decoding(samples, arm.name, tasks),
        speed=speed(samples, arm.name, tasks, graded.accuracy.value),
    )


def _beside_noise(cell: Cell, noise: list[NoiseLine]) -> Cell:
    """Say of a lossy arm whether its loss is within the noise; nothing where both are 0."""
    least, value = floor(noise, cell.task), cell.quality.difference.value
    if cell.lossless is not False or least is None or value is None or value == least == 0:
        return cell
    return dataclasses.replace(cell, below_noise=abs(value) <= least)

"""Two runs side by side, where their settings allow it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptivespec.eval.analysis.quality import paired_verdicts
from adaptivespec.eval.analysis.samples import Samples
from adaptivespec.eval.analysis.speed import prompt_speedups
from adaptivespec.eval.analysis.summary import analyse
from adaptivespec.eval.analysis.text import interval, number, percent, points, times
from adaptivespec.eval.errors import RunError
from adaptivespec.eval.report.writing import read_run
from adaptivespec.eval.requirements import require
from adaptivespec.eval.settings import Settings
from adaptivespec.eval.statistics import (
    NOTHING,
    Estimate,
    Pairs,
    accuracy_difference,
    exact_mcnemar,
    geometric_mean,
    minimal_detectable_difference,
)

__all__ = ["ArmPair", "Comparison", "compare"]

_MOST = 100


@dataclass(frozen=True)
class ArmPair:
    """One arm of both runs; all differences are the second run less, or over, the first.

    Attributes:
        accuracies, accept_lengths, truncated: of the first run and the second; truncated counts
            answers.
        difference: of accuracy, paired by question, bootstrap interval.
        speedups: over each run's own baseline.
        speed_ratio: of these speed-ups, paired by prompt, bootstrap interval.
        time_ratio: time of the first over time of the second; None unless the machine is the same.
    """

    arm: str
    items: int
    accuracies: tuple[float | None, float | None]
    difference: Estimate
    mcnemar_p: float | None
    detectable: float | None
    speedups: tuple[float | None, float | None]
    speed_ratio: Estimate
    time_ratio: float | None
    accept_lengths: tuple[float | None, float | None]
    truncated: tuple[int, int]


@dataclass(frozen=True)
class Comparison:
    """Two runs of equal settings.

    Attributes:
        names: of the two folders.
        arms: those that both runs have.
        only: arms of the first run alone, and of the second alone.
        same_machine: whether provenance names the same one, so that seconds may be compared.
        notes: what a reader must know, in sentences.
    """

    names: tuple[str, str]
    arms: list[ArmPair]
    only: tuple[list[str], list[str]]
    same_machine: bool
    notes: list[str]

    def table(self) -> list[dict[str, str]]:
        """A line for each shared arm, as text, with the same keys in each."""
        return [
            {
                "arm": pair.arm,
                "items": str(pair.items),
                "accuracy": _both(pair.accuracies, percent),
                "difference": f"{points(pair.difference.value)} "
                f"{interval(pair.difference, 'points')}".strip(),
                "detectable": points(pair.detectable).lstrip("+"),
                "McNemar p": number(pair.mcnemar_p, 3),
                "speed-up": _both(pair.speedups, times),
                "ratio": f"{times(pair.speed_ratio.value)} {interval(pair.speed_ratio)}".strip(),
                "time ratio": times(pair.time_ratio),
                "tau": _both(pair.accept_lengths, number),
                "cut": f"{pair.truncated[0]} and {pair.truncated[1]}",
            }
            for pair in self.arms
        ]


def compare(first: Path, second: Path) -> Comparison:
    """The arms of two runs side by side.

    Raises:
        RunError: a folder holds no run; or their settings differ in what can change an answer: it
            lists the fields with both values.
    """
    require()
    (settings_a, rows_a), (settings_b, rows_b) = read_run(first), read_run(second)
    _refuse_unlike(settings_a, settings_b, (first, second))
    a, b = Samples.of(settings_a, rows_a), Samples.of(settings_b, rows_b)
    summaries = analyse(settings_a, rows_a), analyse(settings_b, rows_b)
    names_a = [arm.name for arm in settings_a.arms]
    names_b = [arm.name for arm in settings_b.arms]
    same = _same_machine(settings_a, settings_b)
    shared = [name for name in names_a if name in names_b]
    arms = []
    for name in shared:
        ours, theirs = summaries[0].cell(name), summaries[1].cell(name)
        strata = paired_verdicts(
            b.answers(name, b.tasks), a.answers(name, a.tasks), a.telling(a.tasks)
        )
        total = sum(strata, Pairs())
        seconds = ours.speed.request_s, theirs.speed.request_s
        arms.append(
            ArmPair(
                arm=name,
                items=total.n,
                accuracies=(ours.quality.accuracy.value, theirs.quality.accuracy.value),
                difference=accuracy_difference(strata),
                mcnemar_p=exact_mcnemar(total.arm_only, total.base_only) if total.n else None,
                detectable=minimal_detectable_difference(total.n, total.discordant),
                speedups=(ours.speed.speedup.value, theirs.speed.speedup.value),
                speed_ratio=_speed_ratio(a, b, name),
                time_ratio=_ratio(seconds) if same else None,
                accept_lengths=(ours.decoding.accept_length, theirs.decoding.accept_length),
                truncated=(_cut(a, name), _cut(b, name)),
            )
        )
    only = (
        [name for name in names_a if name not in names_b],
        [name for name in names_b if name not in names_a],
    )
    notes = _notes((first.name, second.name), only, same, shared)
    return Comparison((first.name, second.name), arms, only, same, notes)


def _refuse_unlike(a: Settings, b: Settings, folders: tuple[Path, Path]) -> None:
    one, two = dict(_leaves(a.compared())), dict(_leaves(b.compared()))
    fields = [name for name in dict.fromkeys([*one, *two]) if one.get(name) != two.get(name)]
    if not fields:
        return
    listed = "; ".join(f"{name}: {_shown(one, name)} and {_shown(two, name)}" for name in fields)
    raise RunError(
        f"the runs have different settings, so their rows cannot be compared: {listed}",
        field=f"{folders[0]} and {folders[1]}",
        remedy="Run the benchmark anew with the settings of the other run",
    )


def _leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Nested settings as dotted names and values; tasks by their names, lists of values whole."""
    if isinstance(value, Mapping) and value:
        parts = [_leaves(item, f"{name}.{key}".lstrip(".")) for key, item in value.items()]
        return [leaf for part in parts for leaf in part]
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        order = [(f"{name}.order", [item.get("name") for item in value])]
        parts = [_leaves(item, f"{name}.{item.get('name', i)}") for i, item in enumerate(value)]
        return order + [leaf for part in parts for leaf in part if not leaf[0].endswith(".name")]
    return [(name, value)]


def _shown(leaves: Mapping[str, Any], name: str) -> str:
    if name not in leaves:
        return "nothing"
    text = json.dumps(leaves[name], ensure_ascii=False)
    if len(text) <= _MOST:
        return text
    value = leaves[name]
    count = f", {len(value)} in all" if isinstance(value, list) else ""
    return f"{text[:_MOST]}...{count}"


def _same_machine(a: Settings, b: Settings) -> bool:
    machines = a.provenance.get("machine"), b.provenance.get("machine")
    return machines[0] is not None and machines[0] == machines[1]


def _speed_ratio(a: Samples, b: Samples, name: str) -> Estimate:
    """How many times the speed-up of the second run is that of the first, over shared prompts."""
    if name == a.settings.baseline or name == b.settings.baseline:
        return NOTHING
    found = []
    for samples in (a, b):
        rows = samples.timed(name, samples.tasks)
        base = samples.timed(samples.settings.baseline, samples.tasks)
        found.append(prompt_speedups(rows, base))
    first, second = found
    return geometric_mean(
        [
            [second[key] / first[key] for key in first if key in second and key[0] == task]
            for task in a.tasks
        ]
    )


def _cut(samples: Samples, name: str) -> int:
    rows = samples.answers(name, samples.tasks).values()
    return sum(row.answer.finish_reason == "length" for row in rows)


def _ratio(seconds: tuple[float | None, float | None]) -> float | None:
    return seconds[0] / seconds[1] if seconds[0] and seconds[1] else None


def _both(values: Sequence[float | None], text: Any) -> str:
    return " and ".join(text(value) for value in values)


def _notes(
    names: tuple[str, str], only: tuple[list[str], list[str]], same: bool, shared: Sequence[str]
) -> list[str]:
    notes = [
        f"Differences are {names[1]} less {names[0]}, ratios {names[1]} over {names[0]}; speed-ups "
        "are over each run's own baseline.",
        "Provenance names the same machine, so times are compared too."
        if same
        else "Times are not compared: provenance does not name the same machine for both runs.",
    ]
    for name, arms in zip(names, only, strict=True):
        if arms:
            notes.append(f"Only in {name}: {', '.join(arms)}.")
    if not shared:
        notes.append("The runs share no arm.")
    return notes

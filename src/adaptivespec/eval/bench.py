"""A run from its first question to its report: resumable, several arms side by side.

tune      dev items, timed: what arms leave open (fixed trees, the rates of coins)
quality   every item once by every arm, graded; several workers, so its times do not count
noise     every item again by the baseline, the prompt read in other pieces
speed     some items in turn by every arm, timed, in a fresh process for each restart
report    statistics, tables, plots
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaptivespec.calibrate.certificate import Certificate, InForce
from adaptivespec.calibrate.identity import Weights
from adaptivespec.calibrate.rule_config import rule_from
from adaptivespec.core.progress import Progress
from adaptivespec.eval.arms import PLAIN, Arm
from adaptivespec.eval.errors import RunError, TargetError
from adaptivespec.eval.grading.sandbox import protections
from adaptivespec.eval.hosts import ServerHost
from adaptivespec.eval.provenance import load_average, provenance
from adaptivespec.eval.requirements import require
from adaptivespec.eval.rows import RowFile
from adaptivespec.eval.selection import Selected, Selection, select
from adaptivespec.eval.settings import ArmSettings, Settings
from adaptivespec.eval.stages import Entry, Stage, noise, quality, speed, warm_up
from adaptivespec.eval.targets.base import Answer
from adaptivespec.eval.tuning import is_open, settle
from adaptivespec.eval.worker import Job, Pool, TargetSpec

__all__ = ["ENGINE", "ROWS", "SETTINGS", "Bench", "Load", "run"]

SETTINGS, ROWS = "settings.json", "rows.jsonl"
ENGINE, SERVER = "engine", "server"
Notice = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """How a server is loaded: requests at once, and arrivals per second (None: no pause)."""

    concurrency: int = 1
    request_rate: float | None = None


@dataclass(frozen=True)
class Bench:
    """A run as it is asked for.

    Attributes:
        tasks: names.
        arms: of the main target; of a server those it says itself.
        target: how the main target is made; `options["threads"]` of an engine is that of timing.
        server: whether it is a server.
        certificates: files of `adaptivespec calibrate`; each is an arm as well.
        peers: others that are timed beside it, by name; one that cannot be made is left out.
        selection: which items.
        data: folder of the public tasks.
        workers: processes that answer at once where nothing is timed, of one thread each.
        restarts: processes in which speed is measured, one after the other.
        noise: whether the noise floor is measured.
    """

    tasks: Sequence[str]
    arms: Sequence[Arm]
    target: TargetSpec
    server: bool = False
    certificates: Sequence[Path] = ()
    peers: dict[str, TargetSpec] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    data: Path | None = None
    workers: int = 1
    restarts: int = 3
    temperature: float = 0.0
    noise: bool = True
    load: Load = field(default_factory=Load)


def run(bench: Bench, folder: Path, progress: Progress, notice: Notice) -> Settings:
    """Run, or go on with, a benchmark in `folder`; the report is the caller's.

    Args:
        progress: called with a StageEvent for every answer.
        notice: called with sentences that the user should read.

    Raises:
        DataError, ConfigError, TargetError: before anything is run.
        RunError: the folder holds a run of other settings.
    """
    require(tuple(bench.tasks))
    selected = [select(name, bench.selection, bench.data) for name in bench.tasks]
    folder.mkdir(parents=True, exist_ok=True)
    with RowFile(folder / ROWS) as file:
        tuning = Stage("tuning on dev items", file, progress)
        with ExitStack() as stack:
            host = stack.enter_context(_host(bench))
            peers = _peers(bench, stack, notice)
            settings = _settings(bench, selected, host, peers, notice)
            settings = _resumed(settings, folder / SETTINGS, bool(file.rows), notice)
            settings.write(folder / SETTINGS)
            if any(is_open(arm.arm()) for arm in settings.arms):
                settings = settle(settings, selected, host, file, tuning)
                settings.write(folder / SETTINGS)
        _graded(bench, settings, selected, file, progress)
        for restart in range(settings.restarts):
            _timed(bench, settings, selected, file, progress, restart)
    return settings


def _graded(
    bench: Bench, settings: Settings, selected: list[Selected], file: RowFile, progress: Progress
) -> None:
    """The stages that are not timed, with several workers."""
    arms = [arm.arm() for arm in settings.arms if arm.target in (ENGINE, SERVER)]
    graders = {task.settings.name: task.task.grade for task in selected if task.settings.graded}
    entries = {"answers": quality(selected, arms, settings)}
    if bench.noise:
        entries["noise floor"] = noise(selected, arms, settings)
    entries = {name: list(_grouped(bench, part)) for name, part in entries.items()}
    if all(entry.place in file.done for part in entries.values() for entry in part):
        return
    with _host(bench, bench.workers) as host:
        for name, part in entries.items():
            Stage(name, file, progress, graders).run(host, part)


def _timed(
    bench: Bench,
    settings: Settings,
    selected: list[Selected],
    file: RowFile,
    progress: Progress,
    restart: int,
) -> None:
    """One restart of the timed stage: new processes, warm-up, then block after block."""
    arms = [arm.arm() for arm in settings.arms]
    entries = list(_grouped(bench, speed(selected, arms, settings, restart)))
    if all(entry.place in file.done for entry in entries):
        return
    with ExitStack() as stack:
        hosts: dict[str, Any] = {bench_name(bench): stack.enter_context(_host(bench))}
        for name in {arm.target for arm in settings.arms} - hosts.keys():
            hosts[name] = stack.enter_context(Pool(bench.peers[name]))
        host = _Routed({arm.name: hosts[arm.target] for arm in settings.arms})
        for _ in host.answers(warm_up(selected, arms, settings)):
            pass
        stage = Stage(f"timing, restart {restart + 1} of {settings.restarts}", file, progress)
        stage.run(hosts[SERVER] if bench.server else host, entries)


class _Routed:
    """Each job to the host of its arm, one after the other: nothing runs beside a timed answer."""

    def __init__(self, hosts: dict[str, Any]) -> None:
        self._hosts = hosts

    def answers(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Answer]]:
        for number, job in enumerate(jobs):
            for _, answer in self._hosts[job[0].name].answers([job]):
                yield number, answer


def bench_name(bench: Bench) -> str:
    """The name of the main target."""
    return SERVER if bench.server else ENGINE


def _host(bench: Bench, workers: int | None = None) -> Any:
    """The main target: timed where `workers` is None, else so many of one thread each."""
    if bench.server:
        load = bench.load
        return ServerHost(bench.target, load.concurrency, load.request_rate, bench.selection.seed)
    if workers is None:
        return Pool(bench.target)
    options = {**bench.target.options, "threads": 1}
    return Pool(TargetSpec(bench.target.place, options), workers)


def _grouped(bench: Bench, entries: Sequence[Entry]) -> Iterable[Entry]:
    """For servers: arm after arm and task after task, since requests of one arm run together."""
    if not bench.server:
        return entries
    arms = list(dict.fromkeys(entry.place.arm for entry in entries))
    tasks = list(dict.fromkeys(entry.place.task for entry in entries))
    return sorted(entries, key=lambda e: (arms.index(e.place.arm), tasks.index(e.place.task)))


def _peers(bench: Bench, stack: ExitStack, notice: Notice) -> dict[str, Pool]:
    """The peers that can be had; of the others the reason is told."""
    found = {}
    for name, spec in bench.peers.items():
        try:
            found[name] = stack.enter_context(Pool(spec))
        except TargetError as error:
            notice(f"{name} is left out. {error}")
    return found


def _settings(
    bench: Bench, selected: list[Selected], host: Any, peers: dict[str, Pool], notice: Notice
) -> Settings:
    main = bench_name(bench)
    arms = [(arm, main) for arm in (host.arms if bench.server else bench.arms)]
    for path in bench.certificates:
        arms.append((_certified(path, host.identity, bench.temperature, notice), main))
    arms += [(arm, name) for name, pool in peers.items() for arm in pool.arms]
    baseline = arms[0][0].name if bench.server else PLAIN
    return Settings(
        tasks=[task.settings for task in selected],
        arms=[ArmSettings.of(arm, target) for arm, target in arms],
        baseline=baseline,
        seed=bench.selection.seed,
        temperature=bench.temperature,
        restarts=bench.restarts,
        model={main: dict(host.identity)},
        targets={main: host.about} | {name: pool.about for name, pool in peers.items()},
        load={
            "concurrency": bench.load.concurrency,
            "request_rate": bench.load.request_rate,
            "workers": bench.workers,
        },
        provenance=provenance()
        | {"load_average": load_average(), "sandbox": ", ".join(protections())},
    )


def _certified(path: Path, identity: Mapping[str, Any], temperature: float, notice: Notice) -> Arm:
    """The arm of a certificate: strict, and told so, where it does not hold here."""
    certificate = Certificate.read(path)
    now = InForce(
        Weights.model_validate(identity["model"]),
        None if identity["head"] is None else Weights.model_validate(identity["head"]),
        certificate.policy,
        temperature,
    )
    ruling = rule_from(certificate, now, path, warn=False)
    if ruling.warning:
        notice(ruling.warning)
    policy = ruling.policy or certificate.policy
    return Arm(f"{path.name}: {ruling.rule}/{policy}", ruling.rule, policy)


def _resumed(fresh: Settings, path: Path, begun: bool, notice: Notice) -> Settings:
    """The settings of a run that was begun, where these are the same.

    Raises:
        RunError: they are not; it names what differs.
    """
    if not path.exists():
        if begun:
            raise RunError(
                f"has {ROWS} but no {path.name}",
                field=str(path.parent),
                remedy="Give another folder",
            )
        return fresh
    old = Settings.read(path)
    differing = [
        name for name in fresh.compared() if fresh.compared()[name] != old.compared()[name]
    ]
    differing += [
        name for name in ("restarts", "baseline") if getattr(fresh, name) != getattr(old, name)
    ]
    asked = [(arm.name, arm.rule, arm.policy, arm.target) for arm in fresh.arms]
    if asked != [(arm.name, arm.rule, arm.policy, arm.target) for arm in old.arms]:
        differing.append("arms")
    if [(t.timed, t.dev) for t in fresh.tasks] != [(t.timed, t.dev) for t in old.tasks]:
        differing.append("timed or dev items")
    if differing:
        raise RunError(
            f"holds a run of other settings: {', '.join(differing)}",
            field=str(path.parent),
            remedy="Repeat its own command to go on with it, or give another --output",
        )
    notice(f"going on with the run in {path.parent}")
    return old

"""Options of `adaptivespec bench`: items, arms, the run itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from adaptivespec.cli.options import ModelOptions, option
from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.eval.arms import Arm
    from adaptivespec.eval.selection import PerTask, Selection
    from adaptivespec.eval.worker import TargetSpec

__all__ = ["ArmOptions", "ItemOptions", "RunOptions"]

ITEMS, ARMS, RUN = "Items", "Arms", "Run"
PEERS = {
    "transformers": "adaptivespec.eval.targets.transformers:TransformersTarget",
    "llama.cpp": "adaptivespec.eval.targets.llama_cpp:LlamaCppTarget",
}


@dataclass(frozen=True, kw_only=True)
class ItemOptions:
    """Which questions are asked."""

    tasks: Annotated[
        str,
        option(
            "--tasks",
            panel=ITEMS,
            help="gsm8k, math500, humaneval, mt_bench (speed alone), json, lists, capitals, "
            "functions; builtin: the last four, which need no files; paper: the first three.",
        ),
    ] = "builtin"
    data: Annotated[
        Path | None,
        option(
            "--data",
            panel=ITEMS,
            env="DATA",
            help="Folder of gsm8k_test.jsonl, math500.jsonl, HumanEval.jsonl.gz, mt_bench.jsonl. "
            "Missing: the hub; HumanEval comes with a package.",
        ),
    ] = None
    limit: Annotated[
        str | None,
        option(
            "--limit",
            "-l",
            panel=ITEMS,
            metavar="N|TASK=N,...",
            help="Items of each task, or of tasks by name: gsm8k=200,math500=100. Missing: all.",
        ),
    ] = None
    timed: Annotated[
        int | None,
        option("--timed", panel=ITEMS, help="Items of each task that are timed. Missing: 12."),
    ] = 12
    dev: Annotated[
        int,
        option(
            "--dev",
            panel=ITEMS,
            help="Items of each task set aside for tuning (static:tuned, coin:auto).",
        ),
    ] = 8
    max_tokens: Annotated[
        str | None,
        option(
            "--max-tokens",
            "-n",
            panel=ITEMS,
            metavar="N|TASK=N,...",
            help="Of an answer, for all tasks or by name. Missing: the task's own.",
        ),
    ] = None

    def task_names(self) -> list[str]:
        """The tasks by name."""
        from adaptivespec.eval.tasks import task_names

        names = task_names(self.tasks)
        if not names:
            raise ConfigError("names no task", field="tasks", remedy="Give builtin, or gsm8k, ...")
        return names

    def selection(self, seed: int) -> Selection:
        """How many items of each task."""
        from adaptivespec.eval.selection import Selection

        for name, least in (("timed", 1), ("dev", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"must be at least {least}, got {value}", field=name)
        return Selection(
            limit=self._numbers("limit"),
            timed=self.timed,
            dev=self.dev,
            max_tokens=self._numbers("max_tokens"),
            seed=seed,
        )

    def _numbers(self, field: str) -> PerTask:
        """The numbers of "50", "gsm8k=50,math500=20" or "50,gsm8k=20"."""
        from adaptivespec.eval.selection import PerTask

        general, named = None, dict[str, int]()
        for part in filter(None, (getattr(self, field) or "").split(",")):
            name, equals, number = part.rpartition("=")
            if not number.strip().isdecimal() or int(number) < 1:
                raise ConfigError(
                    f"{part!r} is no number above 0", field=field, remedy="Write 50 or gsm8k=50"
                )
            if not equals:
                general = int(number)
            elif name.strip() in self.task_names():
                named[name.strip()] = int(number)
            else:
                raise ConfigError(
                    f"{name.strip()!r} is not among the tasks of this run",
                    field=field,
                    remedy=f"They are {', '.join(self.task_names())}",
                )
        return PerTask(general, named)


@dataclass(frozen=True, kw_only=True)
class ArmOptions:
    """Which ways to decode are compared."""

    rules: Annotated[
        str | None,
        option(
            "--rules",
            panel=ARMS,
            metavar="R;R;...",
            help="Each with every one of --policies. Missing: strict; margin:0.2.",
        ),
    ] = None
    policies: Annotated[
        str | None,
        option(
            "--policies",
            panel=ARMS,
            metavar="P;P;...",
            help="static:tuned stands for the fixed tree that is quickest with the rule on items "
            "set aside. Missing: auto.",
        ),
    ] = None
    arms_: Annotated[
        str | None,
        option(
            "--arms",
            panel=ARMS,
            metavar="R/P;R/P;...",
            help="Further arms, each a rule and a policy: strict/chain:3; fly/dcs.",
        ),
    ] = None
    kappas: Annotated[
        str | None,
        option(
            "--kappas",
            panel=ARMS,
            metavar="K,K,...",
            help="A frontier: the margin rule at each kappa, with the first policy.",
        ),
    ] = None
    controls: Annotated[
        bool,
        option(
            "--controls",
            panel=ARMS,
            help="Promotion at random, as often as the margin rule; the drafter nearly alone.",
        ),
    ] = False
    rule_config: Annotated[
        list[Path],
        option(
            "--rule-config",
            panel=ARMS,
            metavar="FILE",
            help="A certificate of `adaptivespec calibrate` as an arm. Repeatable.",
        ),
    ] = field(default_factory=list)

    def arms(self) -> list[Arm]:
        """Every arm, plain decoding first."""
        from adaptivespec.eval import arms
        from adaptivespec.verify import rule_names

        names = [*rule_names(), "coin"]
        rules = arms.split_specs(self.rules or "strict; margin:0.2", "rules", names)
        chosen = arms.split_specs(self.policies or "auto", "policies", arms.policy_names())
        if self.arms_ and not (self.rules or self.policies):
            rules = []
        extra = arms.parse_arms(self.arms_) if self.arms_ else []
        if self.kappas:
            extra += arms.frontier(_kappas(self.kappas), chosen[0])
        if self.controls:
            extra += arms.controls(chosen[0])
        return arms.arms_of(rules, chosen, extra)

    def refuse_with_server(self, server: bool) -> None:
        """Raise ConfigError where a server is measured: its arms are request fields."""
        given = {
            "rules": self.rules,
            "policies": self.policies,
            "arms": self.arms_,
            "kappas": self.kappas,
            "controls": self.controls,
            "rule_config": self.rule_config,
        }
        if server and (named := [name for name, value in given.items() if value]):
            raise ConfigError(
                "is of the embedded engine, and a server is measured",
                field=named[0],
                remedy="Give what requests bring along: --server-arm 'margin={\"kappa\": 0.2}'",
            )


def _kappas(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(
            f"{text!r} is no list of numbers", field="kappas", remedy="Write 1,0.5,0.2"
        ) from None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the run goes about it."""

    restarts: Annotated[
        int,
        option("--restarts", panel=RUN, help="Fresh processes in which speed is measured."),
    ] = 3
    workers: Annotated[
        int | None,
        option(
            "--workers",
            panel=RUN,
            help="Processes of one thread that answer where nothing is timed. Missing: one per "
            "CPU, four at most.",
        ),
    ] = None
    seed: Annotated[int, option("--seed", "-s", panel=RUN, help="Of items, orders, sampling.")] = 0
    temperature: Annotated[
        float, option("--temperature", "-t", panel=RUN, help="0 is greedy decoding.")
    ] = 0.0
    no_noise: Annotated[
        bool,
        option("--no-noise", panel=RUN, help="Leave out the noise floor: plain against plain."),
    ] = False
    peers: Annotated[
        str | None,
        option(
            "--peers",
            panel=RUN,
            metavar="P,P",
            help="Time others on the same weights too: transformers, llama.cpp. What is not "
            "installed is left out, with its reason.",
        ),
    ] = None

    def __post_init__(self) -> None:
        for name in ("restarts", "workers"):
            value = getattr(self, name)
            least = 0 if name == "restarts" else 1
            if value is not None and value < least:
                raise ConfigError(f"must be at least {least}, got {value}", field=name)
        if not 0 <= self.temperature <= 2:
            raise ConfigError(f"must be in [0, 2], got {self.temperature:g}", field="temperature")

    def workers_or_default(self) -> int:
        """Processes that answer at once."""
        count = getattr(os, "sched_getaffinity", None)
        cpus = len(count(0)) if count is not None else os.cpu_count() or 1
        return self.workers or max(1, min(cpus, 4))

    def engine(self, model: ModelOptions) -> TargetSpec:
        """Our engine as a target."""
        from adaptivespec.eval.worker import TargetSpec

        return TargetSpec("adaptivespec.eval.targets.engine:EngineTarget", model.arguments())

    def peer_specs(self, model: ModelOptions) -> dict[str, TargetSpec]:
        """The peers that are asked for, by name."""
        from adaptivespec.eval.worker import TargetSpec

        names = [name.strip() for name in (self.peers or "").split(",") if name.strip()]
        for name in names:
            if name not in PEERS:
                raise ConfigError(
                    f"unknown peer {name!r}", field="peers", remedy=f"Legal: {', '.join(PEERS)}"
                )
        given = model.arguments()
        options = {name: given[name] for name in ("model", "threads", "cache_dir")}
        return {name: TargetSpec(PEERS[name], options) for name in names}

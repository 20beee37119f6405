"""`adaptivespec calibrate`: the least kappa that keeps to an accuracy budget."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from adaptivespec.cli import display
from adaptivespec.cli.calibrate_options import (
    BudgetOptions,
    LossTest,
    PromptOptions,
    RunOptions,
    parse_numbers,
    parse_share,
)
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import CommonOptions, ModelOptions
from adaptivespec.cli.tables import show_rows
from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.calibrate.fit import TestKind
    from adaptivespec.eval.calibration import Result
    from adaptivespec.eval.calibration_plan import Plan
    from adaptivespec.eval.tasks.base import Task
    from adaptivespec.eval.worker import TargetSpec

__all__ = ["EPILOG", "calibrate"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec calibrate --task builtin --max-drop 5% --output cal

adaptivespec calibrate ./my-llama --draft-model ./my-head --prompts mine.jsonl --grade number

adaptivespec calibrate --prompts mine.jsonl --loss disagreement --max-drop 2% --policy static:5,4,16

adaptivespec generate -p "Why is the sky blue?" --rule-config cal/certificate.json

A line of --prompts is {"prompt": text, "answer": JSON value}. At no loss at all, 1% with 95% takes
299 prompts, 5% takes 59. Run the same command again to go on after a stop.
"""


@guarded
@grouped
def calibrate(
    model: ModelOptions,
    prompts: PromptOptions,
    budget: BudgetOptions,
    run: RunOptions,
    common: CommonOptions,
) -> None:
    """Choose kappa to an accuracy budget.

    Answers the prompts strictly and then with one kappa after another, from high to low, and tests
    each on the pairs of answers until one may lose more than is allowed. The kappa before it keeps
    to the budget with the confidence asked for, on prompts like these. `--rule-config` serves by
    it.
    """
    from adaptivespec.eval.calibration import Calibration
    from adaptivespec.eval.calibration_report import write_report
    from adaptivespec.eval.requirements import require
    from adaptivespec.eval.worker import Pool

    plan = _plan(prompts, budget)
    require(tuple(task.name for task in plan.tasks))
    spec = _target(model, run.workers)
    plan.drawn  # noqa: B018  data that are missing are missed before a model is loaded
    with display.progress(common.quiet) as fetching:
        # Here, because workers cannot show how far a download or a compiler is.
        model.load(fetching).close()
    with Pool(spec, run.workers) as pool, display.stages(common.quiet) as progress:
        result = Calibration(plan, run.output, pool).run(progress)
    write_report(result, run.output)
    _show(result, run.output, common.quiet)


def _plan(prompts: PromptOptions, budget: BudgetOptions) -> Plan:
    from adaptivespec.calibrate.fit import Budget
    from adaptivespec.eval.calibration_plan import KAPPAS, Plan
    from adaptivespec.policy import make_policy

    if budget.policy != "auto":
        make_policy(budget.policy)
    if budget.policy == "none":
        raise ConfigError(
            "nothing is drafted, so nothing can be promoted",
            field="policy",
            remedy="Name the policy that will serve",
        )
    tasks, source = _tasks(prompts)
    return Plan(
        tasks=tasks,
        budget=Budget(
            loss=budget.loss.value,
            max_loss=parse_share(budget.max_drop, "max_drop"),
            confidence=parse_share(budget.confidence, "confidence"),
            test=None if budget.test is LossTest.auto else cast("TestKind", budget.test.value),
        ),
        kappas=KAPPAS if budget.kappas is None else parse_numbers(budget.kappas),
        base=budget.rule,
        policy=budget.policy,
        limit=prompts.limit,
        seed=prompts.seed,
        max_tokens=prompts.max_tokens,
        data=prompts.data,
        source=source,
    )


def _tasks(prompts: PromptOptions) -> tuple[list[Task], list[str]]:
    """The tasks, and the options that name them."""
    from adaptivespec.eval.prompts_task import GRADERS, prompts_task
    from adaptivespec.eval.tasks import make_task, task_names

    if (prompts.task is None) == (prompts.prompts is None):
        raise ConfigError(
            "needs exactly one of --task and --prompts",
            field="prompts",
            remedy="Try --task builtin, or --prompts FILE with prompts of your own",
        )
    if prompts.prompts is not None:
        source = ["--prompts", str(prompts.prompts)]
        source += [] if prompts.grade is None else ["--grade", prompts.grade]
        return [prompts_task(prompts.prompts, prompts.grade)], source
    if prompts.grade is not None:
        raise ConfigError(
            f"is for --prompts ({', '.join(GRADERS)}); a task has its own grader",
            field="grade",
            remedy="Leave it out",
        )
    names = task_names(prompts.task or "")
    return [make_task(name) for name in names], ["--task", ",".join(names)]


def _target(model: ModelOptions, workers: int) -> TargetSpec:
    from adaptivespec.eval.worker import TargetSpec

    if workers < 1:
        raise ConfigError(f"must be at least 1, got {workers}", field="workers")
    options = model.arguments()
    if model.threads is None and workers > 1:
        options["threads"] = max(1, (os.cpu_count() or 1) // workers)
    return TargetSpec("adaptivespec.eval.targets.engine:EngineTarget", options)


def _show(result: Result, folder: Path, quiet: bool) -> None:
    """The table and the guarantee on stdout; where the files are, on stderr."""
    from adaptivespec.eval.calibration_report import HEADER, guarantee, rows_of

    show_rows([dict(zip(HEADER, row, strict=True)) for row in rows_of(result)])
    display.write(f"\n{guarantee(result.certificate)}\n")
    if quiet:
        return
    needed, n = result.certificate.needed, result.certificate.n
    if result.certificate.lossless and needed is not None and needed > n:
        display.note(f"{needed:,} prompts certify a kappa without any loss; there were {n:,}")
    display.note(f"report: {folder / 'report.md'}", "dim")
    display.note(f"use it with --rule-config {folder / 'certificate.json'}", "dim")

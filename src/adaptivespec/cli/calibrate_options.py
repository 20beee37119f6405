"""Options of `adaptivespec calibrate`, and how shares and lists are written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from adaptivespec.cli.options import OUTPUT, option
from adaptivespec.core.errors import ConfigError

__all__ = [
    "BudgetOptions",
    "Loss",
    "LossTest",
    "PromptOptions",
    "RunOptions",
    "parse_numbers",
    "parse_share",
]

PROMPTS, BUDGET = "Prompts", "Budget"


class Loss(StrEnum):
    """Legal values of --loss."""

    harm = "harm"
    disagreement = "disagreement"
    drop = "drop"


class LossTest(StrEnum):
    """Legal values of --test."""

    auto = "auto"
    clopper_pearson = "clopper-pearson"
    betting = "betting"
    hoeffding_bentkus = "hoeffding-bentkus"


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What is asked."""

    task: Annotated[
        str | None,
        option(
            "--task",
            panel=PROMPTS,
            help="Tasks, separated by commas: builtin (needs no data), gsm8k, math500, humaneval "
            "or another of `adaptivespec bench`.",
            metavar="NAMES",
        ),
    ] = None
    prompts: Annotated[
        Path | None,
        option(
            "--prompts",
            panel=PROMPTS,
            help='Prompts of your own: lines {"prompt": ..., "answer": ...}. With answers they are '
            "graded as --grade says.",
            metavar="FILE",
        ),
    ] = None
    grade: Annotated[
        str | None,
        option(
            "--grade",
            panel=PROMPTS,
            help="How --prompts are graded: exact, contains, number, math or json.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        option("--data", panel=PROMPTS, env="DATA", help="Folder with files of public tasks."),
    ] = None
    limit: Annotated[
        int | None,
        option("--limit", panel=PROMPTS, help="Prompts in all. Missing: every one there is."),
    ] = None
    max_tokens: Annotated[
        int | None,
        option("--max-tokens", "-n", panel=PROMPTS, help="Of an answer. Missing: the task's own."),
    ] = None
    seed: Annotated[int, option("--seed", "-s", panel=PROMPTS, help="Of the draw.")] = 0


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What may be lost, and what is tested."""

    max_drop: Annotated[
        str, option("--max-drop", panel=BUDGET, help="Loss that is allowed: 1% or 0.01.")
    ] = "1%"
    confidence: Annotated[
        str, option("--confidence", panel=BUDGET, help="That it is kept to: 95% or 0.95.")
    ] = "95%"
    loss: Annotated[
        Loss,
        option(
            "--loss",
            panel=BUDGET,
            help="What counts as lost. harm: strict is right, the lossy answer wrong (bounds the "
            "drop too); disagreement: another final answer (needs no grader); drop: net accuracy.",
        ),
    ] = Loss.harm
    test: Annotated[
        LossTest,
        option(
            "--test",
            panel=BUDGET,
            help="Of a kappa. auto: clopper-pearson, which is exact, for harm and "
            "disagreement; betting for drop.",
        ),
    ] = LossTest.auto
    kappas: Annotated[
        str | None,
        option(
            "--kappas",
            panel=BUDGET,
            help="Tested in this order, from high to low. Missing: 0.9 to 0.1 and 0.05.",
            metavar="K,K,...",
        ),
    ] = None
    rule: Annotated[
        str,
        option(
            "--rule",
            "-r",
            panel=BUDGET,
            help="The margin rule whose kappa is chosen: margin, safe, or with other options, as "
            "in margin:protect_digits=true.",
        ),
    ] = "margin"
    policy: Annotated[
        str,
        option("--policy", panel=BUDGET, help="Tree policy that will serve. auto: the model's."),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where results go, and how they are made."""

    output: Annotated[
        Path,
        option("--output", "-o", panel=OUTPUT, help="Folder of certificate.json and report.md."),
    ] = Path("calibration")
    workers: Annotated[
        int, option("--workers", panel=OUTPUT, help="Processes that answer, a model in each.")
    ] = 1


def parse_share(text: str, field: str) -> float:
    """ "1%" and "0.01" -> 0.01; ConfigError for anything else."""
    number = text.strip()
    try:
        if number.endswith("%"):
            return float(number[:-1]) / 100
        return float(number)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no share", field=field, remedy="Write it like 1% or 0.01"
        ) from None


def parse_numbers(text: str) -> tuple[float, ...]:
    """ "0.9,0.7" -> (0.9, 0.7); ConfigError where a part is no number."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(
            f"{text!r} is no list of numbers", field="kappas", remedy="Write 0.9,0.7,0.5"
        ) from None

"""What is calibrated, on which prompts, drawn how."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from adaptivespec.calibrate.certificate import margin_rule
from adaptivespec.calibrate.fit import Budget
from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.arms import Arm
from adaptivespec.eval.selection import shuffled
from adaptivespec.eval.targets.base import Ask
from adaptivespec.eval.tasks.base import Item, Task

__all__ = ["KAPPAS", "Plan"]

KAPPAS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
"""What is tested unless the user says otherwise."""


@dataclass(frozen=True)
class Plan:
    """What is calibrated, and on what.

    Attributes:
        tasks: whose items are drawn together, so that the prompts are a sample of their union.
        budget: what may be lost.
        kappas: in [0, 1), from high to low.
        base: the margin rule with its options other than kappa.
        policy: as in --policy.
        limit: prompts in all; None for every item.
        seed: of the draw.
        max_tokens: of an answer; None for each task's own bound.
        data: folder with the files of public tasks.
        source: options of the command that name the prompts, for the certificate.

    Raises ConfigError: kappas out of order or bounds; a loss that needs graders where a task has
    none; a rule that is not of the margin family.
    """

    tasks: Sequence[Task]
    budget: Budget = field(default_factory=Budget)
    kappas: Sequence[float] = KAPPAS
    base: str = "margin"
    policy: str = "auto"
    limit: int | None = None
    seed: int = 0
    max_tokens: int | None = None
    data: Path | None = None
    source: Sequence[str] = ()

    def __post_init__(self) -> None:
        falling = all(a > b for a, b in zip(self.kappas, self.kappas[1:], strict=False))
        if not self.kappas or not falling or not 0 <= self.kappas[-1] <= self.kappas[0] < 1:
            raise ConfigError(
                f"must fall from below 1 to 0 at most, got {', '.join(map(str, self.kappas))}",
                field="kappas",
                remedy="Write them like 0.9,0.7,0.5,0.3,0.2",
            )
        ungraded = [task.name for task in self.tasks if not task.graded]
        if ungraded and self.budget.loss != "disagreement":
            raise ConfigError(
                f"{self.budget.loss} needs graded answers, and {ungraded[0]} has none",
                field="loss",
                remedy="Use --loss disagreement; prompts of your own are graded with --grade",
            )
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"must be at least 1, got {self.limit}", field="limit")
        margin_rule(self.base, self.kappas[0])

    def arm(self, kappa: float) -> Arm:
        """The arm of a kappa; 1 is strict."""
        rule = margin_rule(self.base, kappa)
        return Arm(f"{rule}/{self.policy}", rule, self.policy)

    @cached_property
    def drawn(self) -> list[tuple[Task, Item]]:
        """The prompts with their tasks, in a random order of tasks and items.

        Items come from the back of the order in which `adaptivespec bench` asks them with the same
        seed, so that a benchmark of some of them has others. DataError where there are none.
        """
        left: dict[str, list[Item]] = {}
        for task in self.tasks:
            left[task.name] = shuffled(task, self.seed, self.data)
        lots = [task for task in self.tasks for _ in left[task.name]]
        random.Random(self.seed).shuffle(lots)  # noqa: S311
        return [(task, left[task.name].pop()) for task in lots[: self.limit]]

    def ask(self, task: Task) -> Ask:
        """How a task's items are asked: greedily."""
        return Ask(self.max_tokens or task.max_tokens, tuple(task.stop))

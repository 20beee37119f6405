"""Calibration: strict, then kappa after kappa on the same prompts, until one is not certified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from adaptivespec.calibrate.certificate import (
    Certificate,
    Data,
    KappaTest,
    least_certified,
    margin_rule,
)
from adaptivespec.calibrate.certificate import Settings as Generation
from adaptivespec.calibrate.fit import prompts_needed
from adaptivespec.calibrate.identity import Weights
from adaptivespec.calibrate.losses import Pair, losses_of
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.progress import Progress, StageEvent, silent
from adaptivespec.eval.arms import Arm
from adaptivespec.eval.calibration_plan import Plan
from adaptivespec.eval.errors import RunError, TargetError
from adaptivespec.eval.provenance import provenance
from adaptivespec.eval.rows import Place, Row, RowFile
from adaptivespec.eval.selection import digest_of
from adaptivespec.eval.settings import ArmSettings, Settings, TaskSettings
from adaptivespec.eval.targets.base import Answer, Ask
from adaptivespec.eval.tasks.base import Item, Task

__all__ = ["ArmFigures", "Calibration", "Result", "pair_of"]

SETTINGS, ROWS, CERTIFICATE = "settings.json", "rows.jsonl", "certificate.json"
Job = tuple[Arm, Item, Ask]


class Answers(Protocol):
    """What is needed of ``worker.Pool``."""

    about: str
    identity: Mapping[str, Any]

    def answers(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Answer]]: ...


@dataclass(frozen=True)
class ArmFigures:
    """What an arm did beside its losses: tokens per verify step, promotions per 100 tokens."""

    accept_length: float | None
    promoted_per_100: float | None


@dataclass(frozen=True)
class Result:
    """A certificate, and what the arms of its run did: strict first, then every kappa tested."""

    certificate: Certificate
    figures: Mapping[float, ArmFigures]
    about: str


class Calibration:
    """One calibration in a folder: settings.json, rows.jsonl, certificate.json.

    Run again with the same settings it goes on where it was stopped.
    """

    def __init__(self, plan: Plan, folder: Path, pool: Answers) -> None:
        if not pool.identity.get("head"):
            raise ConfigError(
                "nothing drafts, so no rule promotes anything and there is nothing to calibrate",
                field="draft_model",
                remedy="Give the model's EAGLE-3 head with --draft-model",
            )
        self.plan, self.folder, self.pool = plan, folder, pool
        self.drawn = plan.drawn

    def run(self, progress: Progress = silent, argv: Sequence[str] | None = None) -> Result:
        """Answer, test, and write the certificate.

        Raises:
            RunError: the folder holds a run of other settings.
            TargetError: a request failed; what was answered is kept.
        """
        origin = provenance(argv)
        self._settle(origin)
        with RowFile(self.folder / ROWS) as rows:
            strict = self._answered(1.0, rows, progress)
            arms, tests = {1.0: strict}, list[KappaTest]()
            pairs: list[Pair] = []
            for kappa in self.plan.kappas:
                arms[kappa] = self._answered(kappa, rows, progress)
                paired = [pair_of(a, b) for a, b in zip(strict, arms[kappa], strict=True)]
                tests.append(self._test(kappa, paired))
                if not tests[-1].certified:
                    break
                pairs = paired
        certificate = self._certificate(tests, pairs, strict, origin)
        certificate.write(self.folder / CERTIFICATE)
        figures = {kappa: _figures(answered) for kappa, answered in arms.items()}
        return Result(certificate, figures, self.pool.about)

    def _answered(self, kappa: float, rows: RowFile, progress: Progress) -> list[Row]:
        """The rows of an arm, in the order of the prompts; those that are missing are asked."""
        arm = self.plan.arm(kappa)
        places = [Place("quality", 0, item.task, item.index, arm.name) for _, item in self.drawn]
        missing = [number for number, place in enumerate(places) if place not in rows.done]
        done = len(places) - len(missing)
        jobs = ((arm, item, self.plan.ask(task)) for task, item in map(self._prompt, missing))
        progress(StageEvent(arm.name, done, len(places)))
        for number, answer in self.pool.answers(jobs):
            task, item = self._prompt(missing[number])
            if answer.error is not None:
                raise TargetError(
                    f"{item.key} by {arm.name}: {answer.error}",
                    field="target",
                    remedy="Run the same command again: it goes on from here",
                )
            grade = task.grade(item, answer.text)
            rows.add(Row(places[missing[number]], 0, answer, grade))
            done += 1
            progress(StageEvent(arm.name, done, len(places)))
        by_place = {row.place: row for row in rows.rows}
        return [by_place[place] for place in places]

    def _prompt(self, number: int) -> tuple[Task, Item]:
        return self.drawn[number]

    def _test(self, kappa: float, pairs: Sequence[Pair]) -> KappaTest:
        judged = self.plan.budget.judge(losses_of(pairs, self.plan.budget.loss))
        graded = all(pair.strict_right is not None for pair in pairs)
        return KappaTest(
            kappa=kappa,
            harmed=sum(pair.harmed for pair in pairs) if graded else None,
            helped=sum(pair.helped for pair in pairs) if graded else None,
            disagreed=sum(not pair.agrees for pair in pairs),
            loss=judged.loss,
            upper=judged.upper,
            p_value=judged.p_value,
            certified=judged.certified,
        )

    def _certificate(
        self,
        tests: list[KappaTest],
        pairs: Sequence[Pair],
        strict: Sequence[Row],
        origin: dict[str, Any],
    ) -> Certificate:
        plan, budget, identity = self.plan, self.plan.budget, self.pool.identity
        kappa = least_certified([(test.kappa, test.certified) for test in tests])
        policies = {row.answer.policy for row in strict}
        if len(policies) != 1 or None in policies:
            raise TargetError(f"answered by several policies: {policies}", field="target")
        policy = str(policies.pop())
        head = identity["head"]
        return Certificate(
            loss=budget.loss,
            test=budget.kind,
            max_loss=budget.max_loss,
            confidence=budget.confidence,
            n=len(self.drawn),
            base=plan.base,
            tests=tests,
            kappa=kappa,
            rule=margin_rule(plan.base, kappa),
            interval=budget.interval(losses_of(pairs, budget.loss)) if kappa < 1 else None,
            needed=prompts_needed(budget),
            policy=policy,
            settings=Generation(
                temperature=0.0,
                max_tokens={task.name: plan.ask(task).max_tokens for task in plan.tasks},
                stop={task.name: list(task.stop) for task in plan.tasks},
            ),
            data=Data(
                name=",".join(task.name for task in plan.tasks),
                digest=digest_of(item for _, item in self.drawn),
                options=list(plan.source),
                seed=plan.seed,
            ),
            model=Weights(**identity["model"]),
            head=Weights(**head),
            backend=identity["backend"],
            precision=identity["precision"],
            provenance=origin,
        )

    def _settle(self, origin: dict[str, Any]) -> None:
        """Write the settings, or see that those in the folder are the same."""
        settings = self._settings(origin)
        path = self.folder / SETTINGS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                settings.write(path)
                return
        except OSError as error:
            raise RunError(
                f"cannot write there: {error.strerror}",
                field=str(self.folder),
                remedy="Name a folder that may be written to with --output",
            ) from error
        found = Settings.read(path)
        if found.digest != settings.digest or found.baseline != settings.baseline:
            raise RunError(
                "holds a run of other prompts, settings, model or policy",
                field=str(self.folder),
                remedy="Choose another --output, or give the options of that run to go on",
            )
        settings.write(path)  # its arms may be others

    def _settings(self, origin: dict[str, Any]) -> Settings:
        plan = self.plan
        tasks = []
        for task in plan.tasks:
            items = [item for owner, item in self.drawn if owner is task]
            tasks.append(
                TaskSettings(
                    name=task.name,
                    title=task.title,
                    graded=task.graded,
                    max_tokens=plan.ask(task).max_tokens,
                    stop=list(task.stop),
                    items=[item.index for item in items],
                    timed=[],
                    dev=[],
                    available=len(task.load(plan.data)),
                    digest=digest_of(items),
                )
            )
        arms = [plan.arm(kappa) for kappa in (1.0, *plan.kappas)]
        return Settings(
            tasks=tasks,
            arms=[ArmSettings.of(arm, "adaptivespec") for arm in arms],
            baseline=arms[0].name,
            seed=plan.seed,
            temperature=0.0,
            restarts=1,
            model={"adaptivespec": dict(self.pool.identity)},
            targets={"adaptivespec": self.pool.about},
            load={},
            provenance=origin,
        )


def pair_of(strict: Row, lossy: Row) -> Pair:
    """Two rows of one prompt as a pair.

    Final answers agree when the grader understood both and they are equal; where it understood one
    of them at most, when the whole texts are.
    """
    a, b = strict.grade, lossy.grade
    if a is not None and b is not None and a.answer and b.answer:
        agrees = a.answer == b.answer
    else:
        agrees = strict.answer.text == lossy.answer.text
    return Pair(None if a is None else a.correct, None if b is None else b.correct, agrees)


def _figures(rows: Sequence[Row]) -> ArmFigures:
    def total(name: str) -> int:
        return sum((row.answer.stats or {}).get(name, 0) for row in rows)

    steps, tokens = total("num_spec_steps"), total("num_committed_tokens")
    return ArmFigures(
        tokens / steps if steps else None,
        100 * total("num_promoted_tokens") / tokens if tokens else None,
    )

"""Runs cases one after the other; the report can be read at any time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from adaptivespec.conform.case import Case, Failed, NotApplicable, Outcome, Refused, Verdict, shown
from adaptivespec.conform.cases import CASES, GROUPS
from adaptivespec.conform.link import LinkError
from adaptivespec.conform.subject import Subject
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.progress import Progress, StageEvent, silent

__all__ = ["Report", "run", "selected"]

WAIT_S, PAUSE_S = 3.0, 0.2  # how long a server that does not answer is waited for


@dataclass
class Report:
    """The outcomes so far. `complete` is False after Ctrl-C, at the limit, or without a server."""

    url: str
    model: str
    owned_by: str = ""
    lossless: bool | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    complete: bool = False
    remark: str = ""

    def count(self, verdict: Verdict) -> int:
        """How many cases ended so."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)

    @property
    def good(self) -> bool:
        """Whether nothing failed, nor went wrong in the suite."""
        return not self.count(Verdict.failed) and not self.count(Verdict.error)

    def summary(self) -> str:
        """The counts in a line."""
        words = {
            Verdict.passed: "passed",
            Verdict.failed: "failed",
            Verdict.refused: "refused",
            Verdict.not_applicable: "not applicable",
            Verdict.error: "not asked or in error",
        }
        counts = ((self.count(verdict), word) for verdict, word in words.items())
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def selected(only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[Case]:
    """Cases by their ids or groups, in the order of the report.

    Raises:
        ConfigError: a name is neither.
    """
    known = {*GROUPS, *(case.id for case in CASES)}
    for name, given in (("only", only), ("skip", skip)):
        for word in given:
            if word not in known:
                raise ConfigError(
                    f"{word!r} is no group and no case",
                    field=name,
                    remedy=f"Groups: {', '.join(GROUPS)}; --list shows the cases",
                )
    return [
        case
        for case in CASES
        if (not only or {case.id, case.group} & {*only}) and not {case.id, case.group} & {*skip}
    ]


def run(
    subject: Subject,
    cases: Sequence[Case],
    report: Report,
    *,
    limit: float = 900.0,
    progress: Progress = silent,
) -> None:
    """Ask the cases and add their outcomes to `report`.

    Args:
        limit: seconds after which no further case is begun.
        progress: called with a StageEvent a case, its group as the stage.

    KeyboardInterrupt passes through: what was found out until then is in the report.

    Raises:
        LinkError: the server wants another key.
    """
    end = time.monotonic() + limit
    sizes = {group: sum(case.group == group for case in cases) for group in
             dict.fromkeys(case.group for case in cases)}  # fmt: skip
    done = dict.fromkeys(sizes, 0)
    for number, case in enumerate(cases):
        if time.monotonic() > end:
            report.remark = f"the limit of {limit:g} s was reached"
            _give_up(report, cases[number:])
            return
        progress(StageEvent(case.group, done[case.group], sizes[case.group]))
        outcome = ask(subject, case)
        alive = _alive(subject)
        if not alive and outcome.verdict is not Verdict.failed:
            required, came = "a server that answers afterwards", "none"
            detail = f"required: {required}; came: {came}"
            outcome = Outcome(case, Verdict.failed, detail, came=came, required=required)
        report.outcomes.append(outcome)
        done[case.group] += 1
        progress(StageEvent(case.group, done[case.group], sizes[case.group]))
        if not alive:
            report.remark = f"the server has not answered since {case.id}"
            _give_up(report, cases[number + 1 :])
            return
    report.complete = True


def ask(subject: Subject, case: Case) -> Outcome:
    """Ask one case."""
    begin = time.monotonic()

    def outcome(verdict: Verdict, detail: str = "", **more: str) -> Outcome:
        return Outcome(case, verdict, shown(detail), seconds=time.monotonic() - begin, **more)

    try:
        for need in case.needs:
            if (reason := subject.without(need)) is not None:
                return outcome(Verdict.not_applicable, reason)
        return outcome(Verdict.passed, case.ask(subject) or "")
    except NotApplicable as reason:
        return outcome(Verdict.not_applicable, str(reason))
    except Refused as refusal:
        return outcome(Verdict.refused, str(refusal))
    except Failed as failure:
        request = failure.request
        return outcome(
            Verdict.failed,
            str(failure),
            sent=request.summary() if request else "",
            curl=request.curl() if request else "",
            came=failure.came,
            required=failure.required,
        )
    except LinkError:
        raise
    except Exception as error:  # of this suite: the other cases go on
        return outcome(Verdict.error, f"in the suite: {type(error).__name__}: {error}")


def _alive(subject: Subject) -> bool:
    end = time.monotonic() + WAIT_S
    while True:
        try:
            if subject.link.get("models").status == 200:
                return True
        except Failed:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_S)


def _give_up(report: Report, cases: Sequence[Case]) -> None:
    reason = f"not asked: {report.remark}"
    report.outcomes += [Outcome(case, Verdict.error, reason) for case in cases]

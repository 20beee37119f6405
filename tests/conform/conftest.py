"""How tests of the conformance suite ask the toy server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adaptivespec.conform import Outcome, Report, run, selected
from adaptivespec.conform.link import Link
from adaptivespec.conform.subject import Subject
from fakes.conform_server import KEY, serving

TIMEOUT_S = 20.0
Outcomes = dict[str, Outcome]


@pytest.fixture
def outcomes() -> Callable[..., Outcomes]:
    """outcomes("fault", ..., only=["case"]) -> what the suite finds, by case."""

    def ask(*faults: str, only: tuple[str, ...] = (), timeout: float = TIMEOUT_S) -> Outcomes:
        with serving(*faults) as url:
            link = Link(url, KEY, timeout=timeout)
            try:
                subject = Subject(link, tie=0.0)
                report = Report(url, subject.model)
                run(subject, selected(only), report)
            finally:
                link.close()
        return {outcome.case.id: outcome for outcome in report.outcomes}

    return ask

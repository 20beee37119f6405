"""Our own server keeps every word that the suite asks it for."""

from __future__ import annotations

from contextlib import closing

import pytest

from adaptivespec.conform import Report, Verdict, run, selected
from adaptivespec.conform.link import Link
from adaptivespec.conform.subject import Subject
from fakes.serving import serving

EXACT = 1e-4  # nats: the engine computes in float32
REFUSED = {"tools", "response_format", "no_such_field", "stop", "logit_bias"}


def conformance(url: str, key: str) -> Report:
    link = Link(url, key, timeout=60)
    try:
        subject = Subject(link, tie=EXACT)
        report = Report(link.url, subject.model)
        run(subject, selected(), report)
    finally:
        link.close()
    return report


def check(report: Report, least: int) -> None:
    wrong = {
        outcome.case.id: outcome.detail
        for outcome in report.outcomes
        if outcome.verdict in (Verdict.failed, Verdict.error)
    }
    assert wrong == {}
    assert report.complete
    refused = {o.detail.partition(":")[0] for o in report.outcomes if o.verdict is Verdict.refused}
    assert refused <= REFUSED
    assert report.count(Verdict.passed) >= least


def test_with_a_model_that_counts():
    """It never ends by itself and knows no words: the cases that need those do not apply."""
    with serving(api_keys=("secret",)) as served:
        check(conformance(served.url, "secret"), least=45)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("rule", ["strict", "margin:0.2"])
def test_with_the_embedded_model(rule, model_cache):
    from adaptivespec import Engine
    from adaptivespec.serve.settings import Speculation

    def speculation(temperature: float) -> Speculation:
        return Speculation(rule)

    loaded = Engine.from_pretrained(cache_dir=model_cache, local_files_only=True)
    with closing(loaded) as engine:
        settings = {"api_keys": ("secret",), "speculation": speculation}
        with serving(engine, slots=8, queue=32, **settings) as served:
            report = conformance(served.url, "secret")
    check(report, least=55)
    verdicts = {outcome.case.id: outcome.verdict for outcome in report.outcomes}
    if rule == "strict":
        assert verdicts["speculation.own-prefix"] is Verdict.passed
        assert verdicts["speculation.argmax"] is Verdict.passed
    assert verdicts["speculation.says-lossless"] is Verdict.passed

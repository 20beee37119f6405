"""Certificates for tests: of any weights and policy, with tests that support any kappa."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptivespec.calibrate.certificate import (
    Certificate,
    Data,
    KappaTest,
    Settings,
    least_certified,
    margin_rule,
)
from adaptivespec.calibrate.fit import Budget, prompts_needed
from adaptivespec.calibrate.identity import Weights
from adaptivespec.calibrate.losses import Pair, losses_of

MODEL, HEAD = Weights(name="fake"), Weights(name="fake-head")


def pairs(n: int, harmed: int = 0, helped: int = 0) -> list[Pair]:
    """Pairs of answers, most of them right both times."""
    harm = [Pair(True, False, False)] * harmed
    help_ = [Pair(False, True, False)] * helped
    return [*harm, *help_, *[Pair(True, True, True)] * (n - harmed - helped)]


def certificate(
    harmed: Sequence[int] = (0, 0, 1),
    kappas: Sequence[float] = (0.7, 0.3, 0.1),
    *,
    n: int = 299,
    budget: Budget | None = None,
    base: str = "margin",
    **changes: Any,
) -> Certificate:
    """What a calibration finds that harms so many of `n` prompts at these kappas."""
    budget = budget or Budget()
    tests: list[KappaTest] = []
    for kappa, count in zip(kappas, harmed, strict=True):
        judged = budget.judge(losses_of(pairs(n, count), budget.loss))
        tests.append(
            KappaTest(
                kappa=kappa,
                harmed=count,
                helped=0,
                disagreed=count,
                loss=judged.loss,
                upper=judged.upper,
                p_value=judged.p_value,
                certified=judged.certified,
            )
        )
        if not judged.certified:
            break
    kappa = least_certified([(test.kappa, test.certified) for test in tests])
    fields: dict[str, Any] = {
        "loss": budget.loss,
        "test": budget.kind,
        "max_loss": budget.max_loss,
        "confidence": budget.confidence,
        "n": n,
        "base": base,
        "tests": tests,
        "kappa": kappa,
        "rule": margin_rule(base, kappa),
        "interval": (0.0, 0.01) if kappa < 1 else None,
        "needed": prompts_needed(budget),
        "policy": "dcs",
        "settings": Settings(temperature=0.0, max_tokens={"json": 64}, stop={"json": []}),
        "data": Data(name="json", digest="0" * 16, options=["--task", "json"], seed=0),
        "model": MODEL,
        "head": HEAD,
        "backend": "torch",
        "precision": "float32",
        "provenance": {"utc": "2026-11-30T00:00:00+00:00"},
    }
    return Certificate(**{**fields, **changes})

"""The report of a calibration: what is guaranteed, the table of tests, a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adaptivespec.calibrate.certificate import Certificate
from adaptivespec.calibrate.fit import Budget, prompts_needed
from adaptivespec.eval.calibration import ArmFigures, Result

__all__ = ["guarantee", "rows_of", "write_report"]

REPORT, PLOT = "report.md", "loss.svg"
HEADER = ("kappa", "harmed", "helped", "differ", "loss", "upper bound", "p", "certified",
          "tokens per step", "promoted per 100")  # fmt: skip
_WORDS = {
    "harm": "at most {} of prompts lose an answer that strict verification gets right",
    "disagreement": "at most {} of prompts get another final answer than by strict verification",
    "drop": "accuracy is at most {} (of all prompts) below that of strict verification",
}


def guarantee(certificate: Certificate) -> str:
    """What the certificate says, in one sentence."""
    limit, sure = percent(certificate.max_loss), percent(certificate.confidence)
    if certificate.lossless:
        return f"nothing below kappa 1 is certified at {limit} with {sure} confidence: stay strict"
    words = _WORDS[certificate.loss].format(limit)
    return f"at kappa {certificate.kappa:g}, with {sure} confidence, {words}"


def rows_of(result: Result) -> list[tuple[str, ...]]:
    """The table of tests as text, strict first."""
    strict = result.figures[1.0]
    rows: list[tuple[str, ...]] = [
        ("1 (strict)", "-", "-", "-", "0%", "0%", "-", "yes", *_numbers(strict))
    ]
    for test in result.certificate.tests:
        rows.append(
            (
                f"{test.kappa:g}",
                "-" if test.harmed is None else str(test.harmed),
                "-" if test.helped is None else str(test.helped),
                str(test.disagreed),
                percent(test.loss),
                percent(test.upper),
                f"{test.p_value:.2g}",
                "yes" if test.certified else "no",
                *_numbers(result.figures[test.kappa]),
            )
        )
    return rows


def write_report(result: Result, folder: Path) -> None:
    """Write report.md and loss.svg into the folder of a calibration."""
    _plot(result.certificate, folder / PLOT)
    text = "\n\n".join(_sections(result)) + "\n"
    (folder / REPORT).write_text(text, encoding="utf-8")


def percent(share: float) -> str:
    """0.0123 -> "1.23%"."""
    return f"{100 * share:.3g}%"


def _sections(result: Result) -> list[str]:
    certificate = result.certificate
    sections = [
        "# Calibration",
        f"**{_capital(guarantee(certificate))}.**",
        *_advice(certificate),
        _table(HEADER, rows_of(result)),
        f"{certificate.n} prompts ({certificate.data.name}). harmed: strict right, lossy wrong; "
        "helped: the other way round; differ: final answers that are not the same. "
        f"The loss is **{certificate.loss}**; its upper bound and p come from the "
        f"{certificate.test} test. Kappas are tested from high to low until one fails.",
        f"![Loss over kappa]({PLOT})",
        "## What this says, and what not",
        _scope(certificate),
        "## How it was found",
        _facts(result),
    ]
    return sections


def _advice(certificate: Certificate) -> list[str]:
    if certificate.lossless:
        lines = [
            f"{certificate.needed:,} prompts certify a kappa that shows no loss at all; there were "
            f"{certificate.n:,}."
            if certificate.needed is not None
            else ""
        ]
        first = certificate.tests[0]
        if 0 < first.loss < certificate.max_loss:
            budget = Budget(
                certificate.loss, certificate.max_loss, certificate.confidence, certificate.test
            )
            more = prompts_needed(budget, first.loss)
            if more is not None:
                lines.append(
                    f"At the loss seen at kappa {first.kappa:g}, {percent(first.loss)}, it takes "
                    f"about {more:,}."
                )
        return [" ".join(filter(None, lines))]
    low, high = certificate.interval or (0.0, 0.0)
    return [
        f"Rule `{certificate.rule}`, policy `{certificate.policy}`. The loss there is between "
        f"{percent(low)} and {percent(high)} (two-sided, {percent(certificate.confidence)}).",
        "```\nadaptivespec generate --rule-config certificate.json -p ...\n```",
    ]


def _scope(certificate: Certificate) -> str:
    sure, risk = percent(certificate.confidence), percent(1 - certificate.confidence)
    if certificate.lossless:
        return "Strict verification loses nothing, so there is nothing to bound."
    return "\n".join(
        [
            f"* It is a statement about the procedure: of calibrations like this one, on fresh "
            f"prompts each, at most {risk} end at a kappa whose true loss exceeds "
            f"{percent(certificate.max_loss)}. This one is right with {sure} confidence.",
            "* Budget and chosen kappa are what is guaranteed. The upper bounds in the table and "
            "the interval are of each kappa by itself, as if it alone had been tested.",
            "* It is about prompts drawn as these were. Other users, tasks, languages or lengths "
            "are other prompts.",
            "* It is about an average over prompts, not about any one answer.",
            f"* It holds for this model, this head and the policy `{certificate.policy}`, greedy "
            "decoding, these bounds on length. `--rule-config` checks the first three and the "
            "temperature, and serves strict where they differ. Precision, batch size and the "
            "prompt template are not checked.",
            f"* It is as good as the grader: what it takes for right or wrong is what is counted "
            f"({certificate.loss})."
            if certificate.loss != "disagreement"
            else "* Answers that differ need not be wrong.",
            "* Running again with other prompts until the result pleases voids it. So does "
            "testing on the same prompts that a benchmark then reports.",
        ]
    )


def _facts(result: Result) -> str:
    certificate = result.certificate
    origin = certificate.provenance
    rows = [
        ("model", str(certificate.model)),
        ("head", str(certificate.head)),
        ("policy", certificate.policy),
        ("rule tested", certificate.base),
        ("engine", result.about),
        ("prompts", f"{certificate.data.name}, digest {certificate.data.digest}, seed "
                    f"{certificate.data.seed}"),
        ("longest answer", ", ".join(f"{k} {v}" for k, v in
                                     certificate.settings.max_tokens.items())),
        ("time", str(origin.get("utc"))),
        ("commit", str(origin.get("git"))),
        ("command", f"`{origin.get('command')}`"),
        ("versions", ", ".join(f"{k} {v}" for k, v in origin.get("versions", {}).items())),
    ]  # fmt: skip
    return _table(("", ""), rows)


def _plot(certificate: Certificate, path: Path) -> None:
    """Loss and its upper bound over kappa, with the budget. SVG, the same for the same data."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    kappas = [test.kappa for test in certificate.tests]
    with rc_context({"svg.hashsalt": "adaptivespec", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        losses = [100 * test.loss for test in certificate.tests]
        uppers = [100 * test.upper for test in certificate.tests]
        axes.plot([1.0, *kappas], [0.0, *losses], "o-", label=certificate.loss)
        label = f"{percent(certificate.confidence)} upper bound"
        axes.plot(kappas, uppers, "v--", label=label)
        axes.axhline(100 * certificate.max_loss, color="black", lw=1, label="budget")
        if not certificate.lossless:
            axes.axvline(certificate.kappa, color="grey", ls=":", label="chosen kappa")
        axes.set_xlim(1.02, min(kappas) - 0.05)
        axes.set_xlabel("kappa")
        axes.set_ylabel("loss, % of prompts" if certificate.loss != "drop" else "points lost")
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _numbers(figures: ArmFigures) -> tuple[str, str]:
    return _number(figures.accept_length), _number(figures.promoted_per_100)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

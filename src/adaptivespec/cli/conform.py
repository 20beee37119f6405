"""`adaptivespec conform`: does a server with OpenAI's interface keep its word?"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptivespec.cli import display
from adaptivespec.cli.errors import INTERRUPTED, guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import OUTPUT, CommonOptions, option
from adaptivespec.cli.tables import show_json, show_rows
from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.conform import Case, Outcome, Report

__all__ = ["conform"]

SERVER, CASES = "Server", "Cases"
EPILOG = """\
[bold]Examples[/bold]

adaptivespec conform --base-url http://127.0.0.1:8000/v1

adaptivespec conform --base-url http://127.0.0.1:30000 --output conformance

adaptivespec conform --base-url http://127.0.0.1:8000 --only ending --only sampling.seeds-repeat

adaptivespec conform --list    (the cases, without a server)

[bold]Exit codes[/bold]

0 nothing failed (a refusal by name is honest), 1 something failed, 2 the server cannot be asked
"""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Which server."""

    base_url: Annotated[
        str | None,
        option(
            "--base-url",
            panel=SERVER,
            env="BASE_URL",
            help="Its address, as http://HOST:PORT/v1: ours, SGLang, vLLM, llama.cpp.",
        ),
    ] = None
    api_key: Annotated[
        str | None, option("--api-key", panel=SERVER, env="API_KEY", help="Of the server.")
    ] = None
    served_model: Annotated[
        str | None,
        option("--model", panel=SERVER, help="Its name there. Missing: the first listed."),
    ] = None
    timeout: Annotated[
        float, option("--timeout", panel=SERVER, help="Seconds that one answer may take.")
    ] = 60.0
    limit: Annotated[
        float,
        option("--limit", panel=SERVER, help="Seconds after which no further case is begun."),
    ] = 900.0


@dataclass(frozen=True, kw_only=True)
class CaseOptions:
    """Which cases, and how strictly."""

    only: Annotated[
        list[str],
        option("--only", panel=CASES, metavar="GROUP|CASE", help="These alone. Repeatable."),
    ] = field(default_factory=list)
    skip: Annotated[
        list[str],
        option("--skip", panel=CASES, metavar="GROUP|CASE", help="All but these. Repeatable."),
    ] = field(default_factory=list)
    tie: Annotated[
        float,
        option(
            "--tie",
            panel=CASES,
            metavar="NATS",
            help="Greedy answers may differ where two tokens are this near: rounding. "
            "0.1 suits bfloat16 and 8 bits; 1e-4 float32.",
        ),
    ] = 0.1
    show_list: Annotated[
        bool, option("--list", panel=CASES, help="Show the cases, and ask nothing.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Where results go."""

    output: Annotated[
        Path | None,
        option("--output", "-o", panel=OUTPUT, help="Folder of report.json, report.md, junit.xml."),
    ] = None
    as_json: Annotated[
        bool, option("--json", panel=OUTPUT, help="The report as JSON on standard output.")
    ] = False


@guarded
@grouped
def conform(
    server: ServerOptions, cases: CaseOptions, output: ReportOptions, common: CommonOptions
) -> None:
    """Check that a server with OpenAI's interface keeps its word.

    The cases are faults that were reported against real engines: answers cut in the wrong place,
    seeds that do not repeat, rows mixed up under load, counts that do not add up. They are built
    from what this server's model answers, so any model will do. A server passes a case, fails it
    (the report says what was sent, what came and what is required, with a curl line), or refuses
    the parameter by name, which is honest and counted apart.
    """
    from adaptivespec.conform import selected

    chosen = selected(cases.only, cases.skip)
    if cases.show_list:
        _show_cases(chosen, output.as_json)
        return
    if server.base_url is None:
        raise ConfigError(
            "is needed", field="base_url", remedy="Write --base-url http://HOST:PORT/v1"
        )
    report, interrupted = _run(server.base_url, server, cases, chosen, common)
    _finish(report, output, common)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if not report.good:
        raise typer.Exit(1)


def _run(
    url: str,
    server: ServerOptions,
    cases: CaseOptions,
    chosen: list[Case],
    common: CommonOptions,
) -> tuple[Report, bool]:
    """The report, and whether Ctrl-C ended it early."""
    from adaptivespec.conform import Report, run
    from adaptivespec.conform.link import Link
    from adaptivespec.conform.subject import Subject

    for name, value in (("timeout", server.timeout), ("limit", server.limit)):
        if not value > 0:
            raise ConfigError(f"must be above 0, got {value:g}", field=name)
    if not cases.tie >= 0:
        raise ConfigError(f"must be at least 0, got {cases.tie:g}", field="tie")
    link = Link(url, server.api_key, server.timeout)
    try:
        subject = Subject(link, server.served_model, cases.tie)
        entry = subject.entry
        report = Report(
            link.url, subject.model, str(entry.get("owned_by") or ""), entry.get("lossless")
        )
        try:
            with display.stages(common.quiet) as progress:
                run(subject, chosen, report, limit=server.limit, progress=progress)
        except KeyboardInterrupt:
            report.remark = "stopped by Ctrl-C"
            return report, True
        return report, False
    finally:
        link.close()


def _finish(report: Report, output: ReportOptions, common: CommonOptions) -> None:
    from adaptivespec.conform import Verdict, write_report
    from adaptivespec.conform.report import as_json

    if output.output is not None:
        write_report(report, output.output)
    if output.as_json:
        show_json(as_json(report))
    else:
        show_rows([_row(outcome) for outcome in report.outcomes])
        for outcome in report.outcomes:
            display.write(_failure(outcome))
        display.write(f"\n{report.model} at {report.url}: {report.summary()}\n")
    if common.quiet:
        return
    if report.remark:
        display.note(report.remark)
    if report.count(Verdict.not_applicable) > report.count(Verdict.passed):
        display.note("most cases could not be asked: the reasons are above")
    if output.output is not None:
        display.note(f"report: {output.output / 'report.md'}", style="dim")


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "case": outcome.case.id,
        "verdict": outcome.verdict.value,
        "seconds": f"{outcome.seconds:.1f}",
    }


def _failure(outcome: Outcome) -> str:
    from adaptivespec.conform import Verdict

    if outcome.verdict is Verdict.passed:
        return ""
    lines = ["", f"{outcome.case.id}: {outcome.verdict.value}"]
    if outcome.verdict is Verdict.failed:
        parts = {"sent": outcome.sent, "came": outcome.came, "required": outcome.required}
        lines += [f"  {name:9} {text}" for name, text in {**parts, "again": outcome.curl}.items()]
    else:
        lines.append(f"  {outcome.detail}")
    return "\n".join(lines) + "\n"


def _show_cases(chosen: list[Case], as_json: bool) -> None:
    if as_json:
        names = ("id", "title", "finds", "seen", "needs")
        show_json([{name: getattr(case, name) for name in names} for case in chosen])
        return
    width = max(len(case.id) for case in chosen)
    display.write("".join(f"{case.id:{width}}  {case.title}\n" for case in chosen))

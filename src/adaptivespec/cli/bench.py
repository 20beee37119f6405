"""`adaptivespec bench`: speed and quality of rules and policies, and reports of earlier runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from adaptivespec.cli import display
from adaptivespec.cli.bench_options import ArmOptions, ItemOptions, RunOptions
from adaptivespec.cli.bench_server import ServerOptions
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import OUTPUT, CommonOptions, ModelOptions, option
from adaptivespec.cli.tables import show_json, show_rows

if TYPE_CHECKING:
    from adaptivespec.eval.analysis import Summary

__all__ = ["app"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec bench --limit 20 --rules "strict; margin:0.2" --policies "dcs; static:tuned"

adaptivespec bench --tasks gsm8k,math500,humaneval --data DATA --kappas 1,0.7,0.5,0.3,0.2,0.1,0.05,0

adaptivespec bench --base-url http://localhost:30000 --tasks gsm8k --data DATA --concurrency 8

adaptivespec bench report FOLDER    (write the report of a run again)

adaptivespec bench compare A B    (two runs of the same questions)
"""


class _BenchGroup(TyperGroup):
    """`bench ...` is `bench run ...` unless another subcommand is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_BenchGroup,
    help="Measure speed and quality of rules and policies.",
    rich_markup_mode="rich",
)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Where results go."""

    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            panel=OUTPUT,
            help="Folder of rows, report.md, report.html, summary.csv. The same command goes on "
            "with a run that was stopped. Missing: bench-results.",
        ),
    ] = None
    as_json: Annotated[
        bool, option("--json", panel=OUTPUT, help="The summary as JSON on standard output.")
    ] = False


@app.command("run", epilog=EPILOG)
@guarded
@grouped
def run_(
    model: ModelOptions,
    items: ItemOptions,
    arms: ArmOptions,
    how: RunOptions,
    server: ServerOptions,
    output: ReportOptions,
    common: CommonOptions,
) -> None:
    """Measure speed and quality of rules and policies side by side.

    Every arm (a rule with a policy) answers the same questions, and plain decoding too. Answers are
    graded and compared pair by pair; some are timed, arm after arm in shuffled order, in several
    fresh processes. The report says what was found, how sure it is, and what it cannot show.
    """
    from adaptivespec.eval.bench import Bench, run

    selection, data = items.selection(how.seed), items.data
    tasks = items.task_names()
    bench = Bench(
        tasks=tasks,
        arms=() if server.base_url else arms.arms(),
        certificates=tuple(arms.rule_config),
        target=server.target() if server.base_url else how.engine(model),
        server=server.base_url is not None,
        peers=how.peer_specs(model),
        selection=selection,
        data=data,
        workers=how.workers_or_default(),
        restarts=how.restarts,
        temperature=how.temperature,
        noise=not how.no_noise,
        load=server.load(),
    )
    arms.refuse_with_server(bench.server)
    folder = output.output or Path("bench-results")
    if not bench.server and not common.quiet:
        _prepare(model, common)
    with display.stages(common.quiet) as progress:
        run(bench, folder, progress, _noticer(common))
    _finish(folder, output, common)


@app.command("report")
@guarded
@grouped
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The --output of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notices.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """Write the report of a run again, whole or not, from its rows."""
    _finish(folder, ReportOptions(as_json=as_json), CommonOptions(quiet=quiet, debug=debug))


@app.command("compare")
@guarded
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The --output of a run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="That of another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """Two runs of the same questions side by side; runs of other settings are refused."""
    from adaptivespec.eval.compare import compare as compared

    found = compared(a, b)
    if as_json:
        show_json(asdict(found))
        return
    show_rows(found.table())
    for note in found.notes:
        display.note(note, style="dim")


def _prepare(model: ModelOptions, common: CommonOptions) -> None:
    """Fetch and compile here what worker processes would wait for, where progress can be drawn."""
    with display.progress(common.quiet) as progress:
        model.load(progress).close()


def _noticer(common: CommonOptions) -> Any:
    return (lambda text: None) if common.quiet else display.note


def _finish(folder: Path, output: ReportOptions, common: CommonOptions) -> None:
    from adaptivespec.eval.report import write_report

    summary: Summary = write_report(folder)
    rows = summary.headline()
    if output.as_json:
        show_json({"folder": str(folder), "arms": rows, "warnings": list(summary.warnings)})
        return
    show_rows(rows)
    if not common.quiet:
        for warning in summary.warnings:
            display.note(warning)
        display.note(f"report: {folder / 'report.html'}", style="dim")

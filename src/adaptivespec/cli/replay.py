"""`adaptivespec replay`: rules and policies ranked on recorded trees, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptivespec.cli import display
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.tables import show_json, show_replay

if TYPE_CHECKING:
    from adaptivespec.replay.trace_file import Trace

__all__ = ["EPILOG", "replay"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec generate -p "Why is the sky blue?" --trace t.jsonl --record-width 4 --record-depth 8

adaptivespec replay t.jsonl --policies "static:5,4,16; dcs; chain:3"

adaptivespec profile --json cpu.json && adaptivespec replay *.jsonl --cost cpu.json

adaptivespec replay t.jsonl --rules "strict; margin:0.2" --cost "GPU:verify=[[1,18],[64,20]],\
draft=0.6,overhead=0.5"
"""


@guarded
def replay(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...", help="Files of `adaptivespec generate --trace --record-width W`."
        ),
    ],
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="P;P;...",
            help="Policies with their options, as in --policy. Missing: every one, as it comes.",
        ),
    ] = None,
    rules: Annotated[
        str,
        typer.Option("--rules", metavar="R;R;...", help="Rules with their options, as in --rule."),
    ] = "strict",
    cost: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            metavar="FILE|NUMBERS",
            help="What passes cost, for predicted time: a file of `adaptivespec profile --json`, "
            "or NAME:verify=[[1,18],[64,20]],draft=0.6,overhead=0.5 in milliseconds. Repeatable.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="For rules that draw random numbers at temperature 0.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", envvar="ADAPTIVESPEC_QUIET", help="No notices.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """Rank rules and policies on recorded trees.

    Every step is decided anew on the trees of a trace, so no model is needed. On a recording, which
    has a tree at every position, a lossless rule gives what a real run would; what is only
    approximate says so. tau: tokens per step; prom/100: promotions per 100 tokens.
    """
    from adaptivespec.policy.costs import CostProfile
    from adaptivespec.replay.ranking import default_policies, ranked, split_specs, to_json
    from adaptivespec.replay.trace_file import read_trace

    costs = [CostProfile.parse(text) for text in cost or ()]
    chosen = default_policies(costs) if policies is None else split_specs(policies, "policies")
    files = [read_trace(path) for path in traces]
    arms = ranked(files, split_specs(rules, "rules"), chosen, costs, seed)
    if not quiet:
        _notice(files, timed=bool(costs))
    if as_json:
        show_json(to_json(files, arms))
    else:
        show_replay(arms)


def _notice(traces: Sequence[Trace], timed: bool) -> None:
    """What was read, what is missing of it, and what would tell more."""
    steps = sum(len(trace.steps) for trace in traces)
    display.note(f"traces: {len(traces)}, recorded steps: {steps}", style="dim")
    for trace in traces:
        if trace.truncated:
            display.note(f"{trace.path}: the last line was cut short and is left out")
    if not timed:
        display.note("--cost FILE adds predicted time; `adaptivespec profile` measures it", "dim")

"""`adaptivespec costs`: what a verify pass and a drafter pass cost on this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from adaptivespec.cli import display, tables
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import OUTPUT, CommonOptions, ModelOptions, option

__all__ = ["EPILOG", "costs"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec costs

adaptivespec costs --full --json cpu.json

adaptivespec replay trace.jsonl --policies "static:5,4,16;dcs;priced" --cost cpu.json
"""


@dataclass(frozen=True, kw_only=True)
class CostOptions:
    """What is measured, and where it goes."""

    full: Annotated[
        bool,
        option(
            "--full",
            panel=OUTPUT,
            help="Every size at three context lengths, 20 times each: minutes in place of seconds.",
        ),
    ] = False
    fresh: Annotated[
        bool, option("--fresh", panel=OUTPUT, help="Measure again, whatever is kept.")
    ] = False
    json_file: Annotated[
        Path | None,
        option("--json", panel=OUTPUT, help="Write the profile to this file.", metavar="FILE"),
    ] = None


@guarded
@grouped
def costs(model: ModelOptions, what: CostOptions, common: CommonOptions) -> None:
    """Measure what passes cost on this machine, keep it and show it.

    Policies that weigh tokens against time (priced, sequoia) use what is kept; without it they
    measure for a few seconds when they are first used. Keep the machine quiet meanwhile.
    """
    from adaptivespec.core.errors import ConfigError

    with display.progress(common.quiet) as progress:
        engine = model.load(progress)
        profile = engine.costs(full=what.full, fresh=what.fresh, progress=progress)
    if what.json_file is not None:
        try:
            what.json_file.write_text(json.dumps(profile.to_json()) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot write {what.json_file}: {error.strerror}",
                field="json",
                remedy="Name a file in a directory that exists and may be written to",
            ) from error
    tables.show_costs(profile)
    engine.close()

"""`adaptivespec profile`: what passes cost on this machine, and what they cannot cost less than."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptivespec.cli import display, tables
from adaptivespec.cli.errors import guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import OUTPUT, CommonOptions, ModelOptions, option

if TYPE_CHECKING:
    from adaptivespec.engine import Engine
    from adaptivespec.engine.weights.progress import ProgressCallback
    from adaptivespec.policy.costs import CostProfile
    from adaptivespec.replay.arm import Arm

__all__ = ["EPILOG", "profile"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec profile --backend native

adaptivespec profile --suggest

adaptivespec profile --full --json cpu.json

adaptivespec replay trace.jsonl --policies "static:5,4,16;dcs;priced" --cost cpu.json
"""


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
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
    suggest: Annotated[
        bool,
        option(
            "--suggest",
            panel=OUTPUT,
            help="Record three short answers and say which fixed shape would be quickest on them.",
        ),
    ] = False
    prompt: Annotated[
        list[str],
        option(
            "--prompt",
            "-p",
            panel=OUTPUT,
            help="A prompt to record in place of those of --suggest. Repeatable.",
        ),
    ] = field(default_factory=list)
    json_file: Annotated[
        Path | None,
        option("--json", panel=OUTPUT, help="Write the profile to this file.", metavar="FILE"),
    ] = None


@guarded
@grouped
def profile(model: ModelOptions, what: ProfileOptions, common: CommonOptions) -> None:
    """Measure what passes cost on this machine, keep it and show it.

    Policies that weigh tokens against time (priced, sequoia) use what is kept; without it they
    measure for a few seconds when they are first used. Keep the machine quiet meanwhile. With the
    native backend the table says what this machine cannot do quicker: the floor.
    """
    from adaptivespec.engine.costs import floor

    with display.progress(common.quiet) as progress:
        engine = model.load(progress)
        costs = engine.costs(full=what.full, fresh=what.fresh, progress=progress)
        least = floor(engine.target)
        arms = _shapes(engine, costs, what, progress)
    content = costs.to_json()
    if least is not None:
        content["floor"] = least.to_json()
    if arms:
        from adaptivespec.replay.ranking import row_of

        content["shapes"] = [row_of(arm) for arm in arms]
    if what.json_file is not None:
        _write(what.json_file, content)
    tables.show_profile(costs, least)
    if arms:
        tables.show_shapes(arms)
    engine.close()


def _shapes(
    engine: Engine,
    costs: CostProfile,
    what: ProfileOptions,
    progress: ProgressCallback | None,
) -> list[Arm]:
    """The quickest fixed shapes, if they are asked for."""
    if not (what.suggest or what.prompt):
        return []
    from adaptivespec.replay.shapes import PROMPTS, fixed_shapes

    return fixed_shapes(engine, costs, what.prompt or PROMPTS, progress=progress)


def _write(path: Path, content: dict[str, Any]) -> None:
    from adaptivespec.core.errors import ConfigError

    try:
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}",
            field="json",
            remedy="Name a file in a directory that exists and may be written to",
        ) from error

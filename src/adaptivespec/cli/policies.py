"""`adaptivespec policies`: which draft policies there are."""

from __future__ import annotations

from typing import Annotated

import typer

from adaptivespec.cli.errors import guarded
from adaptivespec.cli.tables import Entry, show_entries, show_entry, show_json

__all__ = ["EPILOG", "policies"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec policies

adaptivespec policies dcs

adaptivespec generate -p "Why is the sky blue?" --policy chain:num_steps=4,min_confidence=0.4
"""


@guarded
def policies(
    name: Annotated[
        str | None, typer.Argument(help="A policy: everything about it.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """List the draft policies: which tree each drafts, its options and its paper.

    A policy never changes what is accepted, only how quickly.
    """
    from adaptivespec.policy import POLICIES

    entries = [_entry(each) for each in (POLICIES.names() if name is None else [name])]
    if as_json:
        rows = [entry.to_json() for entry in entries]
        show_json(rows if name is None else rows[0])
    elif name is None:
        show_entries("policy", entries)
    else:
        show_entry(entries[0])


def _entry(name: str) -> Entry:
    """A policy with its default options; ConfigError listing the legal names otherwise."""
    from adaptivespec.policy import POLICIES

    policy = POLICIES.create(name)
    return Entry(
        POLICIES.describe_one(name),
        traits={
            "training_free": True,
            "tree": policy.tree,
            "sampling": True,
            "lossless": True,
            "needs_costs": policy.needs_costs,
        },
    )

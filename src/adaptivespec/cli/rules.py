"""`adaptivespec rules`: which verification rules there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from adaptivespec.cli.errors import guarded
from adaptivespec.cli.tables import Entry, pairs, show_entries, show_entry, show_json

__all__ = ["EPILOG", "rules"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec rules

adaptivespec rules margin

adaptivespec generate -p "Why is the sky blue?" --rule margin:kappa=0.3,exact_between=true
"""


@guarded
def rules(
    name: Annotated[
        str | None,
        typer.Argument(help="A rule or a preset: everything about it.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """List the verification rules: what each accepts, its options and its paper.

    Lossless means that the default options leave the model's own output as it is.
    """
    from adaptivespec.verify import rule_names

    entries = [_entry(each) for each in (rule_names() if name is None else [name])]
    if as_json:
        rows = [entry.to_json() for entry in entries]
        show_json(rows if name is None else rows[0])
    elif name is None:
        show_entries("rule", entries)
    else:
        show_entry(entries[0])


def _entry(name: str) -> Entry:
    """A rule or a preset; ConfigError listing the legal names otherwise."""
    from adaptivespec.core.registry import unknown_name
    from adaptivespec.verify import PRESETS, RULES, make_rule, rule_names

    if name not in rule_names():
        raise unknown_name("rule", name, rule_names())
    rule_name = PRESETS.get(name, name)
    rule, info = RULES.load(rule_name), RULES.describe_one(rule_name)
    values = rule.presets[name] if name in PRESETS else {}
    if values:
        options = (replace(o, value=values.get(o.name, o.value)) for o in info.options)
        info = replace(
            info,
            name=name,
            formula=f"{rule_name} with {pairs(values)}",
            options=tuple(options),
        )
    return Entry(
        info,
        traits={
            "training_free": not rule.trained,
            "tree": rule.tree,
            "sampling": rule.sampling,
            "lossless": not rule.trained and make_rule(name).lossless,
        },
        preset_of=rule_name if name in PRESETS else None,
        presets={}
        if name in PRESETS
        else {each: rule.presets[each] for each, owner in PRESETS.items() if owner == name},
        notes={"reads": rule.signals},
    )

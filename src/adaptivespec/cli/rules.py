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
    """A rule or a preset, by its default options; ConfigError listing the legal names otherwise."""
    from adaptivespec.core.registry import unknown_name
    from adaptivespec.verify import PRESETS, RULES, make_rule, rule_names

    if name not in rule_names():
        raise unknown_name("rule", name, rule_names())
    rule = make_rule(name)
    info = RULES.describe_one(rule.name)
    if name in PRESETS:
        values = rule.presets[name]
        options = tuple(replace(o, value=values.get(o.name, o.value)) for o in info.options)
        formula = f"{rule.name} with {pairs(values)}"
        info = replace(info, name=name, formula=formula, options=options)
    return Entry(
        info,
        traits={
            "training_free": not rule.trained,
            "tree": rule.tree,
            "sampling": rule.sampling,
            "lossless": rule.lossless,
        },
        preset_of=PRESETS.get(name),
        presets={each: rule.presets[each] for each, owner in PRESETS.items() if owner == name},
        notes={"reads": rule.signals},
    )

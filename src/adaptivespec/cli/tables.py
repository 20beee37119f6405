"""Tables on stdout: stacked to fit a terminal, one entry a line into a pipe."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from adaptivespec.cli import display

if TYPE_CHECKING:
    from adaptivespec.core.registry import EntryInfo
    from adaptivespec.engine.weights.store import CachedModel
    from adaptivespec.native.floor import Floor
    from adaptivespec.policy.costs import CostProfile
    from adaptivespec.replay.arm import Arm

__all__ = [
    "Entry",
    "pairs",
    "show",
    "show_entries",
    "show_entry",
    "show_json",
    "show_models",
    "show_profile",
    "show_replay",
    "show_rows",
    "show_shapes",
]

TRAITS = {
    "training_free": "training-free",
    "tree": "tree",
    "sampling": "T > 0",
    "lossless": "lossless",
    "needs_costs": "needs costs",
}
_SHAPES = 5  # lines of the table of fixed shapes
_LONGEST_DEFAULT = 32  # characters of a default in the table of all entries
_WIDE = 1000  # columns of a pipe: nothing is folded
_PROSE = 100  # columns of running text at most
_GAP = 2  # blanks between columns


@dataclass(frozen=True)
class Entry:
    """A rule, a preset or a policy.

    Attributes:
        info: as its registry describes it; of a preset, with its values as defaults.
        traits: some of the keys of TRAITS, in the order of the columns.
        preset_of: the rule that it is a preset of.
        presets: of a rule, its presets and the options they set.
        notes: more facts for the detailed view.
    """

    info: EntryInfo
    traits: Mapping[str, bool]
    preset_of: str | None = None
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        info = self.info
        names = ("name", "summary", "formula", "source", "doc")
        return {
            **{name: getattr(info, name) for name in names},
            "preset_of": self.preset_of,
            **self.traits,
            **self.notes,
            "options": [
                {"name": o.name, "default": o.value, "legal": o.bounds, "help": o.help}
                for o in info.options
            ],
            "presets": {name: dict(options) for name, options in self.presets.items()},
        }


def show(*parts: RenderableType) -> None:
    """Draw on stdout, as wide as the terminal; without trailing blanks into a pipe."""
    console = _console()
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    with console.capture() as drawn:
        console.print(*parts, sep="\n")
    display.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))


def show_json(value: object) -> None:
    """A JSON value on stdout."""
    display.write(json.dumps(value, indent=2) + "\n")


def show_entries(kind: str, entries: Sequence[Entry]) -> None:
    """Every entry of a registry: its traits, formula, options and source."""
    if _console().is_terminal:
        show(_stacked(kind, entries))
    else:
        show(_flat(kind, entries))


def show_entry(entry: Entry) -> None:
    """One entry: its docstring, its traits, every option and its presets."""
    info = entry.info
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    rows = {
        "formula": info.formula,
        "source": info.source,
        **{TRAITS[name]: _yes(value) for name, value in entry.traits.items()},
        **entry.notes,
        **{f"preset {name}": pairs(options) for name, options in entry.presets.items()},
    }
    for name, value in rows.items():
        facts.add_row(name, Text(value))
    parts: list[RenderableType] = [Text(info.name, style="bold"), _prose(info.doc), "", facts]
    if info.options:
        parts += ["", _options(info)]
    show(*parts)


def show_models(models: Sequence[CachedModel], root: str) -> None:
    """The cached models, as a table on stdout; a hint on stderr when there is none."""
    if not models:
        hint = "`adaptivespec models fetch` gets the embedded one"
        display.note(f"no models in {root}; {hint}", "dim")
        return
    table = Table("name", "size", "source", "path", box=None, header_style="bold")
    for model in models:
        state = "" if model.complete else " (damaged)"
        table.add_row(
            Text(model.name + state),
            f"{model.size_bytes / 1e6:,.0f} MB",
            Text(model.source),
            Text(str(model.path)),
        )
    show(table)


def show_profile(costs: CostProfile, floor: Floor | None = None) -> None:
    """Verify passes in milliseconds, against one node and against the floor; drafter passes."""
    verify = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    verify.add_column("nodes", justify="right")
    for context, _ in costs.verify:
        verify.add_column(f"verify at context {context}", justify="right")
        if floor is not None:
            verify.add_column("floor", justify="right")
    for size in sorted({size for _, rows in costs.verify for size, _ in rows}):
        cells = []
        for context, _ in costs.verify:
            seconds, one = costs.verify_s(size, context), costs.verify_s(1, context)
            cells.append(f"{1e3 * seconds:.2f} ms  {seconds / one:.2f}x")
            if floor is not None:
                least = floor.seconds(size, context)
                cells.append(f"{1e3 * least:.2f} ms  {100 * least / seconds:.0f} %")
        verify.add_row(str(size), *cells)
    passes = "  ".join(f"{rows} rows {1e3 * s:.2f} ms" for rows, s in costs.draft)
    lines = [
        f"drafter pass: {passes}",
        f"reading the root: {1e3 * costs.overhead:.2f} ms a round",
        *([] if floor is None else _floor_lines(floor)),
    ]
    show(Text(costs.name, style="bold"), verify, *map(Text, lines))


def _floor_lines(floor: Floor) -> list[str]:
    rates, work = floor.rates, floor.work
    return [
        f"this machine: reads {rates.bytes / 1e9:.1f} GB/s, {rates.dots / 1e9:.0f} G multiply-adds"
        f"/s of bytes, {rates.floats / 1e9:.0f} G/s of floats",
        f"a pass: {work.weight_bytes / 1e6:.1f} MB of weights, {work.row_dots / 1e6:.0f} M "
        f"multiply-adds a row; {work.token_bytes / 1e3:.1f} kB a token of context",
    ]


def show_replay(arms: Sequence[Arm]) -> None:
    """Replayed rules and policies in their ranking, a table for each cost profile."""
    notes: dict[str, int] = {}
    for cost in dict.fromkeys(arm.cost for arm in arms):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("rule", "policy"):
            table.add_column(name, overflow="fold")
        timed = ("ms/token", "speed-up") if cost is not None else ()
        for name in ("tau", "nodes", "levels", "prom/100", *timed):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("exactness", no_wrap=True)
        for arm in arms:
            if arm.cost == cost:
                exactness = "exact" if arm.exactness.startswith("exact") else "approx."
                if arm.exactness != exactness:
                    exactness += f" ({notes.setdefault(arm.exactness, len(notes) + 1)})"
                table.add_row(*_replay_cells(arm), exactness)
        show(*([] if cost is None else [Text(cost.name, style="bold")]), table)
    for text, number in notes.items():
        show(Text(f"({number}) {text}"))


def show_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows of equal keys: a column for each, the first to the left, the others to the right.

    Columns that a terminal has no room for are left out from the right, and named.
    """
    names = list(rows[0]) if rows else []
    width = _console().width
    shown = len(names)
    while shown > 2 and sum(_column_width(rows, name) for name in names[:shown]) > width:
        shown -= 1
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for number, name in enumerate(names[:shown]):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(display.clean(row[name])) for name in names[:shown]))
    show(table)
    if shown < len(names):
        show(Text(f"no room for: {', '.join(names[shown:])}", style="dim"))


def _column_width(rows: Sequence[Mapping[str, str]], name: str) -> int:
    return max(cell_len(text) for text in (name, *(row[name] for row in rows))) + _GAP


def show_shapes(arms: Sequence[Arm]) -> None:
    """The quickest of fixed shapes, and how to ask for it."""
    best = arms[0]
    triple = best.policy.largest().triple
    advice = (
        "no fixed shape is quicker than plain decoding: --policy none"
        if best.policy.name == "none"
        else f"quickest fixed shape: --policy static:{','.join(map(str, triple))}, "
        f"{best.speedup or 1:.2f}x plain decoding"
    )
    tokens = best.stats.num_committed_tokens
    show("", Text(f"{advice} (predicted on {tokens} recorded tokens)", style="bold"))
    show_replay(arms[:_SHAPES])


def _replay_cells(arm: Arm) -> list[Text]:
    stats, steps = arm.stats, arm.stats.num_spec_steps
    tokens = stats.num_committed_tokens
    numbers = [
        (stats.accept_length, "{:.2f}"),
        (stats.mean_tree_nodes, "{:.1f}"),
        (arm.num_levels / steps if steps else None, "{:.1f}"),
        (100 * stats.num_promoted_tokens / tokens if tokens else None, "{:.1f}"),
    ]
    if arm.cost is not None:
        numbers += [(arm.ms_per_token, "{:.2f}"), (arm.speedup, "{:.2f}x")]
    cells = ["-" if value is None else form.format(value) for value, form in numbers]
    return [Text(cell) for cell in (arm.rule.label, arm.policy.label, *cells)]


def pairs(options: Mapping[str, Any]) -> str:
    """Options in words: "kappa=0.3, exact_between=true"."""
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in options.items())


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def _stacked(kind: str, entries: Sequence[Entry]) -> Table:
    """Two columns: the name, and below each other traits, formula, options and source."""
    columns = [TRAITS[name] for name in entries[0].traits]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), header_style="bold")
    table.add_column(kind, no_wrap=True, style="bold")
    table.add_column(Text("  ".join(columns)))
    for entry in entries:
        marks = zip(entry.traits.values(), columns, strict=True)
        lines = [
            Text("  ".join(_yes(value).ljust(len(column)) for value, column in marks)),
            Text(entry.info.formula, style="green"),
            Text(_defaults(entry), style="cyan"),
            Text(entry.info.source, style="dim"),
        ]
        table.add_row(Text(entry.info.name), Text("\n").join(line for line in lines if line))
    return table


def _flat(kind: str, entries: Sequence[Entry]) -> Table:
    """A row per entry; the ragged column is the last one."""
    columns = [TRAITS[name] for name in entries[0].traits]
    table = Table(kind, *columns, "formula", "source", "options", box=None, pad_edge=False)
    for entry in entries:
        marks = (_yes(value) for value in entry.traits.values())
        texts = (entry.info.formula, entry.info.source, _defaults(entry))
        table.add_row(entry.info.name, *marks, *(Text(text) for text in texts))
    return table


def _options(info: EntryInfo) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("option", no_wrap=True)
    for name in ("default", "legal", "meaning"):
        table.add_column(name)
    for option in info.options:
        texts = (option.name, option.default, option.bounds, option.help)
        table.add_row(*(Text(text) for text in texts))
    return table


def _defaults(entry: Entry) -> str:
    if entry.preset_of is not None:
        return ""
    return ", ".join(f"{o.name}={_short(o.default)}" for o in entry.info.options)


def _short(text: str) -> str:
    """A default as one word, cut when it is long."""
    word = text.replace(", ", ",")
    return word if len(word) <= _LONGEST_DEFAULT else f"{word[:_LONGEST_DEFAULT]}..."


def _prose(doc: str) -> Text:
    """A docstring filled to the width: paragraphs and list items; indented blocks stay."""
    width = min(_console().width, _PROSE)
    blocks = []
    for block in doc.replace("``", "`").split("\n\n"):
        if block.startswith(" "):
            blocks.append(block)
            continue
        items = re.split(r"\n(?=[*-] )", block)
        indents = ["  " if item.startswith(("* ", "- ")) else "" for item in items]
        blocks.append(
            "\n".join(
                textwrap.fill(" ".join(item.split()), width, subsequent_indent=indent)
                for item, indent in zip(items, indents, strict=True)
            )
        )
    return Text("\n\n".join(blocks))


def _yes(value: bool) -> str:
    return "yes" if value else "no"

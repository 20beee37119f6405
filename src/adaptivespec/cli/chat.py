"""`adaptivespec chat`: a conversation on the terminal, or one turn per line of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from adaptivespec.cli import display
from adaptivespec.cli.conversation import COMMANDS, Conversation
from adaptivespec.cli.decoding import SamplingOptions, SpeculationOptions
from adaptivespec.cli.errors import USER_ERROR, guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import CommonOptions, ModelOptions, option

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

__all__ = ["EPILOG", "chat"]

EPILOG = """\
[bold]Examples[/bold]

adaptivespec chat --rule margin --kappa 0.3

adaptivespec chat ./my-llama --draft-model ./my-head --system "Answer in French."

printf 'Hello!\\nSay it in Spanish.\\n' | adaptivespec chat --quiet

[bold]While chatting[/bold]

/help lists the commands: /reset /rule /policy /kappa /system /stats /exit. Ctrl-C stops an answer.
"""


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """What is particular to a conversation."""

    system: Annotated[
        str | None, option("--system", panel="Prompt", env="SYSTEM", help="The system message.")
    ] = None


@guarded
@grouped
def chat(
    model: ModelOptions,
    chat: ChatOptions,
    speculation: SpeculationOptions,
    sampling: SamplingOptions,
    common: CommonOptions,
) -> None:
    """Hold a conversation.

    On a terminal the line has a history; with standard input from a pipe, every line is a turn.
    """
    sampling.check()
    speculation.check_policy()
    speculation.make_rule()
    with display.progress(common.quiet) as progress:
        engine = model.load(progress)
        conversation = Conversation(
            engine, speculation, sampling, system=chat.system, quiet=common.quiet
        )
        engine.prepare(*conversation.speculation.policy_choice(), progress)
    conversation.disclose()
    for line in _terminal_lines(common.quiet) if sys.stdin.isatty() else _piped_lines():
        if not conversation.take(line):
            break
    engine.close()
    if conversation.failed and not sys.stdin.isatty():
        raise typer.Exit(USER_ERROR)


def _piped_lines() -> Iterator[str]:
    for line in sys.stdin:
        yield line.rstrip("\n")


def _terminal_lines(quiet: bool) -> Iterator[str]:
    """Lines typed at the prompt, until Ctrl-D."""
    session = _session()
    if not quiet:
        display.note("/help lists the commands; Ctrl-D ends", style="dim")
    while True:
        try:
            yield session.prompt("> ")
        except KeyboardInterrupt:
            display.note("Use /exit or Ctrl-D to end", style="dim")
        except EOFError:
            return


def _session() -> PromptSession[str]:
    """A line editor whose history lasts over sessions, where the user's state may be written."""
    from platformdirs import user_state_path
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.output import create_output

    history: History
    try:
        directory = user_state_path("adaptivespec")
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "chat_history"
        file.touch(mode=0o600)
        history = FileHistory(str(file))
    except OSError:
        history = InMemoryHistory()
    return PromptSession(
        history=history,
        completer=WordCompleter([f"/{name}" for name in COMMANDS], sentence=True),
        complete_while_typing=False,
        output=create_output(stdout=sys.stderr if not sys.stdout.isatty() else sys.stdout),
    )

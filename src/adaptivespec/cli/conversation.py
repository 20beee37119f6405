"""The state of a chat: its messages, its rule and policy, and the commands that change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from adaptivespec.cli import display
from adaptivespec.cli.errors import report
from adaptivespec.cli.play import play
from adaptivespec.core.errors import AdaptiveSpecError, ConfigError

if TYPE_CHECKING:
    from adaptivespec.cli.decoding import SamplingOptions, SpeculationOptions
    from adaptivespec.cli.play import Played
    from adaptivespec.engine import Engine

__all__ = ["COMMANDS", "Conversation"]

COMMANDS = {
    "help": "list these commands",
    "reset": "forget the conversation",
    "rule": "NAME: verify with this rule or preset from now on, as in /rule margin:0.2",
    "policy": "NAME: shape drafts with this policy from now on, as in /policy static:5,4,8",
    "kappa": "X: set the threshold of the margin rule",
    "system": "TEXT: set the system message (nothing: remove it)",
    "stats": "statistics of the last answer",
    "exit": "end (Ctrl-D does, too)",
}


class Conversation:
    """A chat with one engine. `take` handles one line: a command or a turn.

    ``asked`` is what the user asked for; ``speculation`` what it means for this engine, where a
    certificate may be of another.

    An error leaves the conversation as it was before the line, and sets ``failed``.
    """

    def __init__(
        self,
        engine: Engine,
        speculation: SpeculationOptions,
        sampling: SamplingOptions,
        *,
        system: str | None = None,
        quiet: bool = False,
    ) -> None:
        self.engine = engine
        self.asked = speculation
        self.sampling = sampling
        self.speculation = speculation.settled(engine, sampling.temperature)
        self.system = system
        self.quiet = quiet
        self.turns: list[dict[str, str]] = []
        self.last: Played | None = None
        self.session = engine.session()
        self.failed = False

    def take(self, line: str) -> bool:
        """Handle a line; False when it ends the conversation."""
        line = line.strip()
        if line in ("/exit", "/quit"):
            return False
        try:
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._turn(line)
        except AdaptiveSpecError as error:
            self.failed = True
            report(error)
        return True

    def disclose(self) -> None:
        """Say when the rule is a lossy one."""
        if not self.quiet and not self.speculation.make_rule().lossless:
            display.disclose(self.speculation.rule_name)

    def _turn(self, question: str) -> None:
        user = {"role": "user", "content": question}
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        with display.reading(self.quiet) as reading:
            stream = self.engine.chat_stream(
                [*system, *self.turns, user],
                **self.speculation.arguments(),
                **self.sampling.arguments(),
                session=self.session,
                progress=reading,
            )
            played = play(stream, lambda part, tokens: display.write(part))
        if played.interrupted:  # perhaps in the midst of a step
            self.session = self.engine.session()
        self.last = played
        text = played.result.text
        if text:
            self.turns += [user, {"role": "assistant", "content": text}]
            display.write("" if text.endswith("\n") else "\n")
        if not self.quiet:
            display.show_summary(played)

    def _command(self, line: str) -> None:
        name, _, argument = line[1:].partition(" ")
        handlers: dict[str, Callable[[str], None]] = {
            "help": self._help,
            "reset": self._reset,
            "rule": self._set_rule,
            "policy": self._set_policy,
            "kappa": self._set_kappa,
            "system": self._set_system,
            "stats": self._stats,
        }
        if name not in handlers:
            raise ConfigError(
                f"unknown command /{name}",
                field="chat",
                remedy=f"Legal ones: {' '.join(f'/{known}' for known in COMMANDS)}",
            )
        handlers[name](argument.strip())

    def _help(self, argument: str) -> None:
        for name, text in COMMANDS.items():
            display.note(f"/{name:<7} {text}", style="default")

    def _reset(self, argument: str) -> None:
        self.turns.clear()
        self._say("the conversation is empty")

    def _set_rule(self, argument: str) -> None:
        own = replace(self.asked, rule=argument, rule_option=[], kappa=None, rule_config=None)
        self._adopt(own, argument)

    def _set_kappa(self, argument: str) -> None:
        try:
            kappa = float(argument)
        except ValueError:
            raise ConfigError(
                f"{argument!r} is not a number", field="kappa", remedy="Write it like /kappa 0.2"
            ) from None
        self._adopt(replace(self.asked, kappa=kappa), argument)

    def _set_policy(self, argument: str) -> None:
        self._adopt(self.asked.with_policy(argument), argument)

    def _adopt(self, changed: SpeculationOptions, argument: str) -> None:
        """Use other options from now on, if they are sound."""
        if not argument:
            current = self.speculation
            kappa = "" if current.kappa is None else f", kappa {current.kappa:g}"
            self._say(f"rule {current.rule_name}{kappa}, policy {current.policy_choice()[0]}")
            return
        changed.make_rule()
        changed.check_policy()
        settled = changed.settled(self.engine, self.sampling.temperature)
        self.asked, self.speculation = changed, settled
        kappa = "" if settled.kappa is None else f", kappa {settled.kappa:g}"
        lossless = "yes" if settled.make_rule().lossless else "no"
        policy = settled.policy_choice()[0]
        self._say(f"rule {settled.rule_name}{kappa}, policy {policy}, lossless: {lossless}")

    def _set_system(self, argument: str) -> None:
        self.system = argument or None
        self._say("the system message is " + ("set" if argument else "removed"))

    def _stats(self, argument: str) -> None:
        if self.last is None:
            self._say("no answer yet")
        else:
            display.show_statistics(self.last)

    def _say(self, text: str) -> None:
        if not self.quiet:
            display.note(text, style="dim")

"""All drawing on the terminal. Answers go to stdout; everything else goes to stderr.

The text of a model may hold escape sequences; they are taken out before a terminal sees them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from adaptivespec.cli.play import Played
    from adaptivespec.core.progress import StageEvent
    from adaptivespec.engine import TokenInfo
    from adaptivespec.engine.weights.progress import ProgressEvent

__all__ = [
    "KindPainter",
    "clean",
    "disclose",
    "error",
    "note",
    "progress",
    "reading",
    "show_statistics",
    "show_summary",
    "show_tokens",
    "write",
]

KIND_STYLES = {"exact": "green", "promoted": "bold yellow", "bonus": "cyan"}
_UNSAFE = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_LONG_PROMPT = 512  # tokens; shorter ones are read at once
_WIDE = 1000  # columns where no terminal sets a limit, so that tables are not folded in files


def _stderr() -> Console:
    return _console(stderr=True)


def _console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def error(message: str) -> None:
    """One red line on stderr."""
    _stderr().print(Text.assemble(("error: ", "bold red"), (clean(message), "red")))


def note(message: str, style: str = "yellow") -> None:
    """One line on stderr that the user should know of."""
    _stderr().print(Text(clean(message), style=style))


def disclose(rule: str) -> None:
    """Say that the rule in use is a lossy one."""
    note(f"rule {rule} is lossy: it may accept tokens that are not the model's own choice")


def clean(text: str) -> str:
    """The text without control characters other than line break and tabulator."""
    return text.translate(_UNSAFE)


def write(text: str) -> None:
    """Text to stdout, at once; as it is into a pipe, cleaned on a terminal."""
    if sys.stdout.isatty():
        text = clean(text)
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a locale that is not UTF-8
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


class KindPainter:
    """Writes text to stdout coloured by how each token came about: exact, promoted or bonus.

    Text may come later than its tokens (a character split over two of them, a stop string not yet
    decided), so tokens wait until their text is written.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []  # (text not yet written, kind)
        self._console = _console()

    def write(self, text: str, tokens: Sequence[TokenInfo] = ()) -> None:
        """Write text that belongs to these tokens or to ones given before."""
        self._waiting += [(token.text, _kind(token)) for token in tokens]
        for part, kind in self._split(text):
            self._console.print(Text(clean(part), style=KIND_STYLES.get(kind, "")), end="")

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        kind = ""
        while text and self._waiting:
            token, kind = self._waiting.pop(0)
            shared = _common_prefix(token, text)
            if shared:
                yield text[:shared], kind
                text = text[shared:]
            rest = token[shared:]
            if rest and not text and not rest.startswith("\N{REPLACEMENT CHARACTER}"):
                self._waiting.insert(0, (rest, kind))
        if text:
            yield text, kind


def _common_prefix(left: str, right: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[ProgressEvent], None] | None]:
    """A callback that draws progress: bars on a terminal, a line per stage elsewhere."""
    if quiet:
        yield None
        return
    console = _stderr()
    seen: dict[str, Any] = {}
    if not console.is_terminal:

        def announce(event: ProgressEvent) -> None:
            if event.stage not in seen:
                seen[event.stage] = True
                console.print(f"{event.stage} ...")

        yield announce
        return

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.fields[of]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:

        def draw(event: ProgressEvent) -> None:
            if event.stage not in seen:
                seen[event.stage] = bars.add_task(event.stage, total=event.total, of="")
            total = None if event.stage == "waiting" else event.total
            bars.update(seen[event.stage], completed=event.done, total=total, of=_amount(event))

        yield draw


@contextmanager
def reading(quiet: bool = False) -> Iterator[Callable[[ProgressEvent], None] | None]:
    """A callback that draws a bar on a terminal while a long prompt is read."""
    if quiet or not _stderr().is_terminal:
        yield None
        return
    with ExitStack() as stack:
        bars: list[Any] = []

        def draw(event: ProgressEvent) -> None:
            if not bars and (event.total or 0) >= _LONG_PROMPT:
                bars.append(stack.enter_context(progress()))
            for bar in bars:
                bar(event)
            if event.done == event.total:
                stack.close()  # the answer follows

        yield draw


def _amount(event: ProgressEvent) -> str:
    """How far a stage is: passes, files, answers, seconds or bytes."""
    if event.stage.startswith(("measuring", "compiling", "recording", "reading")):
        return f"{event.done}/{event.total}"
    if event.stage == "waiting":
        return f"{event.done} s"
    of = "" if event.total is None else f"/{event.total / 1e6:.1f}"
    return f"{event.done / 1e6:.1f}{of} MB"


def show_statistics(played: Played) -> None:
    """What a generation cost and gained, as a small table on stderr."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    for name, *parts in statistics_rows(played):
        table.add_row(name, " · ".join(part for part in parts if part))
    console = _stderr()
    console.print()
    console.print(table)


def show_summary(played: Played) -> None:
    """The same in one line, for a conversation."""
    rows = {row[0]: row[1:] for row in statistics_rows(played)}
    parts = [rows["answer"][0], rows["answer"][1], rows["accept length"][0], rows["rule"][1]]
    note(" · ".join(part for part in parts if part), style="dim")


def statistics_rows(played: Played) -> list[list[str]]:
    """Rows of the table: a name and its parts."""
    result, first = played.result, played.first_token_s
    numbers, seconds = result.statistics, result.timings
    tokens = int(result.usage["completion_tokens"])
    steps = int(numbers["num_spec_steps"] or 0)
    decoding = seconds["total_s"] - seconds["prefill_s"]
    promoted = int(numbers["num_promoted_tokens"] or 0)
    rows = [
        [
            "answer",
            f"{tokens} token{'' if tokens == 1 else 's'} in {seconds['total_s']:.2f} s",
            f"{tokens / decoding:.1f} tokens/s" if decoding > 0 and tokens else "",
            f"first after {first:.2f} s" if first is not None else "",
            f"ended: {result.finish_reason}",
        ],
        [
            "accept length",
            f"{numbers['accept_length']:.2f} tokens per step" if numbers["accept_length"] else "-",
            f"{steps} step{'' if steps == 1 else 's'}",
        ],
    ]
    if steps:
        rows.append(["per step", *_per_step(numbers, played.num_drafted, steps)])
        phases = {name: seconds[f"{name}_s"] for name in ("draft", "verify", "host")}
        whole = sum(phases.values()) or 1.0
        rows.append(
            [
                "time per step",
                *(
                    f"{name} {1000 * value / steps:.1f} ms ({100 * value / whole:.0f} %)"
                    for name, value in phases.items()
                ),
            ]
        )
    rows.append(["rule", str(result.rule), _disclosure(result.lossless, promoted, tokens, numbers)])
    rows.append(["policy", str(result.policy)])
    return rows


def _per_step(numbers: Mapping[str, Any], drafted: int, steps: int) -> list[str]:
    counts = {
        "drafted": drafted,
        "verified": numbers["num_draft_tokens"],
        "accepted": numbers["num_accepted_draft_tokens"],
        "promoted": numbers["num_promoted_tokens"],
    }
    return [f"{count / steps:.2f} {word}" for word, count in counts.items()]


def _disclosure(lossless: bool, promoted: int, tokens: int, numbers: Mapping[str, Any]) -> str:
    if lossless:
        return "lossless: yes"
    rate = f" ({100 * promoted / tokens:.1f} per 100)" if tokens else ""
    regret = numbers["regret_nats"] or 0.0
    return f"lossless: no, {promoted} tokens promoted{rate}, {regret:.2f} nats of regret"


def show_tokens(tokens: Sequence[TokenInfo]) -> None:
    """Every token with its log probability, kind and margin, as a table on stderr."""
    table = Table("token", "id", "kind", "margin", "logprob", box=None, header_style="dim")
    for token in tokens:
        kind = _kind(token)
        table.add_row(
            Text(repr(token.text)),
            str(token.token_id),
            Text(kind, style=KIND_STYLES.get(kind, "")),
            f"{token.margin:.3f}",
            "-" if token.logprob is None else f"{token.logprob:.3f}",
        )
    _stderr().print(table)


def _kind(token: TokenInfo) -> str:
    return str(getattr(token.kind, "value", token.kind))


#: Where there is no terminal to redraw, a long run prints a line this often.
SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def stages(quiet: bool = False) -> Iterator[Callable[[StageEvent], None]]:
    """A callback that draws a long run: a bar per stage (lines where there is no terminal),
    and a line per check."""
    if quiet:
        yield lambda event: None
        return
    console = _stderr()
    if not console.is_terminal:
        yield _stage_lines(console)
        return
    from rich import progress

    columns = (progress.BarColumn(), progress.MofNCompleteColumn())
    clocks = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    tasks: dict[str, Any] = {}
    with progress.Progress("{task.description:36}", *columns, *clocks, console=console) as bars:

        def draw(event: StageEvent) -> None:
            if event.stage == "check":
                bars.console.print(_check_line(event.values))
                return
            if event.stage not in tasks:
                tasks[event.stage] = bars.add_task(event.stage)
            bars.update(
                tasks[event.stage],
                completed=event.done,
                total=event.total,
                description=_stage_text(event),
            )

        yield draw


def _stage_lines(console: Console) -> Callable[[StageEvent], None]:
    last: dict[str, float] = {}

    def draw(event: StageEvent) -> None:
        now = monotonic()
        if event.stage == "check":
            console.print(_check_line(event.values))
        elif now - last.get(event.stage, -SECONDS_BETWEEN_LINES) >= SECONDS_BETWEEN_LINES:
            last[event.stage] = now
            console.print(f"{_stage_text(event)}: {event.done} of {event.total}")

    return draw


def _stage_text(event: StageEvent) -> str:
    if "harmless" in event.values:
        return f"{event.stage}, {event.values['harmless']} harmless"
    if "loss" not in event.values:
        return event.stage
    speed = event.values["tokens_per_s"]
    return f"{event.stage} loss {event.values['loss'][0]:.2f}, {speed:.0f} tokens/s"


def _check_line(values: dict[str, Any]) -> str:
    accuracy = " ".join(f"{value:.3f}" for value in values["accuracy"]["all"])
    length = values.get("accept_length")
    tail = "" if length is None else f", accept length {length:.2f}"
    return f"step {values['step']}, {values['minutes']} min: accuracy {accuracy}{tail}"

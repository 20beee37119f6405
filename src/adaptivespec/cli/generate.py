"""`adaptivespec generate`: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptivespec.cli import display
from adaptivespec.cli.decoding import SamplingOptions, SpeculationOptions
from adaptivespec.cli.errors import INTERRUPTED, guarded
from adaptivespec.cli.groups import grouped
from adaptivespec.cli.options import OUTPUT, CommonOptions, ModelOptions, option
from adaptivespec.cli.play import Played, play

if TYPE_CHECKING:
    from adaptivespec.core.sampling import SamplingParams
    from adaptivespec.engine import Engine, GenerationResult, Stream
    from adaptivespec.replay.trace_file import TraceWriter
    from adaptivespec.serve.page.file import PageFile
    from adaptivespec.verify.base import Rule

__all__ = ["EPILOG", "generate"]

PROMPT = "Prompt"

EPILOG = """\
[bold]Examples[/bold]

adaptivespec generate -p "Why is the sky blue?"

adaptivespec generate -p "Why is the sky blue?" --rule margin --kappa 0.2 --policy dcs

echo "Name three rivers." | adaptivespec generate -p - --rule safe --json

adaptivespec generate ./my-llama --draft-model ./my-head -p @prompt.txt --trace steps.jsonl

adaptivespec generate -p "Why is the sky blue?" --trace t.jsonl --record-width 4

adaptivespec generate -p "Why is the sky blue?" --rule margin:0.2 --trace-html out.html
"""


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What is asked."""

    prompt: Annotated[
        str | None,
        option(
            "--prompt",
            "-p",
            panel=PROMPT,
            help="The prompt; - reads standard input, @FILE a file, and @@ begins a prompt with @.",
            metavar="TEXT|-|@FILE",
        ),
    ] = None
    system: Annotated[
        str | None, option("--system", panel=PROMPT, env="SYSTEM", help="The system message.")
    ] = None
    raw: Annotated[
        bool, option("--raw", panel=PROMPT, help="Give the prompt as it is, without chat template.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is shown and written."""

    as_json: Annotated[
        bool, option("--json", panel=OUTPUT, help="One JSON object on standard output.")
    ] = False
    trace: Annotated[
        Path | None,
        option(
            "--trace",
            panel=OUTPUT,
            help="Write a header and one JSON line per step to this file.",
            metavar="FILE",
        ),
    ] = None
    trace_html: Annotated[
        Path | None,
        option(
            "--trace-html",
            panel=OUTPUT,
            help="Write a page to this file that shows the same: every token by its kind, and the "
            "trees, step by step.",
            metavar="FILE",
        ),
    ] = None
    record_width: Annotated[
        int | None,
        option(
            "--record-width",
            panel=OUTPUT,
            help="Draft a tree this wide (1 to 16) at every position and commit the model's own "
            "tokens alone: a slow run whose trace `adaptivespec replay` tries policies on.",
        ),
    ] = None
    record_depth: Annotated[
        int | None,
        option("--record-depth", panel=OUTPUT, help="Levels of that tree. Missing: 8."),
    ] = None
    logprobs: Annotated[
        bool,
        option("--logprobs", panel=OUTPUT, help="Log probability, kind and margin of every token."),
    ] = False
    show_kinds: Annotated[
        bool,
        option(
            "--show-kinds",
            panel=OUTPUT,
            help="On a terminal, colour tokens: exact green, promoted yellow, bonus cyan.",
        ),
    ] = False


@guarded
@grouped
def generate(
    model: ModelOptions,
    prompt: PromptOptions,
    speculation: SpeculationOptions,
    sampling: SamplingOptions,
    output: OutputOptions,
    common: CommonOptions,
) -> None:
    """Answer one prompt.

    The text goes to standard output as it comes; progress, notices and statistics go to standard
    error. Decoding is lossless unless a lossy rule is asked for.
    """
    from adaptivespec.core.sampling import SamplingParams

    text = read_prompt(prompt.prompt)
    _refuse_conflicts(prompt)
    params = SamplingParams(**sampling.arguments())
    speculation.check_policy()
    rule = speculation.make_rule()
    record = _record(output, speculation, rule, params)
    _refuse_one_file_for_two(output)
    with _trace_writer(output.trace) as writer, _page_file(output.trace_html) as page:
        with display.progress(common.quiet) as progress:
            engine = model.load(progress)
            speculation = speculation.settled(engine, sampling.temperature)
            engine.prepare(*speculation.policy_choice(), progress)
        if not speculation.make_rule().lossless and not common.quiet:
            display.disclose(speculation.rule_name)
        arguments = {
            **speculation.arguments(),
            **sampling.arguments(),
            "logprobs": output.logprobs,
            "trace": writer is not None or page is not None,
            "record": record,
        }
        with display.reading(common.quiet) as reading:
            stream = _start(engine, text, prompt, arguments | {"progress": reading})
            if writer is not None:
                writer.begin(engine, stream.result, params, record, stream.prompt)
            played = play(stream, _shower(output), writer.write if writer is not None else None)
        if page is not None:
            trace = _trace(engine, played.result, params, record, stream.prompt)
            page.write({"prompt": text, **trace})
    _finish(played, output, common)
    engine.close()
    if played.interrupted:
        raise typer.Exit(INTERRUPTED)


def read_prompt(value: str | None) -> str:
    """The prompt that -p stands for. One line break at the end of a file or of stdin is dropped."""
    from adaptivespec.core.errors import PromptError

    remedy = "Give one with -p TEXT, -p - (standard input) or -p @FILE"
    if value is None:
        raise PromptError("no prompt", field="prompt", remedy=remedy)
    if value == "-":
        text = _decoded(sys.stdin.buffer.read(), "standard input").removesuffix("\n")
    elif value.startswith("@@"):
        text = value[1:]
    elif value.startswith("@"):
        path = Path(value[1:]).expanduser()
        try:
            text = _decoded(path.read_bytes(), str(path)).removesuffix("\n")
        except OSError as error:
            raise PromptError(
                f"cannot read {path}: {error.strerror}",
                field="prompt",
                remedy="Name a text file, or begin the prompt with @@ if it starts with an @",
            ) from error
    else:
        text = value
    if not text.strip():
        raise PromptError("the prompt is empty", field="prompt", remedy=remedy)
    return text


def _decoded(content: bytes, source: str) -> str:
    from adaptivespec.core.errors import PromptError

    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{source} is not UTF-8 text (byte {error.start})",
            field="prompt",
            remedy="Convert it to UTF-8",
        ) from error


def _refuse_conflicts(prompt: PromptOptions) -> None:
    from adaptivespec.core.errors import ConfigError

    if prompt.raw and prompt.system is not None:
        raise ConfigError(
            "--raw leaves no place for a system message",
            field="system",
            remedy="Leave out --system, or put its text into the prompt",
        )


def _refuse_one_file_for_two(output: OutputOptions) -> None:
    from adaptivespec.core.errors import ConfigError

    if output.trace is None or output.trace_html is None:
        return
    if output.trace.resolve() == output.trace_html.resolve():
        raise ConfigError(
            f"{output.trace_html} is the file of --trace as well",
            field="trace_html",
            remedy="Name two files",
        )


def _start(engine: Engine, text: str, prompt: PromptOptions, arguments: dict[str, Any]) -> Stream:
    if prompt.system is None:
        return engine.stream(text, raw=prompt.raw, **arguments)
    messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": text}]
    return engine.chat_stream(messages, **arguments)


def _shower(output: OutputOptions) -> Callable[[str, Sequence[Any]], None]:
    if output.as_json:
        return lambda text, tokens: None
    if output.show_kinds and sys.stdout.isatty():
        return display.KindPainter().write
    return lambda text, tokens: display.write(text)


def _trace_writer(path: Path | None) -> AbstractContextManager[TraceWriter | None]:
    """A writer of the file, opened before anything else is done; None without a file."""
    if path is None:
        return nullcontext()
    from adaptivespec.replay.trace_file import TraceWriter

    return TraceWriter(path)


def _page_file(path: Path | None) -> AbstractContextManager[PageFile | None]:
    """The page's file, tried before anything else is done; None without one."""
    if path is None:
        return nullcontext()
    from adaptivespec.serve.page.file import PageFile

    return PageFile(path)


def _trace(
    engine: Engine,
    result: GenerationResult,
    params: SamplingParams,
    record: tuple[int, int] | None,
    prompt: Sequence[int],
) -> dict[str, Any]:
    """A generation, run with ``trace=True``, as its page shows it."""
    from adaptivespec.engine.trace_lines import TraceLines, header_of

    lines = TraceLines(engine.tokenizer)
    return {
        "header": header_of(engine, result, params, record, prompt).model_dump(),
        "steps": [lines.line(step) for step in result.trace or []],
        "text": result.text,
    }


def _record(
    output: OutputOptions,
    speculation: SpeculationOptions,
    rule: Rule,
    params: SamplingParams,
) -> tuple[int, int] | None:
    """Width and depth of the tree to record, checked before a model is loaded; None for none."""
    from adaptivespec.core.errors import ConfigError
    from adaptivespec.engine.recording import DEFAULT_DEPTH, recording_plan

    width, depth = output.record_width, output.record_depth
    if width is None:
        if depth is not None:
            raise ConfigError(
                "is the depth of a recording, and there is no width",
                field="record_depth",
                remedy="Add --record-width 4",
            )
        return None
    record = width, DEFAULT_DEPTH if depth is None else depth
    policy, _ = speculation.policy_choice()
    recording_plan(record, rule, params, policy, output.trace is not None)
    return record


def _finish(played: Played, output: OutputOptions, common: CommonOptions) -> None:
    """What follows the text: its line end or the JSON object, and the statistics."""
    result = played.result
    if output.as_json:
        answer = result.to_json()
        if output.logprobs:
            answer["tokens"] = [asdict(token) for token in result.tokens]
        display.write(json.dumps(answer, ensure_ascii=False, allow_nan=False) + "\n")
    elif result.text and not result.text.endswith("\n"):
        display.write("\n")
    if common.quiet or output.as_json:
        return
    if output.logprobs:
        display.show_tokens(result.tokens)
    display.show_statistics(played)

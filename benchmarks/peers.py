"""The embedded model in this package's engines and in others, on the same weights and prompts.

Each engine is a process of its own, pinned to the same processors; one works at a time. For every
prompt all arms (an engine with a way to decode) follow each other in a shuffled order: a block. Our
plain decoding on the native engine runs at its start, middle and end. All get the same token ids,
decode greedily and go on after an end of text. What is not installed is skipped, with its reason.

Each finished run is a line of --out; a second start with the same options goes on after the last.

    pip install -e ".[peers]"
    peers.py --data DATA --out peers.jsonl --threads 2 --markdown docs/results/peers.md
    peers.py --report peers.jsonl --markdown docs/results/peers.md
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import peers_engines as engines
import peers_files as files
from grid_rows import read_rows
from peers_machine import machine
from peers_process import Died, Worker
from peers_report import BASE, report
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from tasks import FILES, prompts

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.policy import make_policy

RULES = ("strict", "margin:0.2")
TORCH_ARMS = ("strict/dcs",)
SLOW = "openvino,torch,transformers,xllamacpp"
BASE_RUNS = 3
SECONDS_BETWEEN_LINES = 30.0
INTERRUPTED = 130


class Prompt(NamedTuple):
    """A prompt in tokens, and its number within the task, from 0."""

    task: str
    number: int
    ids: list[int]


class Run(NamedTuple):
    """One arm in one block; of several times the `turn`-th, from 0."""

    engine: str
    arm: str
    turn: int = 0


def main() -> int:
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not args.report:
            _measure(args)
        text = report(read_rows([args.report or args.out]))
        print(text)
        if args.markdown:
            args.markdown.write_text(text + "\n", encoding="utf-8")
    except (AdaptiveSpecError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on after {args.out}", file=sys.stderr)
        return INTERRUPTED
    return 0


def _measure(args: argparse.Namespace) -> None:
    """Every run that --out does not have yet."""
    names = ("tokens", "threads", "cpus", "policies", "kernels")
    settings = {name: getattr(args, name) for name in names}
    done = finished(args.out, settings)
    chosen = _prompts(args)
    slow = set(args.slow.split(","))
    with ExitStack() as stack, args.out.open("a", encoding="utf-8") as file:

        def write(kind: str, **row: Any) -> None:
            file.write(json.dumps({"kind": kind, **row}) + "\n")
            file.flush()

        write("run", settings=settings, options=_options(args), machine=machine())
        workers = {}
        for name in args.engines.split(","):
            print(f"loading {name}", file=sys.stderr)
            worker = stack.enter_context(Worker(name, _worker_options(args, chosen[0].ids)))
            write("engine", name=name, **worker.hello)
            if worker.skipped:
                print(f"skipped {name}: {worker.skipped}", file=sys.stderr)
            else:
                workers[name] = worker
        if BASE[0] not in workers:
            raise ConfigError(
                f"'{BASE[0]}' is missing, which all are compared with",
                field="--engines",
                remedy="Name it, and see above why it was skipped if it was",
            )
        blocks = []
        for repeat in range(args.repeats):
            for prompt in chosen:
                with_slow = repeat == 0 and prompt.number < args.slow_limit
                arms = [
                    Run(name, arm)
                    for name, worker in workers.items()
                    for arm in worker.arms
                    if with_slow or name not in slow
                ]
                rng = random.Random(f"{args.seed} {repeat} {prompt[:2]}")  # noqa: S311
                order = block_order(arms, rng)
                key = prompt.task, prompt.number, repeat
                blocks.append((prompt, repeat, [run for run in order if (*key, *run) not in done]))
        with _progress(sum(len(runs) for _, _, runs in blocks)) as tick:
            for prompt, repeat, runs in blocks:
                for run in runs:
                    if run.engine in workers:
                        try:
                            row = workers[run.engine].ask(run.arm, prompt.ids, args.tokens)
                        except Died as error:
                            del workers[run.engine]
                            row = {"error": str(error)}
                        place = {"task": prompt.task, "index": prompt.number, "repeat": repeat}
                        write("row", **place, **run._asdict(), prompt=len(prompt.ids), **row)
                    tick(f"{run.engine} {run.arm}")


def block_order(arms: Sequence[Run], rng: random.Random) -> list[Run]:
    """The arms, shuffled, with the runs of the base spread from start to end."""
    base = Run(*BASE)
    others = [run for run in arms if run != base]
    order = rng.sample(others, len(others))
    for turn in reversed(range(BASE_RUNS)):
        place = round(turn * len(others) / (BASE_RUNS - 1))
        order.insert(place, base._replace(turn=turn))
    return order


def finished(out: Path, settings: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Runs of `out` that need not be made again; a line that was cut off is closed."""
    text = out.read_text(encoding="utf-8") if out.exists() else ""
    if text and not text.endswith("\n"):
        out.write_text(text + "\n", encoding="utf-8")
    rows = read_rows([out]) if text else []
    for row in rows:
        if row["kind"] == "run" and row["settings"] != settings:
            raise ConfigError(
                f"was measured with {row['settings']}, which now are {settings}",
                field=str(out),
                remedy="Write to another file",
            )
    names = ("task", "index", "repeat", "engine", "arm", "turn")
    return {
        tuple(row[name] for name in names)
        for row in rows
        if row["kind"] == "row" and "error" not in row
    }


def _prompts(args: argparse.Namespace) -> list[Prompt]:
    """The prompts in the model's chat template, the tasks taking turns."""
    tokenizer = Tokenizer.from_dir(files.embedded())
    found = []
    for task in args.tasks.split(","):
        for index, text in enumerate(prompts(args.data, task, args.limit)):
            ids = tokenizer.apply_chat_template([{"role": "user", "content": text}])
            if len(ids) + args.tokens > engines.CONTEXT:
                raise ConfigError(
                    f"prompt {index} of {task} has {len(ids)} tokens; with the answer at most "
                    f"{engines.CONTEXT} fit",
                    field="--tokens",
                )
            found.append(Prompt(task, index, list(ids)))
    return sorted(found, key=lambda prompt: prompt.number)


def _worker_options(args: argparse.Namespace, warm_up: list[int]) -> dict[str, Any]:
    arms = [f"{rule}/{policy}" for policy in args.policies for rule in RULES]
    return {
        "threads": args.threads,
        "cpus": args.cpus,
        "arms": {"native": arms, "torch": TORCH_ARMS},
        "kernels": args.kernels,
        "warm_up": warm_up,
    }


def _options(args: argparse.Namespace) -> str:
    """The options of this run as one would type them, without the names of folders."""
    names = ("tasks", "limit", "tokens", "repeats", "seed", "threads", "engines", "slow")
    given = [f"--{name} {getattr(args, name)}" for name in (*names, "slow_limit")]
    if args.kernels:
        given.append(f"--kernels {args.kernels}")
    return " ".join([*given, f'--policies "{";".join(args.policies)}"']).replace("_limit", "-limit")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A callback for each finished run: a bar on a terminal, elsewhere a line now and then."""
    console = Console(stderr=True, highlight=False)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    finished, last = 0, time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=total)

        def tick(label: str) -> None:
            nonlocal finished, last
            finished += 1
            bars.update(bar, advance=1, description=label)
            if not console.is_terminal and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                console.print(f"{finished} of {total} runs")

        yield tick


def _policies(text: str) -> list[str]:
    specs = text.split(";")
    for spec in specs:
        if spec != "auto":
            make_policy(spec)
    return specs


def _cpus(text: str) -> list[int]:
    return [int(cpu) for cpu in text.split(",")] if text else []


def _subset(known: Sequence[str]) -> Callable[[str], str]:
    """A type for argparse: names out of `known` with , between."""

    def check(text: str) -> str:
        wrong = [name for name in text.split(",") if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"no {wrong[0]!r}; choose from {', '.join(known)}")
        return text

    return check


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder with the task files")
    add("--out", type=Path, help="rows go here, one JSON object a line")
    add("--tasks", type=_subset(list(FILES)), default=",".join(FILES))
    add("--limit", type=_count, default=8, help="prompts per task")
    add("--tokens", type=_count, default=128, help="tokens of each answer")
    add("--repeats", type=_count, default=2, help="blocks of each prompt")
    add("--seed", type=int, default=0, help="order of the arms of a block")
    add("--threads", type=_count, default=1)
    add("--cpus", type=_cpus, help="processors to work on, as 0,1; default: as many as threads")
    add("--policies", type=_policies, default="auto;dcs", help="of the native engine, with ;")
    add("--kernels", default="", help="of llama.cpp, such as zen4; default: its own choice")
    add("--engines", type=_subset(engines.NAMES), default=",".join(engines.DEFAULT))
    add("--slow", default=SLOW, help="engines that run in the first block of a prompt only ...")
    add("--slow-limit", type=_count, default=4, help="... and for so many prompts per task")
    add("--report", type=Path, metavar="OUT", help="the report of these rows, no measuring")
    add("--markdown", type=Path, help="write the report here too")
    args = parser.parse_args()
    if not args.report and not (args.data and args.out):
        parser.error("--data and --out are needed, or --report")
    if args.cpus is None:
        args.cpus = sorted(os.sched_getaffinity(0))[: args.threads]
    return args


if __name__ == "__main__":
    sys.exit(main())

"""Prompts of the public tasks, as the benchmarks use them."""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

FILES = {
    "gsm8k": "gsm8k_test.jsonl",
    "humaneval": "HumanEval.jsonl.gz",
    "mt_bench": "mt_bench.jsonl",
}
SECONDS_BETWEEN_LINES = 30.0


def prompts(data: Path, task: str, limit: int) -> list[str]:
    """The first `limit` prompts of a task."""
    path = data / FILES[task]
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][:limit]
    if task == "gsm8k":
        return [row["question"] for row in rows]
    if task == "humaneval":
        return ["Complete this Python function:\n\n" + row["prompt"] for row in rows]
    return [row["turns"][0] for row in rows]


def arguments(
    description: str, parser: argparse.ArgumentParser | None = None
) -> argparse.ArgumentParser:
    """Options that every benchmark has, added to `parser` where there is one already."""
    parser = parser or argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with the task files")
    parser.add_argument("--tasks", default="gsm8k,humaneval,mt_bench")
    parser.add_argument("--limit", type=int, default=10, help="prompts per task")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--backend", default="native", help="native or torch")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--draft-model", default=None)
    parser.add_argument("--json", type=Path, default=None, help="write the rows here")
    return parser


def finish(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write the rows where they were asked for."""
    if args.json:
        args.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@contextmanager
def progress(total: int, noun: str) -> Iterator[Callable[[str], None]]:
    """A callback for each of `total` finished things, with a few words about the last one.

    A bar on a terminal, elsewhere a line on stderr now and then.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        begin = last = time.monotonic()
        finished = 0

        def line(about: str) -> None:
            nonlocal last, finished
            finished += 1
            now = time.monotonic()
            if now - last >= SECONDS_BETWEEN_LINES or finished == total:
                last = now
                left = (now - begin) / finished * (total - finished)
                console.print(f"{finished} of {total} {noun}, {left / 60:.0f} min left")

        yield line
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    # Some take several times as long as others: the speed is that of the last half hour.
    with Progress(*columns, console=console, speed_estimate_period=1800) as bars:
        task = bars.add_task("", total=total)
        yield lambda about: bars.update(task, advance=1, description=about)

"""Every verification rule with every draft policy, on the embedded model.

For each prompt all cells (a rule with a policy) and several runs of plain decoding follow each
other in a shuffled order: a block. Plain decoding begins and ends the block, and its median time
is what the cells of the block are compared with. Each finished cell is a line of --out; a second
start with the same options goes on after the last one. A policy keeps what it learns from one
prompt to the next, as the engine does it, and starts anew with each process.

    grid.py --data DATA --rules "strict;margin:0.2" --policies "chain:3;dcs" --out rows.jsonl
    grid.py --report rows.jsonl --markdown grid.md
    grid.py --report rows.jsonl --compare priced --against "static:5,4,16;dcs"
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from grid_compare import compare
from grid_report import report
from grid_rows import read_rows
from tasks import FILES, progress, prompts

from adaptivespec import Engine
from adaptivespec.core.errors import AdaptiveSpecError, ConfigError
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.verify import RULES, make_rule
from adaptivespec.verify.base import Rule

PROMPTS = "gsm8k=40,humaneval=20,mt_bench=20"
MAX_TOKENS = "gsm8k=160,humaneval=64,mt_bench=64"
INTERRUPTED = 130


class Cell(NamedTuple):
    """A rule with a policy, as they were spelled; PLAIN is what the others are compared with."""

    rule: str
    policy: str
    plain: bool = False


PLAIN = Cell("strict", "none", plain=True)


class Prompt(NamedTuple):
    """A prompt and its number within the task, from 0."""

    task: str
    number: int
    text: str


def main() -> int:
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.report:
            _report(args)
        else:
            _measure_all(args)
    except (AdaptiveSpecError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on after {args.out}", file=sys.stderr)
        return INTERRUPTED
    return 0


def _report(args: argparse.Namespace) -> None:
    rows = read_rows(args.report)
    rivals = (args.against or "").split(";")
    text = compare(rows, args.compare, rivals) if args.compare else report(rows)
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n", encoding="utf-8")


def _measure_all(args: argparse.Namespace) -> None:
    specs, policies = args.rules.split(";"), args.policies.split(";")
    rules = {spec: make_rule(spec) for spec in (*specs, PLAIN.rule)}
    warm_up = [make_policy(spec) for spec in policies]
    counts = _numbers(args.prompts, "--prompts")
    limits = {**_numbers(MAX_TOKENS, ""), **_numbers(args.max_tokens, "--max-tokens")}
    order = prompt_order(args.data, counts, args.shard)
    engine = Engine.from_pretrained(
        backend=args.backend,
        dtype=args.dtype,
        threads=args.threads,
        draft_model=args.draft_model,
    )
    common = {"dtype": engine.dtype, "threads": torch.get_num_threads(), "head": args.draft_model}
    settings = {task: {**common, "max_tokens": tokens} for task, tokens in limits.items()}
    done = finished(args.out, settings)
    cells = [Cell(rule, policy) for rule in specs for policy in policies]
    blocks = {
        prompt: [cell for cell in cells if (prompt.task, prompt.number, *cell[:2]) not in done]
        for prompt in order
    }
    for policy in warm_up:  # what happens once in a process belongs to no cell
        engine.generate("Say hello.", policy=policy, max_tokens=8)
    start = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {os.getpid()}"
    impossible: set[Cell] = set()
    with (
        args.out.open("a", encoding="utf-8") as file,
        progress(sum(map(len, blocks.values())), "cells") as tick,
    ):
        for prompt, missing in blocks.items():
            if not missing:
                continue
            rng = random.Random(f"{args.seed} {prompt.task} {prompt.number}")  # noqa: S311
            for cell in block_order(missing, args.plain, rng):
                if cell not in impossible:
                    tokens = limits[prompt.task]
                    row = {
                        "task": prompt.task,
                        "index": prompt.number,
                        **cell._asdict(),
                        "start": start,
                        "settings": settings[prompt.task],
                        **_attempt(engine, rules[cell.rule], cell, prompt.text, tokens, impossible),
                    }
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                if not cell.plain:
                    tick(f"{cell.rule} {cell.policy}")


def _attempt(
    engine: Engine, rule: Rule, cell: Cell, text: str, max_tokens: int, impossible: set[Cell]
) -> dict[str, Any]:
    """``measure``, or the error: a run of hours outlives a cell that fails.

    A cell whose options exclude each other would fail on every prompt: it joins ``impossible``.
    """
    try:
        return measure(engine, rule, cell.policy, text, max_tokens)
    except Exception as error:
        if cell.plain:
            raise
        if isinstance(error, ConfigError):
            impossible.add(cell)
        return {"error": f"{type(error).__name__}: {error}"}


def measure(
    engine: Engine, rule: Rule, policy: str, prompt: str, max_tokens: int
) -> dict[str, Any]:
    """One request: wall seconds, what it drafted and verified, and its text."""
    begin = time.perf_counter()
    stream = engine.stream(prompt, rule=rule, policy=policy, max_tokens=max_tokens)
    drafted = sum(chunk.step.num_drafted for chunk in stream if chunk.step is not None)
    seconds = time.perf_counter() - begin
    result, stats = stream.result, stream.result.stats
    return {
        "seconds": seconds,
        **result.timings,
        "tokens": result.completion_tokens,
        "steps": stats.num_spec_steps,
        "step_tokens": stats.num_committed_tokens,
        "accepted": stats.num_accepted_draft_tokens,
        "promoted": stats.num_promoted_tokens,
        "regret_nats": stats.regret_nats,
        "drafted": drafted,
        "verified": stats.num_draft_tokens,
        "lossless": result.lossless,
        "finish": result.finish_reason,
        "text": result.text,
    }


def prompt_order(data: Path, counts: Mapping[str, int], shard: tuple[int, int]) -> list[Prompt]:
    """The shard's prompts; each task is spread evenly, so that any first part is balanced."""
    part, shards = shard
    placed: list[tuple[float, Prompt]] = []
    for task, count in counts.items():
        texts = list(enumerate(prompts(data, task, count)))[part - 1 :: shards]
        for position, (which, text) in enumerate(texts):
            placed.append(((position + 0.5) / len(texts), Prompt(task, which, text)))
    return [prompt for _, prompt in sorted(placed)]


def block_order(cells: Sequence[Cell], plain: int, rng: random.Random) -> list[Cell]:
    """The cells, shuffled, with ``plain`` runs of plain decoding spread from start to end."""
    order = rng.sample(cells, len(cells))
    for run in reversed(range(plain)):
        order.insert(round(run * len(cells) / (plain - 1)), PLAIN)
    return order


def finished(out: Path, settings: Mapping[str, Any]) -> set[tuple[str, int, str, str]]:
    """Cells of ``out`` that need not be run again; a line that was cut off is closed."""
    text = out.read_text(encoding="utf-8") if out.exists() else ""
    if text and not text.endswith("\n"):
        out.write_text(text + "\n", encoding="utf-8")
    done = set()
    for row in read_rows([out]) if text else ():
        new = settings.get(row["task"], row["settings"])
        if row["settings"] != new:
            raise ConfigError(
                f"holds {row['task']} with {row['settings']}, which now are {new}",
                field=str(out),
                remedy="Write to another file",
            )
        if not row["plain"] and "error" not in row:
            done.add((row["task"], row["index"], row["rule"], row["policy"]))
    return done


def _numbers(text: str, option: str) -> dict[str, int]:
    """{"gsm8k": 40} of "gsm8k=40"."""
    pairs = [item.partition("=") for item in text.split(",")]
    if not all(task in FILES and count.isdecimal() for task, _, count in pairs):
        raise ConfigError(
            f"cannot read {text!r}", field=option, remedy=f"Write TASK=COUNT,... of {list(FILES)}"
        )
    return {task: int(count) for task, _, count in pairs}


def _shard(text: str) -> tuple[int, int]:
    number, _, shards = text.partition("/")
    if not 1 <= int(number) <= int(shards):
        raise ValueError(text)
    return int(number), int(shards)


def _plain(text: str) -> int:
    if int(text) < 2:
        raise ValueError(text)
    return int(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    training_free = [name for name in RULES.names() if not RULES.load(name).trained]
    drafting = [name for name in POLICIES.names() if POLICIES.load(name).needs_draft]
    add("--data", type=Path, help="folder with the task files")
    add("--out", type=Path, help="rows go here, one JSON object a line")
    add("--rules", default=";".join(training_free), help="with ; between")
    add("--policies", default=";".join(drafting), help="with ; between")
    add("--prompts", default=PROMPTS, help="prompts per task")
    add("--max-tokens", default=MAX_TOKENS, help="longest answers")
    add("--plain", type=_plain, default=3, help="runs of plain decoding in a block, 2 or more")
    add("--shard", type=_shard, default=(1, 1), help="i/n: the i-th of n parts of the prompts")
    add("--seed", type=int, default=0, help="order of the cells of a block")
    add("--backend", default="native", help="native or torch")
    add("--dtype", default="auto")
    add("--threads", type=int, default=None)
    add("--draft-model", default=None)
    add("--report", type=Path, nargs="+", metavar="OUT", help="tables of these rows, no measuring")
    add("--compare", metavar="POLICY", help="with --report: this policy ...")
    add("--against", metavar="POLICIES", help="... paired with each of these, with ; between")
    add("--markdown", type=Path, help="with --report: write the tables here too")
    args = parser.parse_args()
    if not args.report and not (args.data and args.out):
        parser.error("--data and --out are needed, or --report")
    if bool(args.compare) != bool(args.against) or (args.compare and not args.report):
        parser.error("--compare and --against belong together, with --report")
    return args


if __name__ == "__main__":
    sys.exit(main())

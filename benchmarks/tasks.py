"""Prompts of the public tasks, as the benchmarks use them."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

FILES = {
    "gsm8k": "gsm8k_test.jsonl",
    "humaneval": "HumanEval.jsonl.gz",
    "mt_bench": "mt_bench.jsonl",
}


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


def arguments(description: str) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
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

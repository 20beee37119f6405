"""How the engine grows with the context: passes, prefill, memory, and time to the first token.

Times are the least of several repeats, which take turns; CPU seconds stand beside wall seconds,
since a shared machine lengthens only the latter. The first token is timed cold in a process of its
own, imports and loading included, and warm in an engine that has answered before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from adaptivespec import Engine
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.session import Session

CONTEXTS = (128, 512, 1024, 2048, 4096, 8000)
NODES = (1, 4, 8, 16)
PROMPT = "Explain in three sentences why the sky is blue."


def token(engine: Engine, i: int) -> int:
    return (i * 7919 + 11) % engine.target.limits.vocab_size


def tree(engine: Engine, size: int) -> DraftTree:
    """Nodes with two children each."""
    parents = [-1, *((node - 1) // 2 for node in range(1, size))]
    return DraftTree.from_parents([token(engine, i) for i in range(size)], parents)


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def best(times: list[tuple[float, float]]) -> tuple[float, float]:
    walls, cpus = zip(*times, strict=True)
    return min(walls), min(cpus)


def resident() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096


def measure(engine: Engine, context: int, repeats: int) -> dict[str, Any]:
    """Prefill of `context` tokens, then passes behind them, the drafter's included."""
    session = Session(engine.target, engine.drafter)
    ids = [token(engine, i) for i in range(context)]
    before = resident()
    prefill = []
    for _ in range(2):
        session.clear()
        prefill.append(timed(lambda: session.begin(ids, drafting=True)))
    session.begin_output([token(engine, 3)])
    read = timed(session.confidence)
    row: dict[str, Any] = {
        "context": context,
        "prefill_s": best(prefill),
        "read_s": read,
        "bytes_per_token": (resident() - before) / context,
        "passes_s": {},
    }
    trees = {size: tree(engine, size) for size in NODES}
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in NODES}
    for _ in range(repeats):
        for size in NODES:
            times[size].append(timed(lambda size=size: session.verify(trees[size])))
    row["passes_s"] = {size: best(times[size]) for size in NODES}
    return row


def first_token(engine: Engine, arguments: list[str]) -> dict[str, tuple[float, float]]:
    """Cold: a process that answers with one token. Warm: the same in this engine."""
    program = Path(sys.executable).with_name("adaptivespec")
    command = [str(program), "generate", "-p", PROMPT]
    cold = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(  # noqa: S603
            [*command, "--max-tokens", "1", *arguments], check=True, capture_output=True
        )
        cold.append(time.perf_counter() - start)
    warm = [timed(lambda: engine.generate(PROMPT, max_tokens=1)) for _ in range(5)]
    return {"cold": (min(cold), 0.0), "warm": best(warm)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="native", help="native or torch")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--contexts", default=",".join(map(str, CONTEXTS)))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, default=None, help="write the rows here")
    args = parser.parse_args()
    engine = Engine.from_pretrained(backend=args.backend, dtype=args.dtype, threads=args.threads)
    engine.generate(PROMPT, max_tokens=4)
    contexts = [int(context) for context in args.contexts.split(",")]
    rows = [measure(engine, context, args.repeats) for context in track(contexts)]
    flags = ["--backend", args.backend, "--dtype", args.dtype]
    flags += ["--threads", str(args.threads)] if args.threads else []
    first = first_token(engine, flags)
    title = f"{args.backend} {engine.dtype}, {torch.get_num_threads()} threads: wall ms (CPU ms)"
    table = Table(title=title)
    table.add_column("context", justify="right")
    for size in NODES:
        table.add_column(f"N = {size}", justify="right")
    for name in ("prefill tok/s", "head reads tok/s", "kB a token"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [f"{1e3 * w:.1f} ({1e3 * c:.1f})" for w, c in row["passes_s"].values()]
        speeds = [row["context"] / row[name][0] for name in ("prefill_s", "read_s")]
        memory = f"{row['bytes_per_token'] / 1e3:.1f}"
        table.add_row(str(row["context"]), *cells, *(f"{s:.0f}" for s in speeds), memory)
    Console().print(table)
    print(f"first token: cold {first['cold'][0]:.2f} s, warm {1e3 * first['warm'][0]:.1f} ms")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "first": first}), encoding="utf-8")


if __name__ == "__main__":
    with torch.inference_mode():
        main()

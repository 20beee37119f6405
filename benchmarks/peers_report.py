"""The report of peers.py, from its rows.

A ratio pairs runs of one block, so that a machine that is slow for a while is slow for both: the
median over a prompt's blocks, then over prompts.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from grid_rows import Interval, table

BASE = ("native", "plain")
"""The engine and arm that all others are compared with."""

TASKS = {"gsm8k": "maths", "humaneval": "code", "mt_bench": "chat"}
CLOCKS = {"wall": "decode_s", "CPU": "decode_cpu_s"}

Arm = tuple[str, str]
Block = tuple[str, int, int]
Row = dict[str, Any]

INTRODUCTION = """\
SmolLM2-135M-Instruct, greedy, {tokens} tokens an answer with no stop at an end of text, {threads}
{noun}. All engines get the same token ids; each runs in a process of its own, pinned to the same
processors, and one works at a time. Maths is GSM8K (test), code HumanEval, chat the first turns of
MT-bench: {prompts}, of which slow engines get the first. Written by `benchmarks/peers.py` from its
own rows:"""
COMMAND = """\
```sh
python benchmarks/peers.py --data DATA --out peers.jsonl {options}
```"""
MACHINE = """\
{processor} ({instructions}; {processors} to work on), {system}, Python {python}, {date}. The load
of the machine was {load} at the start: where it is above the threads in use, wall time measures the
neighbours as well, and CPU time, of all threads of a process, is the safer reading. A ratio pairs
runs of the same prompt: its median, with a bootstrap interval of 95 % over prompts."""
AGREEMENT = """\
Answers with the same tokens, and where the others first differ (median; from 0). Only `strict` on
the native engine promises the same tokens: other engines round otherwise, llama.cpp quantises
activations in its own blocks, its server (xllamacpp) never picks an end of text, and a lossy rule
differs on purpose."""


def report(rows: Sequence[Row]) -> str:
    """Markdown: who took part, speeds, ratios, agreement."""
    measured = [row for row in rows if row["kind"] == "row" and "error" not in row]
    runs = [row for row in rows if row["kind"] == "run"]
    if not measured:
        return "no finished run"
    known = [(row["name"], arm) for row in rows if row["kind"] == "engine" for arm in row["arms"]]
    cells = _Cells(measured, dict.fromkeys(known))
    peers = [arm for arm in cells.arms if arm[0] != BASE[0]]
    drafting = [arm for arm in cells.arms if arm[1] != BASE[1] and (arm[0], BASE[1]) in cells.arms]
    parts = [
        _introduction(runs[-1], cells),
        "## Who took part",
        _engines(rows),
        "## Decoding",
        _decoding(cells),
        "## Our plain decoding against others: their time / ours",
        _ratios(cells, [(arm, BASE) for arm in peers]),
        "## Drafting against plain decoding of the same engine: time of plain / time",
        _ratios(cells, [((arm[0], BASE[1]), arm) for arm in drafting], steps=True),
        "## The prompt",
        _prefill(cells),
        "## Agreement with our plain decoding",
        _agreement(cells),
    ]
    if failed := _failed(rows, cells):
        parts += ["## Failed", "\n".join(sorted(failed))]
    return "\n\n".join(part for part in parts if part)


class _Cells:
    """Rows by arm and block; an arm may run several times in a block."""

    def __init__(self, rows: Sequence[Row], order: Iterable[Arm]) -> None:
        self._rows: dict[Arm, dict[Block, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            block = row["task"], row["index"], row["repeat"]
            self._rows[row["engine"], row["arm"]][block].append(row)
        self.arms = [arm for arm in order if arm in self._rows]
        found = {row["task"] for row in rows}
        self.tasks = [task for task in TASKS if task in found]

    def by_prompt(self, arm: Arm, task: str, value: Callable[[Row], float]) -> list[float]:
        """The median of a value over the runs of each prompt."""
        values: dict[int, list[float]] = defaultdict(list)
        for (where, index, _), rows in self._rows[arm].items():
            if where == task:
                values[index] += map(value, rows)
        return [statistics.median(each) for each in values.values()]

    def ratios(
        self, above: Arm, below: Arm, task: str, value: Callable[[Row], float]
    ) -> list[float]:
        """above / below for each prompt: the median over the blocks that both are in."""
        values: dict[int, list[float]] = defaultdict(list)
        for block, rows in self._rows[above].items():
            where, index, _ = block
            others = self._rows[below].get(block, ())
            if where == task and others:
                top, bottom = (statistics.median(map(value, each)) for each in (rows, others))
                values[index].append(top / bottom)
        return [statistics.median(each) for each in values.values()]

    def all(self, arm: Arm) -> list[Row]:
        return [row for rows in self._rows[arm].values() for row in rows]

    def has(self, row: Row) -> bool:
        """Whether a run of the same arm in the same block is among the rows."""
        arm = row["engine"], row["arm"]
        return arm in self._rows and (row["task"], row["index"], row["repeat"]) in self._rows[arm]

    def prompts(self, arm: Arm, task: str) -> int:
        return len({block[1] for block in self._rows[arm] if block[0] == task})

    def first(self, arm: Arm) -> dict[tuple[str, int], Row]:
        """One run of each prompt: greedy decoding repeats."""
        return {block[:2]: rows[0] for block, rows in reversed(self._rows[arm].items())}


def _per_token(clock: str) -> Callable[[Row], float]:
    return lambda row: row[CLOCKS[clock]] / max(1, row["decoded"])


def _introduction(run: Row, cells: _Cells) -> str:
    threads = run["settings"]["threads"]
    counts = [f"{cells.prompts(BASE, task)} {TASKS[task]}" for task in cells.tasks]
    introduction = INTRODUCTION.format(
        tokens=run["settings"]["tokens"],
        threads=threads,
        noun="thread" if threads == 1 else "threads",
        prompts=f"{', '.join(counts)} prompts",
    )
    parts = [
        "# Peers on the same weights",
        fill(introduction, 100),
        COMMAND.format(options=run["options"]),
        fill(MACHINE.format(**run["machine"]), 100),
    ]
    return "\n\n".join(parts)


def _engines(rows: Sequence[Row]) -> str:
    last = {row["name"]: row for row in rows if row["kind"] == "engine"}
    lines = []
    for name, row in last.items():
        what = f"skipped, {row['skipped']}" if row["skipped"] else row["about"]
        lines.append(f"* **{name}**: {what}")
    return "\n".join(lines)


def _failed(rows: Sequence[Row], cells: _Cells) -> set[str]:
    """What no later run made good."""
    failed = {
        f"* {row['engine']}, `{row['arm']}`: {row['error']}"
        for row in rows
        if row["kind"] == "row" and "error" in row and not cells.has(row)
    }
    for row in rows:
        if row["kind"] == "engine":
            failed |= {f"* {row['name']}, `{arm}`: {why}" for arm, why in row["lost"].items()}
    return failed


def _decoding(cells: _Cells) -> str:
    names = [TASKS[task] for task in cells.tasks]
    body = []
    for arm in cells.arms:
        speeds = [
            f"{statistics.median(1 / t for t in times):.0f}" if times else "-"
            for times in (cells.by_prompt(arm, task, _per_token("wall")) for task in cells.tasks)
        ]
        work = [
            f"{1000 * statistics.median(times):.2f}" if times else "-"
            for times in (cells.by_prompt(arm, task, _per_token("CPU")) for task in cells.tasks)
        ]
        prompts = sum(cells.prompts(arm, task) for task in cells.tasks)
        body.append([*_names(cells, arm), str(prompts), *speeds, *work])
    head = ["engine", "arm", "prompts", *(f"{name}, tok/s" for name in names)]
    return table([*head, *(f"{name}, CPU ms" for name in names)], body)


def _ratios(cells: _Cells, pairs: Sequence[tuple[Arm, Arm]], steps: bool = False) -> str:
    body = []
    for above, below in pairs:
        shown = above if below == BASE else below
        line = [*_names(cells, shown)]
        if steps:
            rows = cells.all(shown)
            line.append(f"{sum(r['decoded'] for r in rows) / sum(r['steps'] for r in rows):.2f}")
        for clock in CLOCKS:
            for task in cells.tasks:
                values = cells.ratios(above, below, task, _per_token(clock))
                interval = Interval.of(values, np.median) if values else None
                line.append(f"{interval.value:.2f} ({interval.bounds('.2f')})" if interval else "-")
        body.append(line)
    head = ["engine", "arm", *(["tokens per step"] if steps else [])]
    head += [f"{TASKS[task]}, {clock}" for clock in CLOCKS for task in cells.tasks]
    return table(head, body) if body else ""


def _prefill(cells: _Cells) -> str:
    """What comes before the first token; a head reads the prompt too."""
    body = []
    for arm in cells.arms:
        line = [*_names(cells, arm)]
        for name in ("prefill_s", "prefill_cpu_s"):
            times = [row[name] / row["prompt"] for row in cells.all(arm)]
            line.append(f"{1000 * statistics.median(times):.2f}")
        body.append(line)
    text = "Milliseconds per token of the prompt, up to the first token of the answer; medians."
    return text + "\n\n" + table(["engine", "arm", *CLOCKS], body)


def _agreement(cells: _Cells) -> str:
    base = cells.first(BASE)
    body = []
    for arm in cells.arms:
        if arm == BASE:
            continue
        pairs = [
            (row["tokens"], base[key]["tokens"])
            for key, row in cells.first(arm).items()
            if key in base
        ]
        firsts = [place for pair in pairs if (place := first_difference(*pair)) is not None]
        median = f"{statistics.median(firsts):.0f}" if firsts else "-"
        body.append([*_names(cells, arm), f"{len(pairs) - len(firsts)}/{len(pairs)}", median])
    return AGREEMENT + "\n\n" + table(["engine", "arm", "same", "first difference"], body)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place where two sequences differ; None where they are equal."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return None if len(one) == len(other) else min(len(one), len(other))


def _names(cells: _Cells, arm: Arm) -> tuple[str, str]:
    """Engine and arm; with the policy that "auto" stood for."""
    engine, name = arm
    label = f"`{name}`"
    if name.endswith("/auto"):
        used = {row.get("policy") for row in cells.all(arm)}
        label += f" ({', '.join(f'`{policy}`' for policy in sorted(filter(None, used)))})"
    return engine, label

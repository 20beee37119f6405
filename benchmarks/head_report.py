"""The tables of `head.py tau` and `head.py speed`.

Accept length is committed tokens per verify step, pooled over prompts. Ratios are plain / arm, so
above 1 is faster. Intervals are of 95 %, by a bootstrap over prompts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from grid_rows import Interval, table
from peers_report import TASKS as KINDS

Row = dict[str, Any]
Prompt = tuple[str, int]

PLAIN = "none"
DEPTHS = 5

TAU_NOTE = """\
Committed tokens per verify step (tau), pooled over prompts; `depth d` is the share of steps whose
followed path reached it; `nodes` is the mean of a tree with its root."""
GAIN_NOTE = "\n`gain` is the per cent that tau gains over `{}`, paired by prompt."
SPEED_NOTE = """\
Time of plain decoding / time of the policy, prompt included, the quickest of the runs of each. The
best static shape of a kind, rule and head was chosen on the prompts of even number (mean of the
logarithm of the ratio per token), and what is shown comes from the others. `request` and `token`
are medians over prompts, `sum` the ratio of summed times."""
ALL_NOTE = """\
Ratio per token of every policy on all prompts, medians. The best of a line is picked by the same
times that it shows, so it looks better than it is."""
VERSUS_NOTE = "Time per token of `{}` / that of the other head, each with its own best shape."


def ratio_of_sums(pairs: npt.ArrayLike, axis: int = 0) -> Any:
    """sum of [..., 0] / sum of [..., 1] over an axis: a statistic for `Interval.of`."""
    sums = np.asarray(pairs).sum(axis)
    return sums[..., 0] / sums[..., 1]


def gain_of_sums(pairs: npt.ArrayLike, axis: int = 0) -> Any:
    """Per cent by which the ratio of sums of columns 0 and 1 exceeds that of columns 2 and 3."""
    sums = np.asarray(pairs).sum(axis)
    return 100 * sums[..., 0] * sums[..., 3] / (sums[..., 1] * sums[..., 2]) - 100


def over(columns: Iterable[Sequence[float]], statistic: Callable[..., Any]) -> Interval:
    """A statistic of several columns, and its interval; a line is a prompt."""
    lines: Any = np.asarray(list(columns), dtype=float)
    return Interval.of(lines, statistic)


# Accept length.


def tau(rows: Sequence[Row]) -> str:
    """Tables of accept length, with what each head gains over the first."""
    heads = names(rows, "head")
    head = ["kind", "rule", "shape", *(["head"] if heads[1:] else [])]
    head += ["prompts", "steps", "tau", "95 %", "nodes", *(f"depth {d + 1}" for d in range(DEPTHS))]
    head += ["gain", "95 %"] if heads[1:] else []
    body = []
    for cell in tau_cells(rows):
        line = [kind_of(cell["task"]), cell["rule"], shape_of(cell["policy"])]
        line += [cell["head"]] if heads[1:] else []
        value = Interval(cell["tau"], cell["low"], cell["high"])
        line += [str(cell["prompts"]), str(cell["steps"])]
        line += [f"{value.value:.3f}", value.bounds(".3f"), f"{cell['nodes']:.1f}"]
        line += [f"{100 * share:.1f} %" if share else "" for share in cell["depths"]]
        if heads[1:]:
            gain = cell["gain"]
            line += [f"{gain.value:+.1f} %", gain.bounds("+.1f")] if gain else ["", ""]
        body.append(line)
    note = TAU_NOTE + (GAIN_NOTE.format(heads[0]) if heads[1:] else "")
    return "\n\n".join([about(rows), note, table(head, body)])


def tau_cells(rows: Sequence[Row]) -> list[Row]:
    """Pooled accept length by task ("all" last), rule, policy and head.

    Each has tau with low and high, prompts, steps, nodes, depths (shares of steps that reached
    depth 1, 2, ...) and gain, an Interval over the first head, or None.
    """
    cells = []
    heads = names(rows, "head")
    tasks = names(rows, "task")
    for task in [*tasks, *(["all"] if tasks[1:] else [])]:
        for rule in names(rows, "rule"):
            for policy in names(rows, "policy"):
                found = {
                    head: by_prompt(rows, task, rule=rule, policy=policy, head=head)
                    for head in heads
                }
                for head, mine in found.items():
                    if mine:
                        place = {"task": task, "rule": rule, "policy": policy, "head": head}
                        gain = None if head == heads[0] else _gain(mine, found[heads[0]])
                        cells.append({**place, **_pooled(mine.values()), "gain": gain})
    return cells


def _pooled(rows: Iterable[Row]) -> Row:
    rows = list(rows)
    value = over([(row["step_tokens"], row["steps"]) for row in rows], ratio_of_sums)
    steps = sum(row["steps"] for row in rows)
    reached = [0] * DEPTHS
    for row in rows:
        for depth, count in enumerate(row["accepted_per_pos"][:DEPTHS]):
            reached[depth] += count
    return {
        "tau": value.value,
        "low": value.low,
        "high": value.high,
        "prompts": len(rows),
        "steps": steps,
        "nodes": 1 + sum(row["verified"] for row in rows) / steps,
        "depths": [count / steps for count in reached],
    }


def _gain(mine: Mapping[Prompt, Row], other: Mapping[Prompt, Row]) -> Interval | None:
    both = [(mine[prompt], other[prompt]) for prompt in mine if prompt in other]
    columns = [(a["step_tokens"], a["steps"], b["step_tokens"], b["steps"]) for a, b in both]
    return over(columns, gain_of_sums) if columns else None


# Speed.


def speed(rows: Sequence[Row]) -> str:
    """Tables of speed: the chosen shapes and the other policies, each policy, heads compared."""
    runs = quickest(rows)
    plain = {prompt: run for (_, _, policy, prompt), run in runs.items() if policy == PLAIN}
    drafted = [row for row in rows if row["policy"] != PLAIN]
    heads, rules = names(drafted, "head"), names(drafted, "rule")
    policies = names(drafted, "policy")
    chosen_body, all_body = [], []
    best: dict[tuple[str, str, str], dict[Prompt, Row]] = {}
    for task in names(rows, "task"):
        for rule in rules:
            for head in heads:
                arms = {
                    policy: {
                        prompt: run
                        for (where, by, name, prompt), run in runs.items()
                        if (where, by, name) == (head, rule, policy) and prompt[0] == task
                    }
                    for policy in policies
                }
                place = [kind_of(task), rule, *([head] if heads[1:] else [])]
                values = [np.median(_token_ratios(arms[policy], plain)) for policy in policies]
                all_body.append([*place, *_best_bold(values)])
                choice, shown = chosen(arms, plain)
                if choice:
                    best[task, rule, head] = shown[choice]
                for policy, kept in shown.items():
                    name = f"{shape_of(policy)} (chosen)" if policy == choice else shape_of(policy)
                    chosen_body.append([*place, name, *_speeds(kept, plain)])
    front = ["kind", "rule", *(["head"] if heads[1:] else [])]
    speeds = ["policy", "prompts", "tau", "request", "95 %", "token", "95 %", "sum", "95 %"]
    parts = [about(rows) + " " + _plain_time(plain), SPEED_NOTE]
    parts.append(table([*front, *speeds], chosen_body) if chosen_body else "Too few prompts.")
    if heads[1:] and best:
        parts += [VERSUS_NOTE.format(heads[0]), _versus(heads, best)]
    parts += [ALL_NOTE, table([*front, *map(shape_of, policies)], all_body)]
    return "\n\n".join(parts)


def quickest(rows: Sequence[Row]) -> dict[tuple[str, str, str, Prompt], Row]:
    """The run of least seconds by head, rule, policy and prompt; plain decoding has head ""."""
    runs: dict[tuple[str, str, str, Prompt], Row] = {}
    for row in rows:
        key = row["head"], row["rule"], row["policy"], (row["task"], row["index"])
        if key not in runs or row["seconds"] < runs[key]["seconds"]:
            runs[key] = row
    return runs


def chosen(
    arms: Mapping[str, Mapping[Prompt, Row]], plain: Mapping[Prompt, Row]
) -> tuple[str, dict[str, dict[Prompt, Row]]]:
    """The best static policy by prompts of even number, and the runs of odd number to show.

    What is shown are the chosen policy, "" where nothing could be chosen, and those that are not
    static, which have nothing to choose.
    """
    halves: list[dict[str, dict[Prompt, Row]]] = [{}, {}]
    for policy, runs in arms.items():
        for prompt, run in runs.items():
            halves[prompt[1] % 2].setdefault(policy, {})[prompt] = run
    scores = {
        policy: float(np.mean(np.log(_token_ratios(runs, plain))))
        for policy, runs in halves[0].items()
        if policy.startswith("static") and policy in halves[1]
    }
    choice = max(scores, key=lambda policy: scores[policy], default="")
    shown = {
        policy: runs
        for policy, runs in halves[1].items()
        if policy == choice or not policy.startswith("static")
    }
    return choice, shown


def _token_ratios(runs: Mapping[Prompt, Row], plain: Mapping[Prompt, Row]) -> list[float]:
    return [_per_token(plain[prompt]) / _per_token(run) for prompt, run in runs.items()]


def _per_token(run: Row) -> float:
    return float(run["seconds"] / max(1, run["tokens"]))


def _speeds(runs: Mapping[Prompt, Row], plain: Mapping[Prompt, Row]) -> list[str]:
    """Prompts, accept length, and the three ratios with their intervals."""
    pairs = [(plain[prompt]["seconds"], run["seconds"]) for prompt, run in runs.items()]
    steps = sum(run["steps"] for run in runs.values())
    texts = [str(len(runs)), f"{sum(run['step_tokens'] for run in runs.values()) / steps:.2f}"]
    for interval in (
        Interval.of([a / b for a, b in pairs], np.median),
        Interval.of(_token_ratios(runs, plain), np.median),
        over(pairs, ratio_of_sums),
    ):
        texts += [f"{interval.value:.2f}", interval.bounds(".2f")]
    return texts


def _versus(heads: Sequence[str], best: Mapping[tuple[str, str, str], Mapping[Prompt, Row]]) -> str:
    """Heads against the first, paired by prompt."""
    body = []
    for (task, rule, head), mine in best.items():
        other = best.get((task, rule, heads[0]))
        if head == heads[0] or other is None:
            continue
        ratios = [_per_token(other[p]) / _per_token(run) for p, run in mine.items() if p in other]
        interval = Interval.of(ratios, np.median)
        texts = [str(len(ratios)), f"{interval.value:.3f}", interval.bounds(".3f")]
        body.append([kind_of(task), rule, head, *texts])
    return table(["kind", "rule", "head", "prompts", "token", "95 %"], body)


def _plain_time(plain: Mapping[Prompt, Row]) -> str:
    seconds = sum(run["seconds"] for run in plain.values())
    took = 1000 * seconds / max(1, sum(run["tokens"] for run in plain.values()))
    return f"Plain decoding takes {took:.2f} ms a token."


def _best_bold(values: Sequence[float]) -> list[str]:
    best = max(values)
    return [f"**{v:.2f}**" if v == best and values[1:] else f"{v:.2f}" for v in values]


# Shared.


def kind_of(task: str) -> str:
    """maths, code or chat; "all" and unknown tasks as they are."""
    return KINDS.get(task, task)


def shape_of(policy: str) -> str:
    """5,1,6 of static:5,1,6."""
    return policy.removeprefix("static:")


def names(rows: Iterable[Row], key: str) -> list[str]:
    """The values of a key, in the order of the tasks or of their first appearance."""
    found = list(dict.fromkeys(str(row[key]) for row in rows))
    order = list(KINDS)
    return sorted(found, key=order.index) if key == "task" and set(found) <= set(order) else found


def by_prompt(rows: Sequence[Row], task: str, **values: str) -> dict[Prompt, Row]:
    """The rows of a task, or of "all", that have these values, by their prompt."""
    return {
        (row["task"], row["index"]): row
        for row in rows
        if task in ("all", row["task"]) and all(row[key] == v for key, v in values.items())
    }


def about(rows: Sequence[Row]) -> str:
    """Prompts by kind, length of answers and precision, in words."""
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[row["task"]].add(row["index"])
    counts = ", ".join(f"{len(found[task])} {kind_of(task)}" for task in names(rows, "task"))
    tokens = max(row["max_tokens"] for row in rows)
    dtypes = ", ".join(names(rows, "dtype"))
    return f"Greedy, {counts} prompts, {tokens} tokens at most, {dtypes}."

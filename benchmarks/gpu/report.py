"""The check as text: what ran, every check, and the speeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu.checks import Check

_MARKS = {"pass": "ok  ", "fail": "FAIL", "skipped": "skip"}
_ARMS = {
    "embedded": "our engine",
    "plain": "no speculation",
    "stock": "stock EAGLE3",
    "static": "ADAPTIVESPEC, one triple",
    "dcs": "ADAPTIVESPEC, dcs",
}


def machine(facts: Mapping[str, Any]) -> str:
    """The machine in two lines."""
    gpu = facts["gpu"]
    device = (
        f"{gpu['name']} ({gpu['memory.total'] / 1024:.0f} GiB), driver {gpu['driver_version']}"
        if gpu
        else f"no GPU, {facts['cpu']}"
    )
    versions = " · ".join(f"{name} {text}" for name, text in facts["versions"].items() if text)
    return f"{device} · CUDA of torch: {facts['cuda']} · Python {facts['python']}\n{versions}"


def engine(name: str, result: Mapping[str, Any]) -> str:
    """What became of an engine, in one line."""
    if skipped := result.get("skipped"):
        return f"{_ARMS[name]}: skipped, {skipped}"
    done = [each for each in result["passes"].values() if "skipped" not in each]
    late = len(result["passes"]) - len(done)
    text = f"{_ARMS[name]}: {result['seconds']:.0f} s, {len(done)} passes"
    text += f", {late} left out for want of time" if late else ""
    return text + (f"; {result['error']}" if result["error"] else "")


def checks(rows: Sequence[Check]) -> str:
    """A line for each check."""
    return "\n".join(f"{_MARKS[row.status]}  {row.name}: {row.detail}" for row in rows)


def states(engines: Mapping[str, Any]) -> str:
    """Seconds and memory of every captured triple."""
    lines = [
        f"  {_ARMS[name]} {tuple(state['triple'])}: {state['seconds']:.2f} s, "
        f"{state['gigabytes']:.2f} GB"
        for name, result in engines.items()
        for state in result.get("states", ())
    ]
    return "\n".join(["states beyond the largest triple's own", *(lines or ["  none"])])


def speed(rows: Sequence[Mapping[str, Any]], device: str) -> str:
    """Output tokens per second by arm and batch size, beside stock EAGLE3 and no speculation.

    Of a CPU only accept lengths are shown: inside SGLang its seconds say nothing.
    """
    if not rows:
        return "speed: nothing was timed"
    lines = [
        "speed: output tokens per second, medians of repeats; the same prompts, warm-up left out.\n"
        "Strict and margin alternate within an engine; engines ran one after another, so a ratio\n"
        "between engines carries the machine's drift between them."
        if device != "cpu"
        else "speed: not shown, for on a CPU inside SGLang seconds say nothing",
        f"{'':36}{'batch':>6}{'tokens/s':>10}{'x plain':>9}{'x stock':>9}"
        f"{'accept length':>15}{'repeats':>9}",
    ]
    at = {(row["engine"], row["batch"]): row["tokens_per_s"] for row in rows}
    for row in sorted(rows, key=lambda row: (row["batch"], list(_ARMS).index(row["engine"]))):
        columns = ["-"] * 3
        if device != "cpu":
            others = [at.get((name, row["batch"])) for name in ("plain", "stock")]
            columns = [f"{row['tokens_per_s']:.1f}"]
            columns += [f"{row['tokens_per_s'] / one:.2f}" if one else "-" for one in others]
        length = "-" if row["accept_length"] is None else f"{row['accept_length']:.3f}"
        lines.append(
            f"{_arm(row):36}{row['batch']:6}{columns[0]:>10}{columns[1]:>9}{columns[2]:>9}"
            f"{length:>15}{row['repeats']:9}"
        )
    return "\n".join(lines)


def steps(engines: Mapping[str, Any]) -> str:
    """Where a step of our engine spends its time, by kappa: host seconds, passes waited for."""
    lines = []
    passes = engines.get("embedded", {}).get("passes", {}).values()
    timed = [done for done in passes if done["timed"] and "answers" in done]
    for kappa in dict.fromkeys(done["timed"]["kappa"] for done in timed):
        answers = [a for done in timed if done["timed"]["kappa"] == kappa for a in done["answers"]]
        count = sum(answer["verifications"] for answer in answers)
        parts = (
            f"{part} {1000 * sum(answer['times'][f'{part}_s'] for answer in answers) / count:.2f}"
            for part in ("draft", "verify", "host")
            if count
        )
        name = _arm({"engine": "embedded", "kappa": kappa})
        lines.append(f"  {name}: {', '.join(parts)}")
    return "\n".join(["milliseconds a step of our engine", *(lines or ["  nothing was timed"])])


def _arm(row: Mapping[str, Any]) -> str:
    kappa = row["kappa"]
    if kappa is None:
        return _ARMS[row["engine"]] + (", plain" if row["engine"] == "embedded" else "")
    return f"{_ARMS[row['engine']]}, " + ("strict" if kappa >= 1 else f"kappa {kappa:g}")

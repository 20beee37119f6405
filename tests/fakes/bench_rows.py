"""Made-up runs of the benchmark: plausible settings and rows, the same for the same seed."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

from adaptivespec.eval.rows import Place, Row
from adaptivespec.eval.settings import ArmSettings, Settings, TaskSettings
from adaptivespec.eval.targets.base import Answer
from adaptivespec.eval.tasks.base import Grade

WORDS = ("the", "a", "sum", "of", "7", "is", "then", "we", "add", "2", "more", "so", "answer")

ARMS = {
    "plain": (1.0, 0.0, "plain"),
    "strict/static:4,2,8": (1.5, 0.0, "arm"),
    "strict/dcs": (1.6, 0.0, "arm"),
    "margin:0.5/dcs": (1.75, 0.02, "frontier"),
    "margin:0.2/dcs": (1.9, 0.05, "arm"),
    "margin:0.05/dcs": (2.1, 0.12, "frontier"),
    "fly/dcs": (1.8, 0.06, "arm"),
    "coin:0.05/dcs": (1.7, 0.05, "control"),
}
"""Name: speed-up, share of promoted tokens, role."""


def settings(
    tasks: tuple[str, ...] = ("json", "functions"),
    items: int = 30,
    arms: tuple[str, ...] = tuple(ARMS),
    restarts: int = 3,
    **changes: Any,
) -> Settings:
    """Settings of a run of made-up tasks."""
    fields: dict[str, Any] = {
        "tasks": [
            TaskSettings(
                name=name,
                title=name.title(),
                graded=name != "chat",
                max_tokens=80,
                stop=[],
                items=list(range(items)),
                timed=list(range(min(items, 8))),
                dev=[],
                available=items,
                digest=f"digest-{name}",
            )
            for name in tasks
        ],
        "arms": [_arm(name) for name in arms],
        "seed": 0,
        "temperature": 0.0,
        "restarts": restarts,
        "model": {"engine": {"model": "tiny-chat", "weights": "0123"}},
        "targets": {"engine": "this package, float32"},
        "load": {},
        "provenance": {"utc": "2026-01-02T03:04:05Z", "git": "abc1234", "argv": ["bench"]},
    }
    return Settings(**(fields | changes))


def rows(of: Settings, seed: int = 0, phases: tuple[str, ...] = ()) -> list[Row]:
    """Rows of every phase, or of the phases named."""
    found: list[Row] = []
    for task in of.tasks:
        for arm in of.arms:
            found += [_row(of, seed, "quality", 0, task, i, arm) for i in task.items]
        found += [_row(of, seed, "noise", 0, task, i, of.arms[0]) for i in task.items]
        for restart in range(of.restarts):
            for i in task.timed:
                found += [_row(of, seed, "speed", restart, task, i, arm) for arm in of.arms]
    return [row for row in found if not phases or row.place.phase in phases]


def row(
    arm: str,
    index: int,
    *,
    phase: Any = "quality",
    restart: int = 0,
    correct: bool | None = None,
    **answer: Any,
) -> Row:
    """One row of the task json; without more, ten tokens in a second."""
    answer = {
        "text": "x",
        "finish_reason": "stop",
        "completion_tokens": 10,
        "seconds": 1.0,
    } | answer
    grade = None if correct is None else Grade(correct, "yes" if correct else "no")
    return Row(Place(phase, restart, "json", index, arm), 0, Answer(**answer), grade)


def small(**changes: Any) -> Settings:
    """A run of four items and three arms."""
    return settings(
        tasks=("json",), items=4, arms=("plain", "strict/dcs", "margin:0.2/dcs"), **changes
    )


def write(folder: Path, of: Settings, answers: list[Row]) -> Path:
    """A run's folder as the benchmark leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    of.write(folder / "settings.json")
    lines = [json.dumps(row.to_json()) + "\n" for row in answers]
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def _arm(name: str) -> ArmSettings:
    rule, _, policy = ("strict", "", "none") if name == "plain" else name.partition("/")
    lossless = ARMS[name][1] == 0
    role = ARMS[name][2]
    return ArmSettings(
        name=name, rule=rule, policy=policy, role=role, lossless=lossless, target="engine"
    )


def _row(
    of: Settings,
    seed: int,
    phase: Any,
    restart: int,
    task: TaskSettings,
    index: int,
    arm: ArmSettings,
) -> Row:
    factor, rate, _ = ARMS[arm.name]
    own = random.Random(f"{seed}/{task.name}/{index}/{arm.name}/{phase}/{restart}")
    ids, right = _plain_text(seed, task.name, index)
    ids, kinds, margins = _spoiled(seed, task.name, index, arm.name, ids, rate)
    if margins and random.Random(f"{seed}/{task.name}/{index}/{arm.name}").random() < 0.2:
        right = not right
    timed = phase == "speed"
    seconds = 0.01 * len(ids) / factor * own.uniform(0.9, 1.1)
    answer = Answer(
        text=" ".join(WORDS[i] for i in ids),
        finish_reason="stop" if len(ids) < task.max_tokens else "length",
        prompt_tokens=20,
        completion_tokens=len(ids),
        seconds=seconds,
        first_token_s=seconds / 10,
        token_ids=ids,
        pieces=None if timed else [f" {WORDS[i]}" for i in ids],
        kinds=None if timed else kinds,
        margins=None if timed else margins,
        nll=None if timed else 0.3 * len(ids) - sum(math.log(m) for m in margins),
        nll_tokens=0 if timed else len(ids),
        lossless=arm.lossless,
        rule=arm.rule,
        policy=arm.policy,
        stats=_stats(ids, kinds, margins, arm.name),
        timings={
            "prefill_s": seconds * 0.1,
            "draft_s": 0.0 if arm.name == "plain" else seconds * 0.2,
            "verify_s": seconds * 0.5,
            "host_s": seconds * 0.1,
            "total_s": seconds * 0.9,
        },
        shapes=_shapes(ids, arm),
    )
    grade = None
    if phase in ("quality", "noise") and task.graded:
        grade = Grade(right, str(sum(ids) if not right else index), "graded")
    return Row(Place(phase, restart, task.name, index, arm.name), 0, answer, grade)


def _plain_text(seed: int, task: str, index: int) -> tuple[list[int], bool]:
    base = random.Random(f"{seed}/{task}/{index}")
    length = base.randint(20, 60)
    return [base.randrange(len(WORDS)) for _ in range(length)], base.random() < 0.7


def _spoiled(
    seed: int, task: str, index: int, arm: str, ids: list[int], rate: float
) -> tuple[list[int], str, list[float]]:
    """Some tokens promoted; whatever follows the first of them is another text."""
    own = random.Random(f"{seed}/{task}/{index}/{arm}/text")
    ids, kinds, margins = list(ids), [], []
    for position in range(len(ids)):
        if own.random() < rate:
            kinds.append("p")
            margins.append(round(own.uniform(0.2, 0.9), 4))
        else:
            bonus = arm == "plain" or own.random() < 0.5 / ARMS[arm][0]
            kinds.append("b" if bonus else "e")
        if margins:
            ids[position] = own.randrange(len(WORDS))
    return ids, "".join(kinds), margins


def _stats(ids: list[int], kinds: str, margins: list[float], arm: str) -> dict[str, Any]:
    if arm == "plain":
        return {"num_spec_steps": 0, "num_promoted_tokens": 0, "regret_nats": 0.0}
    steps = re.findall("[ep]{0,5}b|[ep]{1,5}", kinds)
    accepted = [step.rstrip("b") for step in steps]
    deepest = max(map(len, accepted))
    return {
        "num_spec_steps": len(steps),
        "num_drafts": len(steps),
        "num_committed_tokens": len(ids),
        "num_draft_tokens": len(steps) * 8,
        "num_accepted_draft_tokens": sum(map(len, accepted)),
        "num_promoted_tokens": len(margins),
        "regret_nats": sum(-math.log(m) for m in margins),
        "accept_length": len(ids) / len(steps),
        "accepted_per_pos": [sum(len(a) > d for a in accepted) for d in range(deepest)],
        "promoted_per_pos": [sum(a[d : d + 1] == "p" for a in accepted) for d in range(deepest)],
    }


def _shapes(ids: list[int], arm: ArmSettings) -> list[list[Any]]:
    if arm.policy == "none":
        return []
    deep = arm.policy == "dcs"
    return [
        [position, [3 + (deep and position % 2), 2, 8], 10]
        for position in range(len(ids) // 32 + 1)
    ]

"""Acceptance and trees of an arm, summed over verify steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from adaptivespec.eval.analysis.figures import Decoding
from adaptivespec.eval.analysis.samples import Samples, ratio
from adaptivespec.eval.targets.base import Answer

__all__ = ["decoding"]


def decoding(samples: Samples, arm: str, tasks: Sequence[str]) -> Decoding:
    """The figures of one arm on some tasks; empty where the target gives no statistics."""
    answers = [row.answer for row in samples.answers(arm, tasks).values()]
    told = [answer.stats for answer in answers if answer.stats]
    sums: dict[str, int] = {
        name: sum(int(stats.get(name) or 0) for stats in told)
        for name in (
            "num_spec_steps",
            "num_drafts",
            "num_committed_tokens",
            "num_draft_tokens",
            "num_accepted_draft_tokens",
        )
    }
    steps = sums["num_spec_steps"]
    accepted = _by_depth(stats.get("accepted_per_pos") for stats in told)
    promoted = _by_depth(stats.get("promoted_per_pos") for stats in told)
    promoted += [0] * (len(accepted) - len(promoted))
    drafts = sums["num_drafts"] or steps
    shapes = _shapes(answers)
    return Decoding(
        steps=steps,
        accept_length=_accept_length(told, sums),
        acceptance_rate=ratio(sums["num_accepted_draft_tokens"], sums["num_draft_tokens"]),
        tree_nodes=ratio(sums["num_draft_tokens"] + steps, steps),
        verified_per_step=ratio(sums["num_draft_tokens"], steps),
        passes_per_step=_mean_passes(shapes),
        exact_by_depth=[(a - p) / drafts for a, p in zip(accepted, promoted, strict=True)]
        if drafts
        else [],
        promoted_by_depth=[p / drafts for p in promoted] if drafts and any(promoted) else [],
        shapes=shapes,
    )


def _accept_length(told: Sequence[dict], sums: dict[str, int]) -> float | None:
    """Committed tokens a step; from the requests' own figures where a server sends no counts."""
    if sums["num_committed_tokens"]:
        return ratio(sums["num_committed_tokens"], sums["num_spec_steps"])
    weighted = [
        (float(stats["accept_length"]), int(stats["num_spec_steps"]))
        for stats in told
        if stats.get("accept_length") is not None and stats.get("num_spec_steps")
    ]
    return ratio(sum(a * n for a, n in weighted), sum(n for _, n in weighted))


def _by_depth(lists: Iterable[Sequence[int] | None]) -> list[int]:
    total: list[int] = []
    for counts in lists:
        for depth, count in enumerate(counts or ()):
            if depth == len(total):
                total.append(0)
            total[depth] += count
    return total


def _shapes(answers: Iterable[Answer]) -> dict[int, dict[str, int]]:
    total: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for answer in answers:
        for position, shape, count in answer.shapes:
            total[int(position)][",".join(map(str, shape))] += int(count)
    return {position: dict(sorted(total[position].items())) for position in sorted(total)}


def _mean_passes(shapes: dict[int, dict[str, int]]) -> float | None:
    counts = [(int(name.split(",")[0]), n) for row in shapes.values() for name, n in row.items()]
    return ratio(sum(passes * n for passes, n in counts), sum(n for _, n in counts))

"""A short generation written by hand, as the page gets it: a header and four steps with texts."""

from __future__ import annotations

import math
from typing import Any

Line = dict[str, Any]

WORDS = [
    *("<end>", "The", " sky", " is", " blue", " red", " grey"),
    *(".", " It", " was", " and", " bright"),
]
END, THE, SKY, IS, BLUE, RED, GREY, DOT, IT, WAS, AND, BRIGHT = range(len(WORDS))


def header(**changes: Any) -> Line:
    """The first line of a trace."""
    return {
        "adaptivespec_trace": 1,
        "model": "tiny",
        "draft_model": "head",
        "rule": "margin:kappa=0.2",
        "policy": "static:3,2,6",
        "lossless": False,
        "dtype": "float32",
        "temperature": 0.0,
        "record_width": None,
        "record_depth": None,
        "prompt_tokens": 5,
        "max_tokens": 20,
        "max_model_len": 100,
        "stop_ids": [END],
        "protected": [END],
        "version": "0.0",
        "threads": 1,
        "created": "2026-01-01T00:00:00+00:00",
        "prompt": "What of the sky?",
        **changes,
    }


def step(
    index: int,
    position: int,
    nodes: list[tuple[int, int]],
    path: list[int],
    run: list[tuple[int, str, float, int]],
    texts: list[str] | None = None,
) -> Line:
    """One step: its tree as (token, parent), the followed path, the run as (token, kind, margin,
    what strict says)."""
    tokens, kinds, margins, strict = (list(column) for column in zip(*run, strict=True))
    depth: list[int] = []
    for _, parent in nodes:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    rank = [sum(p == parent for _, p in nodes[:i]) for i, (_, parent) in enumerate(nodes)]
    words = WORDS if texts is None else texts
    ids = {*tokens, *strict, *(token for token, _ in nodes)}
    promoted = [m for m, kind in zip(margins, kinds, strict=True) if kind == "promoted"]
    return {
        "step": index,
        "position": position,
        "plan": [3, 2, len(nodes)],
        "root_confidence": 0.5 if len(nodes) > 1 else None,
        "num_drafted": 3 * (len(nodes) - 1),
        "num_verified": len(nodes) - 1,
        "num_accepted": len(kinds) - kinds.count("bonus"),
        "num_promoted": len(promoted),
        "committed": len(tokens),
        "regret": -sum(map(math.log, promoted)),
        "tokens": tokens,
        "kinds": kinds,
        "margins": margins,
        "strict": strict,
        "path": path,
        "nodes": {
            "token": [token for token, _ in nodes],
            "parent": [parent for _, parent in nodes],
            "depth": depth,
            "logq": [0.0, *[-0.5 * i for i in range(1, len(nodes))]],
            "rank": rank,
            "target": [strict[min(d, len(strict) - 1)] for d in depth],
            "margin": [0.0, *[0.5] * (len(nodes) - 1)],
        },
        "reason": {"stopped": "depth"},
        "seconds": {"draft": 0.002, "verify": 0.006, "host": 0.002},
        "texts": {str(i): words[i] for i in sorted(ids)},
    }


def steps(texts: list[str] | None = None) -> list[Line]:
    """The root; a tree of which two are exact; a promotion; a plain step; a chain to the end."""
    return [
        step(
            0,
            1,
            [(THE, -1), (SKY, 0), (IT, 0), (IS, 1), (WAS, 1), (RED, 3)],
            [0, 1, 3],
            [(SKY, "exact", 1.0, SKY), (IS, "exact", 1.0, IS), (BLUE, "bonus", 1.0, BLUE)],
            texts,
        ),
        step(
            1,
            4,
            [(BLUE, -1), (AND, 0), (GREY, 1)],
            [0, 1],
            [(AND, "promoted", 0.25, DOT), (BRIGHT, "bonus", 1.0, BRIGHT)],
            texts,
        ),
        step(2, 6, [(BRIGHT, -1)], [0], [(DOT, "bonus", 1.0, DOT)], texts),
        step(
            3,
            7,
            [(DOT, -1), (END, 0), (IT, 1), (IS, 2)],
            [0, 1],
            [(END, "exact", 1.0, END)],
            texts,
        ),
    ]


TEXT = "The sky is blue and bright."
KINDS = ["bonus", "exact", "exact", "bonus", "promoted", "bonus", "bonus", "exact"]


def strict_steps() -> list[Line]:
    """What strict says: the same up to the promotion."""
    return [
        steps()[0],
        step(
            1,
            4,
            [(BLUE, -1), (AND, 0), (GREY, 1)],
            [0],
            [(DOT, "bonus", 1.0, DOT)],
        ),
        step(2, 5, [(DOT, -1), (END, 0)], [0, 1], [(END, "exact", 1.0, END)]),
    ]

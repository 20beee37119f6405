"""Traces written by hand: a tree of width 2 and depth 2 at every position of a short text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptivespec.core.trace import StepTrace
from adaptivespec.core.verdict import Kind
from adaptivespec.replay.trace_file import Header, Trace

EOS = 2
#: A node: token, parent, q, rank, the target's token after it, margin under its parent.
Node = tuple[int, int, float, int, int, float]


def header(**changes: Any) -> Header:
    """A recording's header, with some fields changed."""
    values = {
        "adaptivespec_trace": 1,
        "model": "tiny",
        "draft_model": "head",
        "rule": "strict",
        "policy": "static:2,2,7",
        "lossless": True,
        "dtype": "float32",
        "temperature": 0.0,
        "record_width": 2,
        "record_depth": 2,
        "prompt_tokens": 5,
        "max_tokens": 20,
        "max_model_len": 100,
        "stop_ids": [EOS],
        "protected": [EOS, 60],
        "version": "0.0",
        "threads": 1,
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Header.model_validate({**values, **changes})


def step(position: int, nodes: Sequence[Node], committed: int = 1, **changes: Any) -> StepTrace:
    """A step that committed the target's own token (and whatever else `changes` say)."""
    depth: list[int] = []
    for _, parent, *_ in nodes:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    token, parent, q, rank, target, margin = (list(column) for column in zip(*nodes, strict=True))
    values: dict[str, Any] = {
        "step": position - 1,
        "position": position,
        "plan": (2, 2, 7),
        "root_confidence": nodes[1][2] if len(nodes) > 1 else None,
        "num_drafted": len(nodes) - 1,
        "num_verified": len(nodes) - 1,
        "num_accepted": 0,
        "num_promoted": 0,
        "committed": committed,
        "regret": 0.0,
        "tokens": [target[0]] * committed,
        "kinds": [Kind.BONUS],
        "margins": [1.0],
        "strict": [target[0]],
        "path": [0],
        "nodes": {
            "token": token,
            "parent": parent,
            "depth": depth,
            "logq": [math.log(value) for value in q],
            "rank": rank,
            "target": target,
            "margin": margin,
        },
        "seconds": {"draft": 0.1, "verify": 0.2, "host": 0.3},
    }
    return StepTrace(**{**values, **changes})


def tree(root: int, target: int, *children: Node) -> list[Node]:
    """A root and nodes below it."""
    return [(root, -1, 1.0, 0, target, 0.0), *children]


#: Text 10 11 12 13 EOS. After 10 the drafts are right for two tokens; after 11 the target's 12 was
#: not drafted, and 13 stands close (margin 0.5); after 13 comes EOS.
STEPS = [
    step(
        1,
        tree(
            10,
            11,
            (11, 0, 0.5, 0, 12, 1.0),
            (12, 0, 0.3, 1, 13, 0.25),
            (12, 1, 0.5, 0, 13, 1.0),
            (13, 1, 0.25, 1, 14, 0.5),
            (13, 2, 0.4, 0, EOS, 1.0),
            (11, 2, 0.2, 1, 12, 0.1),
        ),
    ),
    step(
        2,
        tree(
            11,
            12,
            (13, 0, 0.6, 0, 14, 0.5),
            (14, 0, 0.3, 1, 15, 0.1),
            (14, 1, 0.5, 0, EOS, 1.0),
            (15, 1, 0.1, 1, 15, 0.2),
            (15, 2, 0.5, 0, 16, 1.0),
            (16, 2, 0.2, 1, 10, 0.3),
        ),
    ),
    step(3, tree(12, 13, (14, 0, 0.4, 0, 15, 0.3), (15, 0, 0.3, 1, 16, 0.05))),
    step(
        4,
        tree(
            13,
            EOS,
            (EOS, 0, 0.9, 0, 17, 1.0),
            (10, 0, 0.05, 1, 11, 0.4),
            (17, 1, 0.5, 0, 18, 1.0),
            (18, 1, 0.2, 1, 17, 0.9),
            (11, 2, 0.5, 0, 12, 1.0),
            (12, 2, 0.2, 1, 13, 0.9),
        ),
    ),
]


def trace(steps: Sequence[StepTrace] = STEPS, **changes: Any) -> Trace:
    """A trace as if it had been read, by default the recording above."""
    return Trace(Path("t.jsonl"), header(**changes), list(steps))

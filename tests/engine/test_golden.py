"""Golden traces: every field of every step of a few scripted requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from fakes.scripted import EOS, Prefix, engine, prefer

A, B, C, D, E = 1, 2, 3, 4, 5
ARMS: dict[str, dict[str, Any]] = {
    "strict": {},
    "margin": {"rule": "margin", "kappa": 0.1},
    "safe": {"rule": "safe"},
    "sampled": {"rule": "margin", "kappa": 0.1, "temperature": 1.0, "seed": 11},
}


def logits(prefix: Prefix) -> list[float]:
    """B C D E round and round, the next one close behind; EOS after 14 tokens."""
    if len(prefix) > 14:
        return prefer(EOS)
    first = (B, C, D, E)[len(prefix) % 4]
    return prefer(first, (B, C, D, E)[(len(prefix) + 1) % 4], best=6.0)


def nodes(prefix: Prefix) -> list[tuple[int, int]]:
    """Right for a while beside a branch that only a promotion would take; at every third place
    that branch alone."""
    place = len(prefix) + 1
    right = [(B, C, D, E)[(place + i) % 4] for i in range(3)]
    if place % 3 == 0:
        return [(right[1], -1), (right[1], 0), (right[2], 0), (right[0], 2)]
    return [(right[0], -1), (right[1], -1), (right[1], 0), (right[0], 1), (right[0], 2)]


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("policy", ["chain:2", "static:3,2,6", "dcs"])
def test_golden(arm: str, policy: str, snapshot: SnapshotAssertion) -> None:
    result = engine(logits, nodes).generate(
        [A], policy=policy, max_tokens=20, trace=True, **ARMS[arm]
    )
    assert result.trace is not None
    rows = []
    for step in result.trace:
        row = step.to_json()
        del row["seconds"]
        row["margins"] = [round(margin, 5) for margin in row["margins"]]
        row["regret"] = round(row["regret"], 4)
        del row["nodes"]["logq"]
        rows.append(json.dumps(row))
    seen = {key: value for key, value in result.to_json().items() if key != "timings"}
    seen["speculative"]["regret_nats"] = round(seen["speculative"]["regret_nats"], 4)
    assert [*rows, json.dumps(seen)] == snapshot

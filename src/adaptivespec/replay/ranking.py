"""Rules and policies side by side on the same traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptivespec.core.registry import split_specs
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.policy.costs import CostProfile
from adaptivespec.replay.arm import Arm, check_trace
from adaptivespec.replay.records import Records
from adaptivespec.replay.trace_file import Trace
from adaptivespec.verify import make_rule

__all__ = ["default_policies", "ranked", "row_of", "split_specs", "to_json"]


def default_policies(costs: Sequence[CostProfile]) -> list[str]:
    """Every policy with its defaults; those that need costs only where there are some."""
    return [name for name in POLICIES.names() if costs or not make_policy(name).needs_costs]


def ranked(
    traces: Sequence[Trace],
    rules: Sequence[str],
    policies: Sequence[str],
    costs: Sequence[CostProfile] = (),
    seed: int = 0,
) -> list[Arm]:
    """Replay every rule with every policy under every cost profile.

    In the order of the profiles, the fastest first; without profiles, by tokens per step.

    Raises:
        ConfigError: a rule or policy is unknown or cannot be replayed.
        TraceError: a trace cannot be replayed.
    """
    arms = [
        Arm(make_rule(rule), make_policy(policy), cost, seed)
        for cost in costs or (None,)
        for rule in rules
        for policy in policies
    ]
    for trace in traces:
        check_trace(trace)
    for trace in traces:
        records = Records(trace)
        for arm in arms:
            arm.take(records)

    def place(arm: Arm) -> tuple[int, float]:
        if arm.cost is None:
            return 0, -(arm.stats.accept_length or 0.0)
        return costs.index(arm.cost), arm.ms_per_token or 0.0

    return sorted(arms, key=place)


def row_of(arm: Arm) -> dict[str, Any]:
    """An arm as JSON values: names as everywhere, see docs/metrics.md."""
    stats = arm.stats
    steps, tokens = stats.num_spec_steps, stats.num_committed_tokens
    return {
        "rule": arm.rule.label,
        "policy": arm.policy.label,
        "cost": arm.cost.name if arm.cost is not None else None,
        "lossless": arm.rule.lossless,
        "exactness": arm.exactness,
        **stats.as_dict(),
        "num_committed_tokens": tokens,
        "mean_levels": arm.num_levels / steps if steps else None,
        "promotions_per_100": 100 * stats.num_promoted_tokens / tokens if tokens else None,
        "ms_per_token": arm.ms_per_token,
        "speedup": arm.speedup,
    }


def to_json(traces: Sequence[Trace], arms: Sequence[Arm]) -> dict[str, Any]:
    """The object that `adaptivespec replay --json` prints."""
    return {
        "traces": [
            {
                "file": str(trace.path),
                "num_steps": len(trace.steps),
                "recording": trace.recording,
                "truncated": trace.truncated,
                "header": trace.header.model_dump(mode="json"),
            }
            for trace in traces
        ],
        "rows": [row_of(arm) for arm in arms],
    }

"""Recordings: a wide tree drafted at every position of a greedy text.

Each step commits the target's own token alone, so the file of the steps holds a tree for every
position. Any policy that draws smaller trees can be replayed on it.
"""

from __future__ import annotations

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.policy.base import MOST_STEPS, Policy, TreePlan, available_nodes
from adaptivespec.verify.base import Rule

__all__ = ["DEFAULT_DEPTH", "MOST_WIDTH", "recording_plan"]

MOST_WIDTH = 16
DEFAULT_DEPTH = 8


def recording_plan(
    record: tuple[int, int],
    rule: Rule,
    params: SamplingParams,
    policy: str | Policy = "auto",
    trace: bool = True,
) -> TreePlan:
    """The tree of a recording: `record` is (width, depth), and every candidate is kept.

    On each level the `width` likeliest nodes are expanded, by `width` children each.

    Raises:
        ConfigError: width or depth is out of bounds, the text would not be the target's own greedy
            one, a policy is given beside, or there is no trace to record into.
    """
    width, depth = record
    _within("record_width", width, MOST_WIDTH)
    _within("record_depth", depth, MOST_STEPS)
    if not trace:
        raise ConfigError(
            "a recording is written into a trace", field="trace", remedy="Add --trace FILE"
        )
    if not rule.lossless or rule.sampled_drafts:
        raise ConfigError(
            f"'{rule.name}' cannot be recorded: a recording follows the target's own tokens",
            field="rule",
            remedy="Leave it out; `adaptivespec replay --rules` tries rules on the recording",
        )
    if not params.greedy:
        raise ConfigError(
            f"a recording is made at temperature 0, got {params.temperature:g}",
            field="temperature",
            remedy="Leave it out, or leave out --record-width",
        )
    if policy != "auto":
        raise ConfigError(
            "a recording drafts the same wide tree at every position",
            field="policy",
            remedy="Leave it out; `adaptivespec replay --policies` tries policies on the recording",
        )
    return TreePlan(depth, width, available_nodes(depth, width))


def _within(field: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ConfigError(f"must be in [1, {most}], got {value}", field=field)

"""Costs as they turn out, and the long-run rate of tokens per second."""

from __future__ import annotations

from dataclasses import dataclass, field

from adaptivespec.policy.base import Outcome
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.plan import TreePlan

_SEED_ROUNDS = 10.0  # rounds of plain decoding that the rate starts from
_LEARN = 0.05  # weight of one round in a correction
_OUTLIER = 5.0  # a pass this many times slower than expected was interrupted, and teaches nothing


@dataclass
class Clock:
    """Corrections to a cost profile, and tokens and seconds with exponential decay.

    Attributes:
        half_life: rounds, of the rate.
        tokens, seconds: decayed sums; their quotient is the rate.
        verify: observed / profiled seconds of verify passes, by their number of nodes.
        scale: the same over all sizes, for those not seen yet.
        draft: the same for passes of the drafter.
    """

    half_life: float = 200.0
    tokens: float = 0.0
    seconds: float = 0.0
    verify: dict[int, float] = field(default_factory=dict)
    scale: float = 1.0
    draft: float = 1.0

    def rate(self, costs: CostProfile) -> float:
        """Tokens per second; that of plain decoding before the first round."""
        return self.tokens / self.seconds if self.seconds else 1 / _plain_s(costs)

    def verify_s(self, costs: CostProfile, nodes: int, context: int) -> float:
        """Seconds of a verify pass, as experience corrects the profile."""
        return costs.verify_s(nodes, context) * self.verify.get(nodes, self.scale)

    def draft_s(self, costs: CostProfile, rows: int) -> float:
        """Seconds of a pass of the drafter, corrected likewise."""
        return costs.draft_s(rows) * self.draft

    def observe(self, costs: CostProfile, plan: TreePlan, outcome: Outcome, online: bool) -> None:
        """Take in one round: by its own seconds, or (not ``online``) by the profile's."""
        if not self.seconds:
            self.tokens, self.seconds = _SEED_ROUNDS, _SEED_ROUNDS * _plain_s(costs)
        nodes = outcome.num_verified + 1
        levels = outcome.draft.num_levels if outcome.draft is not None else plan.num_steps
        passes = max(levels - 1, 0)
        expected = costs.verify_s(nodes, outcome.context_len)
        drafting = passes * costs.draft_s(plan.width)
        spent = expected + drafting + costs.overhead
        if online and outcome.seconds:
            verify, draft = outcome.seconds["verify"], outcome.seconds["draft"]
            if max(verify, 1e-9) > _OUTLIER * max(expected * self.scale, 1e-9):
                return
            spent = sum(outcome.seconds.values())
            if expected > 0:
                ratio = verify / expected
                self.scale += _LEARN * (ratio - self.scale)
                old = self.verify.get(nodes, self.scale)
                self.verify[nodes] = old + _LEARN * (ratio - old)
            if drafting > 0:
                self.draft += _LEARN * (max(draft - costs.overhead, 0.0) / drafting - self.draft)
        decay = 0.5 ** (1 / self.half_life)
        self.tokens = self.tokens * decay + outcome.committed
        self.seconds = self.seconds * decay + spent


def _plain_s(costs: CostProfile) -> float:
    return max(costs.verify_s(1) + costs.overhead, 1e-9)

"""How much to draft when several sequences share a pass.

Alone, a pass reads the weights for one row, and further rows are cheap; that is what drafts live
on.  With company the pass is full of rows that are certain to give a token each, and a drafted row
has to earn as much as one of them.
"""

from __future__ import annotations

from adaptivespec.engine.request import Step
from adaptivespec.policy.costs import CostProfile

#: Drafted levels that are considered.
_MOST = 8
#: Seconds that are told apart.
_TICK = 0.0001
#: How often a draft is accepted, and seconds of the host per step and sequence, before anything is
#: known; and the weight of the last step.
_ACCEPTANCE, _HOST_S, _WEIGHT = 0.6, 0.0003, 0.02


class DraftLoad:
    """The depth of drafts that gives the most tokens per second under measured costs.

    With R sequences drafting chains of d levels each, of which every level is followed with
    probability p once the one before it was,

        tokens / second = R (1 + p + ... + p^d) / (R (host + d draft) + verify(R (1 + d)))

    The profile gives draft and verify.  p, and what a step costs beside its passes, are learnt from
    the steps that are taken: a busy host makes few steps of many tokens worth more.

    Args:
        costs: of this machine.
        every_rule: also for requests whose tokens depend on what is drafted.
    """

    def __init__(self, costs: CostProfile, every_rule: bool = False) -> None:
        self.costs, self.every_rule = costs, every_rule
        self.acceptance, self.host_s = _ACCEPTANCE, _HOST_S
        self._known: dict[tuple[int, int, int, int], int] = {}

    def most_nodes(self, company: int, context: int = 0) -> int:
        """Nodes per tree, root included, for one of `company` sequences of `context` tokens."""
        key = company, round(20 * self.acceptance), round(self.host_s / _TICK), context // 256
        if key not in self._known:
            depths = range(_MOST + 1)
            self._known[key] = 1 + max(depths, key=lambda depth: self._rate(depth, *key))
        return self._known[key]

    def observe(self, step: Step) -> None:
        """Learn how often a drafted token is accepted once the one before it was."""
        if step.trace is None or not step.trace.num_verified:
            return
        accepted, levels = step.trace.num_accepted, step.trace.plan[0]
        tried = min(accepted + 1, step.trace.num_verified, max(levels, 1))
        self.acceptance += _WEIGHT * (accepted / max(tried, accepted) - self.acceptance)

    def observe_host(self, seconds: float, company: int) -> None:
        """Learn what a step of `company` sequences took beside drafting, verifying and reading."""
        self.host_s += _WEIGHT * (max(seconds, 0.0) / company - self.host_s)

    def _rate(self, depth: int, company: int, twentieths: int, ticks: int, block: int) -> float:
        tokens = sum((twentieths / 20) ** level for level in range(depth + 1))
        alone = ticks * _TICK + depth * self.costs.draft_s(1)
        if depth:
            alone += self.costs.overhead  # the drafter reads what was committed
        shared = self.costs.verify_s(company * (1 + depth), 256 * block)
        return company * tokens / (company * alone + shared)

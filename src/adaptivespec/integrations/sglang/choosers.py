"""The embedded engine's adaptive policies, for batches that share a triple.

They decide by the embedded engine's own parts, so that a batch of one is served as there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Generic, TypeVar, cast

from adaptivespec.integrations.sglang.batch import BatchPolicy, Triple, check_triple
from adaptivespec.policy.base import Outcome, Policy, TreePlan
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.dcs import Combine, DcsOptions, DcsPolicy, combine, interpolate, reachable
from adaptivespec.policy.ema import EmaOptions, EmaPolicy
from adaptivespec.policy.priced import best_arm, deeper, time_to_explore
from adaptivespec.policy.rate import Clock, Correction, Round
from adaptivespec.policy.survival import Survival

P = TypeVar("P", bound=Policy)

_UNKNOWN = 0.5  # of a request with no confidence and no past
_FOLLOW_WEIGHT = 0.3  # of the last round in how often a request's first draft is followed
_SIZES = 128  # bins of the correction of costs: up to 35,000 nodes
_SETTLING = 8  # rounds whose seconds set the scale of the costs
_SLOWEST = 3.0  # a round counts as at most so many times as slow as expected


class Confidences:
    """The drafter's confidence, and what stands in for it where it is unknown.

    That is how often the first draft of the request was followed lately, an EMA: what a calibrated
    drafter's confidence would be on average.
    """

    def __init__(self) -> None:
        self._followed: dict[str, float] = {}

    def join(self, requests: Sequence[str]) -> None:
        """Get to know requests."""
        for request in requests:
            self._followed.setdefault(request, _UNKNOWN)

    def fill(self, requests: Sequence[str], given: Sequence[float] | None) -> list[float]:
        """One for each request, never NaN."""
        if given is None:
            return [self._followed.get(request, _UNKNOWN) for request in requests]
        return [
            self._followed.get(request, _UNKNOWN) if math.isnan(value) else value
            for request, value in zip(requests, given, strict=True)
        ]

    def observe(self, requests: Sequence[str], accepted: Sequence[int]) -> None:
        """A round is done; those that nobody knows stay unknown."""
        for request, count in zip(requests, accepted, strict=True):
            if (before := self._followed.get(request)) is not None:
                self._followed[request] = before + _FOLLOW_WEIGHT * ((count > 0) - before)

    def forget(self, requests: Sequence[str]) -> None:
        """Drop what is known of them."""
        for request in requests:
            self._followed.pop(request, None)


class PerRequest(BatchPolicy, Generic[P]):
    """A policy of the embedded engine for each request, and a way to make one triple of them.

    Args:
        model: what each request gets one of.
        triples: all that can come of it.
        how: what the batch goes by: the mean, median or minimum over its requests.

    Attributes:
        where: the options that its triples come of, for errors.
    """

    where: ClassVar[str]

    def __init__(self, model: P, triples: Sequence[Triple], how: Combine) -> None:
        for triple in triples:
            check_triple(triple, self.where)
        self.triples = tuple(triples)
        self.label = model.label
        self._model, self._how = model, how
        self._known: dict[str, P] = {}
        self._confidences = Confidences()

    def join(self, requests: Sequence[str]) -> None:
        """A fresh policy for each request that is new."""
        self._confidences.join(requests)
        for request in requests:
            if request not in self._known:
                self._known[request] = type(self._model)(self._model.options)

    def observe(
        self,
        requests: Sequence[str],
        triple: Triple,
        accepted: Sequence[int],
        confidence: Sequence[float] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Each request's policy learns from its own outcome."""
        plan = TreePlan(*triple)
        for request, count in zip(requests, accepted, strict=True):
            if (policy := self._known.get(request)) is not None:
                self._learn(policy, plan, Outcome(count, 0, triple[2] - 1, count + 1))
        self._confidences.observe(requests, accepted)

    def _learn(self, policy: P, plan: TreePlan, outcome: Outcome) -> None:
        policy.observe(plan, outcome)

    def forget(self, requests: Sequence[str]) -> None:
        """Drop their policies."""
        self._confidences.forget(requests)
        for request in requests:
            self._known.pop(request, None)


class BatchDcs(PerRequest[DcsPolicy]):
    """AdaptiveSpec's map at the mean, median or minimum of the requests' scores.

    (arXiv 2609.02897.)
    """

    needs_confidence = True
    where = "policy_options.low..high"

    def __init__(self, model: DcsPolicy, how: Combine) -> None:
        options = cast(DcsOptions, model.options)
        self._low, self._high = options.low, options.high
        super().__init__(model, reachable(self._low, self._high), how)

    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The triple at the combined score."""
        self.join(requests)
        filled = self._confidences.fill(requests, confidence)
        scores = [self._known[r].score(c) for r, c in zip(requests, filled, strict=True)]
        score = combine(scores, self._how)
        triple = interpolate(score, self._low, self._high)
        if triple not in self.triples:  # rounded across one of two edges that are the same
            triple = interpolate(score * (1 + 1e-12), self._low, self._high)
        return triple


class BatchEma(PerRequest[EmaPolicy]):
    """The longest chain within the mean, median or minimum of the lengths the requests are at."""

    where = "policy_options.candidates"

    def __init__(self, model: EmaPolicy, how: Combine) -> None:
        lengths = cast(EmaOptions, model.options).candidates
        super().__init__(model, [(steps, 1, steps + 1) for steps in lengths], how)

    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The chain for the combined length."""
        self.join(requests)
        steps = combine([self._known[request].steps for request in requests], self._how)
        return max(triple for triple in self.triples if triple[0] <= steps)

    def _learn(self, policy: EmaPolicy, plan: TreePlan, outcome: Outcome) -> None:
        # Drafts that were followed to the end of a shorter chain than the request is at say
        # nothing of what would have come; where they ended before, they do.
        if outcome.num_accepted < plan.num_steps or plan.num_steps >= policy.steps:
            policy.observe(TreePlan(policy.steps, 1, policy.steps + 1), outcome)


class BatchPriced(BatchPolicy):
    """The triple of most tokens after paying for its time, for the batch as a whole.

    argmax over the arms of sum G(request) - rate T(batch), as mode ``triple`` of ``priced``: G by
    survival curves that all requests share, T from ``costs`` at batch * num_draft_tokens verified
    nodes and batch * topk rows a draft pass. Two rounds in a hundred look at the next deeper arm,
    and another arm is taken only for 1 % of G. The first rounds that are measured set the scale of
    ``costs``, the later ones correct it by size. A round is measured as a whole and shared out
    between its passes in the proportion expected, so that what a pass of the drafter takes beside
    one of the target is learnt slowly. No context length is taken into account.

    Args:
        arms: legal triples to choose from.
        costs: what passes cost, in any unit of time.
        half_life: rounds, of the rate of tokens per second.
        online: False = never go by the seconds observed.
        label: as ``BatchPolicy`` has it.
    """

    needs_confidence = True

    def __init__(
        self,
        arms: Sequence[Triple],
        costs: CostProfile,
        half_life: float = 200.0,
        online: bool = True,
        label: str = "priced",
    ) -> None:
        for arm in arms:
            check_triple(arm, "policy_options.arms")
        self.triples = tuple(dict.fromkeys(arms))
        self.label = label
        self._costs, self._online = costs, online
        self._clock = Clock(half_life, verify=Correction(_SIZES))
        self._survival = Survival()
        self._confidences = Confidences()
        self._slowness: list[float] = []
        self._arm = self._rounds = 0

    def join(self, requests: Sequence[str]) -> None:
        """Get to know requests."""
        self._confidences.join(requests)

    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The arm of largest worth, at times the next deeper one."""
        self.join(requests)
        filled = self._confidences.fill(requests, confidence)
        arms, survival, clock = self.triples, self._survival, self._clock
        best = best_arm(arms, self._arm, survival, clock, self._costs, filled)
        exploring = time_to_explore(self._rounds)
        self._rounds += 1
        if exploring:
            return deeper(arms, arms[best])
        self._arm = best
        return arms[best]

    def observe(
        self,
        requests: Sequence[str],
        triple: Triple,
        accepted: Sequence[int],
        confidence: Sequence[float] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Learn acceptance, costs and the rate."""
        filled = self._confidences.fill(requests, confidence)
        for value, count in zip(filled, accepted, strict=True):
            self._survival.count(triple, value, count)
        self._confidences.observe(requests, accepted)
        work = Round.of(triple, batch=len(requests))
        committed = sum(accepted) + len(requests)
        self._clock.add(self._costs, work, committed, self._shares(work, seconds))

    def _shares(self, work: Round, seconds: float | None) -> dict[str, float]:
        """Seconds of verify and draft in the unit of the costs; empty = go by the costs."""
        passes, overhead = self._clock.passes_s(self._costs, work), self._costs.overhead
        expected = passes + overhead
        if not self._online or seconds is None or not 0 < seconds < math.inf or passes <= 0:
            return {}
        if len(self._slowness) < _SETTLING:
            self._slowness.append(seconds / expected)
            return {}
        spent = min(seconds / median(self._slowness), _SLOWEST * expected)
        share = self._clock.verify_s(self._costs, work.nodes, work.context) / passes
        verify = share * max(spent - overhead, 0.0)
        return {"verify": verify, "draft": spent - verify}

    def forget(self, requests: Sequence[str]) -> None:
        """Drop what is theirs; what was learnt from them stays."""
        self._confidences.forget(requests)

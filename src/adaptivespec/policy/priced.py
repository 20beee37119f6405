"""Priced trees: the shape that earns most tokens after paying for its time.

Rounds repeat until the text ends, so throughput is the sum of tokens over the sum of time, and the
best shape of a round maximises G(S) - rate * T(S): expected tokens less the price of its seconds at
the long-run rate of tokens per second (renewal reward). G comes from calibrated acceptance, T from
the costs of this machine; both keep learning. The tree is decided in three places, all of them
numbers in the plan: stop drafting when no further level is worth its pass, verify the size that
pays best, and draft nothing when that is the root alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, cast

from pydantic import Field, field_validator, model_validator

from adaptivespec.core.draft import Draft
from adaptivespec.core.errors import ConfigError
from adaptivespec.policy.acceptance import Calibration
from adaptivespec.policy.base import (
    MOST_NODES,
    MOST_STEPS,
    MOST_TOPK,
    NOTHING,
    Outcome,
    Policy,
    PolicyOptions,
    Signals,
    TreePlan,
)
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.plan import Lookahead, Stop
from adaptivespec.policy.rate import Clock, Round
from adaptivespec.policy.survival import Survival, moments

Triple = tuple[int, int, int]
_LOOKAHEAD = 3  # levels
_FOLLOW_PRIOR = 8.0  # rounds that the first guess of h counts for


class PricedOptions(PolicyOptions):
    """Options of priced trees."""

    num_draft_tokens: int = Field(
        32, ge=1, le=MOST_NODES, description="most nodes verified, root included"
    )
    topk: int = Field(4, ge=1, le=MOST_TOPK, description="children per node; nodes per level")
    num_steps: int = Field(8, ge=1, le=MOST_STEPS, description="most levels")
    mode: Literal["tree", "triple"] = Field(
        "tree", description="tree: any shape; triple: one of arms, for engines with captured graphs"
    )
    arms: tuple[Triple, ...] = Field(
        ((1, 1, 1), (1, 4, 4), (2, 4, 8), (3, 1, 4), (3, 4, 8), (5, 1, 6), (5, 4, 16), (7, 4, 16)),
        min_length=1,
        description="triples of mode triple; num_draft_tokens 1 drafts nothing",
    )
    sizes: tuple[int, ...] = Field(
        (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64),
        min_length=1,
        description="sizes that may be verified, root included",
    )
    prior: float = Field(20.0, gt=0, description="weight of the drafter's own q in c")
    decay: float = Field(0.999, gt=0, le=1, description="of the counts behind c, per round")
    shift: float = Field(0.1, ge=0, le=1, description="step of a request's shift of logit c")
    half_life: float = Field(200.0, gt=0, description="rounds, of the rate of tokens per second")
    explore_every: int = Field(64, ge=1, description="rounds without drafts before one with some")
    patience: int = Field(5, ge=1, description="rounds without acceptance that reset the shift")
    online: bool = Field(True, description="learn costs from the clock; false = the profile alone")

    @field_validator("sizes")
    @classmethod
    def _rising(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError(f"must rise and be at least 1, got {list(sizes)}")
        return sizes

    @model_validator(mode="after")
    def _some_size_fits(self) -> PricedOptions:
        if self.sizes[0] > self.num_draft_tokens:
            raise ValueError(
                f"sizes begin with {self.sizes[0]}, above num_draft_tokens, {self.num_draft_tokens}"
            )
        return self

    @field_validator("arms")
    @classmethod
    def _legal(cls, arms: tuple[Triple, ...]) -> tuple[Triple, ...]:
        for arm in arms:
            TreePlan(*arm)  # bounds
        return arms


@dataclass
class PricedMemory:
    """What priced trees learn over requests.

    Attributes:
        calibration: counts behind c.
        clock: costs as they turn out, and the rate of tokens per second.
        follow: (followed, reached) by depth: how often some child of a followed node was followed.
        survival: acceptance by root confidence, for mode triple.
        nodes: mean size of the trees verified lately.
    """

    calibration: Calibration
    clock: Clock
    survival: Survival
    follow: list[list[float]] = field(
        default_factory=lambda: [[0.6 * _FOLLOW_PRIOR, _FOLLOW_PRIOR] for _ in range(MOST_STEPS)]
    )
    nodes: float = 8.0


class PricedPolicy(Policy):
    """Expected tokens minus the price of time, under measured costs and calibrated acceptance.

    A node scores a(u), the product of c along its path. The verified size n maximises 1 + the sum
    of the best n - 1 a's less rate * t_verify(n); n = 1 drafts nothing. Growing goes on while, for
    some j <= 3, what the next j levels should hold above the bar exceeds rate * j t_draft: under a
    frontier node of score a they should hold a h, ..., a h^j, h being how often a level was
    followed once its parent was, and the bar is what a node must score to be verified. The rule's
    own promotions count as follows, so c knows kappa by itself. Mode ``triple`` chooses among fixed
    triples by survival curves instead.

    The shape depends on what earlier requests taught, and with ``online`` on the clock. That never
    changes the law of strict decoding, but a lossy rule may promote other tokens in another run of
    the same prompt, and near ties in low precision may fall differently.
    """

    name: ClassVar[str] = "priced"
    formula: ClassVar[str] = "argmax of 1 + sum a(u) - rate (levels t_draft + t_verify(n))"
    source: ClassVar[str] = "AdaptiveSpec; renewal reward"
    Options: ClassVar[type[PolicyOptions]] = PricedOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__(options)
        self._opts = o = cast(PricedOptions, self.options)
        self.memory: PricedMemory = PricedMemory(
            Calibration(o.prior, o.decay), Clock(o.half_life), Survival()
        )
        self._arm = 0
        self._rounds = 0
        self.begin()

    @property
    def needs_costs(self) -> bool:
        """Always."""
        return True

    def begin(self) -> None:
        """The request's shift and its counters back to zero."""
        self.shift = 0.0
        self._failures = self._idle = 0

    def propose(self, signals: Signals) -> TreePlan:
        """The plan with its numbers filled in; nothing is drafted yet."""
        if self.costs is None:
            raise ConfigError(
                "priced trees need to know what a pass costs",
                field="policy",
                remedy="Set policy.costs to a CostProfile; the engine does so by itself",
            )
        clock = self.memory.clock
        if self._opts.mode == "triple":
            return self._triple(self.costs, signals)
        rate, context = clock.rate(self.costs), signals.context_len
        o, sizes = self._opts, [n for n in self._opts.sizes if n <= self._opts.num_draft_tokens]
        exploring = self._idle >= o.explore_every
        prices = tuple(
            (n, rate * clock.verify_s(self.costs, n, context))
            for n in sizes
            if not (exploring and n == 1)
        )
        return TreePlan(
            o.num_steps,
            o.topk,
            max(sizes[-1], 2),
            stop=Stop(lookahead=self._lookahead(self.costs, rate)),
            prices=prices,
            acceptance=self.memory.calibration.acceptance(self.shift),
        )

    def _lookahead(self, costs: CostProfile, rate: float) -> Lookahead:
        """How often levels are followed, and the price of one to three more passes."""
        level = rate * self.memory.clock.draft_s(costs, self._opts.topk)
        return Lookahead(
            follow=tuple(followed / reached for followed, reached in self.memory.follow),
            price=tuple(j * level for j in range(1, _LOOKAHEAD + 1)),
        )

    def _triple(self, costs: CostProfile, signals: Signals) -> TreePlan:
        """The best arm, or the next deeper one where it is time to look at that."""
        arms, survival, clock = self._opts.arms, self.memory.survival, self.memory.clock
        confidence, context = [signals.root_confidence], signals.context_len
        best = best_arm(arms, self._arm, survival, clock, costs, confidence, context)
        chosen = deeper(arms, arms[best]) if self._exploring else arms[best]
        return TreePlan(*chosen) if chosen[2] > 1 else NOTHING

    @property
    def _exploring(self) -> bool:
        """Whether mode triple looks at the next deeper arm: 2 % of rounds, or too long without."""
        return self._idle >= self._opts.explore_every or time_to_explore(self._rounds)

    def observe(self, plan: TreePlan, outcome: Outcome) -> None:
        """Learn costs, rate, acceptance and follow rates; move the request's shift."""
        memory, o = self.memory, self._opts
        triple = plan.triple if not plan.draft_nothing else (1, 1, 1)
        if triple in o.arms and not self._exploring:
            self._arm = o.arms.index(triple)
        self._rounds += 1
        if self.costs is not None:
            memory.clock.observe(self.costs, plan, outcome, online=o.online)
        if not outcome.num_verified:
            self._idle += 1
            return
        self._idle = 0
        memory.nodes += 0.05 * (outcome.num_verified + 1 - memory.nodes)
        # A step cut short by the text's end says nothing of the nodes after the cut.
        judged = list(outcome.path)
        if outcome.committed < len(judged):
            judged.pop()
        if outcome.draft is not None:
            slope = memory.calibration.observe(outcome.draft, judged)
            self.shift += o.shift * slope
            self.shift = min(2.0, max(-2.0, self.shift))
            self._count_follows(outcome.draft, outcome.path, len(judged))
        memory.survival.observe(plan, outcome)
        self._failures = 0 if outcome.num_accepted else self._failures + 1
        if self._failures >= o.patience:
            self.shift, self._failures = 0.0, 0

    def _count_follows(self, draft: Draft, path: Sequence[int], judged: int) -> None:
        """At each depth that was reached and had drafts: whether one of them was followed."""
        parents = set(draft.tree.parent.tolist())
        for depth, node in enumerate(path[:judged]):
            if node in parents:
                counts = self.memory.follow[depth]
                counts[0] = counts[0] * self._opts.decay + (depth + 1 < len(path))
                counts[1] = counts[1] * self._opts.decay + 1

    def largest(self) -> TreePlan:
        """The options' own bounds, or those of all arms."""
        o = self._opts
        if o.mode == "triple":
            steps, topk, tokens = (max(column) for column in zip(*o.arms, strict=True))
            return TreePlan(steps, topk, tokens)
        return TreePlan(o.num_steps, o.topk, max(o.num_draft_tokens, 2))


def best_arm(
    arms: Sequence[Triple],
    current: int,
    survival: Survival,
    clock: Clock,
    costs: CostProfile,
    confidences: Sequence[float],
    context: int = 0,
) -> int:
    """Index of the arm of largest G - rate T for a batch; ``current`` unless 1 % of G is gained.

    Args:
        arms: triples to choose from.
        current: index of the one in force.
        survival: what G comes from.
        clock: corrects the costs, and knows the rate.
        costs: what passes cost on this machine.
        confidences: root confidence of each request of the batch.
        context: tokens in the context.
    """
    batch = len(confidences)
    sums = moments(confidences, max(steps for steps, _, _ in arms))
    rate = clock.rate(costs, batch)
    tokens = [survival.total(arm, sums) for arm in arms]
    worth = [
        gain - rate * clock.passes_s(costs, Round.of(arm, context, batch))
        for gain, arm in zip(tokens, arms, strict=True)
    ]
    best = max(range(len(arms)), key=worth.__getitem__)
    return best if worth[best] - worth[current] > 0.01 * tokens[current] else current


def deeper(arms: Sequence[Triple], chosen: Triple) -> Triple:
    """The next deeper arm that drafts something, ``chosen`` where there is none."""
    return min((arm for arm in arms if arm[0] > chosen[0] and arm[2] > 1), default=chosen)


def time_to_explore(rounds: int) -> bool:
    """Whether the round after so many others is one of the 2 % that look deeper."""
    return rounds % 50 == 49

"""Replay: every step decided anew, by another rule and another policy, on the trees on record.

At a recorded position a policy plans, the plan is carried out on the recorded offers, the rule
chooses on that tree, and the walk says how many tokens the step commits; the next step starts at
the record that many positions on. Under a lossless rule the text is the recorded one whatever was
drafted, so the outcome is that of a real run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.stats import Statistics
from adaptivespec.core.trace import StepTrace
from adaptivespec.core.verdict import Verdict, verdict
from adaptivespec.policy.base import NOTHING, Outcome, Policy, Signals, TreePlan
from adaptivespec.policy.costs import CostProfile
from adaptivespec.replay.records import Record, Records, Sub
from adaptivespec.replay.trace_file import Trace, TraceError
from adaptivespec.verify.base import Rule, VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits

__all__ = ["Arm", "check_rule", "check_trace"]

_RUN = "Run it with `adaptivespec generate`"
# Precisions in which a row's result does not depend on how many rows a pass has.
_ROW_EXACT = {"float32", "A8", "A16"}


@dataclass
class Arm:
    """One rule with one policy under one cost profile, and what came of it.

    The policy keeps its memory from trace to trace, as in an engine that answers one prompt after
    the other.

    Attributes:
        rule, policy: as they decide.
        cost: what passes cost; None = time is not predicted, and policies are told of none.
        seed: of the promotion stream, for rules that draw at temperature 0.
        stats: over all steps.
        num_levels: sum of the levels grown.
        num_incomplete: steps that asked for nodes that were not recorded.
        num_changed: steps that emitted something else than strict would.
        num_alone: steps of traces without a tree at every position.
        rounding: dtypes of traces so coarse that the size of a tree shows in the logits.
        seconds, plain_seconds: predicted, of these steps and of plain decoding of as many tokens.
        committed: tokens of every step, a list for each trace.
    """

    rule: Rule
    policy: Policy
    cost: CostProfile | None = None
    seed: int = 0
    stats: Statistics = field(default_factory=Statistics)
    num_levels: int = 0
    num_incomplete: int = 0
    num_changed: int = 0
    num_alone: int = 0
    rounding: set[str] = field(default_factory=set)
    seconds: float = 0.0
    plain_seconds: float = 0.0
    committed: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_rule(self.rule)
        if self.policy.needs_costs and self.cost is None:
            raise ConfigError(
                f"'{self.policy.name}' has to know what passes cost",
                field="policies",
                remedy="Add --cost FILE.json, or --cost NAME:verify=[[1,18],[64,20]],draft=0.6",
            )
        if self.cost is not None:
            self.policy.costs = self.cost

    def take(self, records: Records) -> None:
        """Replay a trace: from its first position to the end of the text."""
        self.policy.begin()
        params = SamplingParams(seed=self.seed)
        sampler = Sampler(params, records.vocab_size, frozenset(), ())
        ledger = Ledger.start(self.rule.limits)
        # Tokens before the first step, such as the prefill's, are output too.
        ledger.outputs = records.steps[0].position if records.steps else 0
        state = VerifyState(records.protected, sampler, ledger)
        lengths: list[int] = []
        index = 0
        while index < len(records.steps):
            kept = self._step(records, records.steps[index], state)
            lengths.append(kept)
            index += kept if records.trace.recording else 1
        self.num_alone += 0 if records.trace.recording else len(lengths)
        self.rounding |= {records.trace.header.dtype} - _ROW_EXACT
        self.committed.append(lengths)

    def _step(self, records: Records, record: Record, state: VerifyState) -> int:
        """One step at a recorded position; the number of tokens that it commits."""
        header = records.trace.header
        context = header.prompt_tokens + record.position - 1
        usable = min(header.max_tokens - record.position, header.max_model_len - context)
        confidence = None if self.policy.resting else record.root_confidence
        plan = self._plan(confidence, record.position, usable, context)
        sub = record.sub(plan)
        tree = sub.draft.tree
        law = record.law(sub.nodes, records.vocab_size)
        choice = self.rule.choose(law, tree, state)
        walked = apply_limits(verdict(tree, choice), self.rule.limits, state.ledger)
        kept = _kept(walked, records, record)
        done = walked.committed(kept)
        state.ledger.record(done, kept)
        self.rule.observe(tree, choice, done, state)
        seconds = self._seconds(sub, context, asked=confidence is not None)
        outcome = Outcome(
            num_accepted=done.num_accepted,
            num_promoted=done.num_promoted,
            num_verified=tree.num_nodes - 1,
            committed=kept,
            path=done.path,
            draft=sub.draft,
            seconds=seconds,
            context_len=context,
            root_confidence=confidence,
        )
        self.policy.observe(plan, outcome)
        self._count(record, plan, sub, done, kept)
        if self.cost is not None:
            self.seconds += sum(seconds.values())
            self.plain_seconds += sum(
                self.cost.round_s((), 1, context + ahead) for ahead in range(kept)
            )
        return kept

    def _plan(self, confidence: float | None, position: int, usable: int, context: int) -> TreePlan:
        if confidence is None:
            return NOTHING
        signals = Signals(
            root_confidence=confidence,
            output_len=position,
            remaining=usable,
            context_len=context,
        )
        return self.policy.plan(signals)

    def _seconds(self, sub: Sub, context: int, asked: bool) -> dict[str, float]:
        """Predicted seconds of a step, by phase as the engine measures them."""
        cost = self.cost
        if cost is None:
            return {}
        drafting = sum(cost.draft_s(width) for width in sub.widths)
        verify = cost.verify_s(sub.draft.tree.num_nodes, context)
        overhead = cost.overhead if asked else 0.0
        return {"draft": overhead + drafting, "verify": verify, "host": 0.0}

    def _count(self, record: Record, plan: TreePlan, sub: Sub, done: Verdict, kept: int) -> None:
        self.stats.add(
            StepTrace.of(
                done,
                kept,
                step=self.stats.num_spec_steps,
                position=record.position,
                plan=plan.triple,
                num_verified=sub.draft.tree.num_nodes - 1,
            )
        )
        self.num_levels += sub.draft.num_levels
        self.num_incomplete += not sub.complete
        self.num_changed += done.tokens != done.strict

    @property
    def exactness(self) -> str:
        """In words: exact, exact up to the rounding of a dtype, or approximate and why."""
        steps = self.stats.num_spec_steps
        reasons = []
        if self.num_alone:
            reasons.append("trees at the steps of one run only")
        if self.num_incomplete:
            share = _percent(self.num_incomplete, steps)
            reasons.append(f"{share} of steps asked for nodes that were not recorded")
        if self.num_changed:
            reasons.append("promotions change the text")
        if reasons:
            return f"approximate: {'; '.join(reasons)}"
        rounding = ", ".join(sorted(self.rounding))
        return f"exact up to {rounding} rounding" if rounding else "exact"

    @property
    def ms_per_token(self) -> float | None:
        """Predicted milliseconds per committed token; None without a cost profile."""
        tokens = self.stats.num_committed_tokens
        return 1e3 * self.seconds / tokens if self.cost is not None and tokens else None

    @property
    def speedup(self) -> float | None:
        """Predicted seconds of plain decoding over those of these steps."""
        return self.plain_seconds / self.seconds if self.seconds > 0 else None


def check_rule(rule: Rule) -> None:
    """Raise ConfigError unless a trace holds everything that the rule reads."""
    reads = None
    if rule.signals != "margins" or rule.sampled_drafts or rule.draft_hidden:
        reads = "reads more of the model than a trace holds"
    elif getattr(rule.options, "protect_digits", False):
        reads = "with protect_digits has to know which tokens are digits, and a trace does not say"
    elif rule.limits is not None and rule.limits.think_only:
        reads = "with think_only has to see the prompt, and a trace does not hold it"
    if reads is not None:
        raise ConfigError(f"'{rule.name}' {reads}", field="rules", remedy=_RUN)


def check_trace(trace: Trace) -> None:
    """Raise TraceError unless the trace can be replayed."""
    where = str(trace.path)
    if trace.header.temperature > 0:
        raise TraceError(
            f"was made at temperature {trace.header.temperature:g}; only 0 can be replayed",
            field=where,
            remedy="Make it again without --temperature",
        )
    roots_only = all(len((step.nodes or {})["token"]) == 1 for step in trace.steps)
    if not trace.recording and trace.steps and roots_only:
        raise TraceError(
            "holds no drafts",
            field=where,
            remedy="Make it again with --record-width 4, and without --policy none",
        )


def _kept(walked: Verdict, records: Records, record: Record) -> int:
    """Tokens of a step up to a stop id, and no more than the recorded text has."""
    left = records.end - record.position
    for index, token in enumerate(walked.tokens[:left]):
        if token in records.stop_ids:
            return index + 1
    return min(left, len(walked.tokens))


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 1 else f"{share:.1g} %"

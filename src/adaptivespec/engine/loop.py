"""The decode loop: draft, verify, decide, commit.

One step drafts a tree under the last emitted token (the root), runs it through the target in one
pass, lets the rule choose at every node, follows the path, and commits what the stop conditions
leave.  The prompt is step 0 of the same shape: a tree of one node whose logits the prefill gave.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.commit import Commit, StopState, commit
from adaptivespec.core.draft import Draft
from adaptivespec.core.errors import NumericalError
from adaptivespec.core.law import Law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.trace import StepTrace, nodes_of
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, Verdict, verdict
from adaptivespec.engine.session import Session
from adaptivespec.engine.target import Pass, PrefillProgress
from adaptivespec.policy.base import NOTHING, Outcome, Policy, Signals, TreePlan
from adaptivespec.verify.base import Rule, VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits


@dataclass
class Request:
    """One generation, everything checked.

    `protected bool[V]` marks tokens that are never promoted nor overridden.  `record_nodes` puts
    every node of every tree into the trace.  With `record_plan` that tree is drafted at every
    position of the output, and each step commits the target's own token alone: a recording from
    which any policy that draws smaller trees can be replayed.  `progress` hears how much of the
    prompt is read.
    """

    prompt: list[int]
    params: SamplingParams
    rule: Rule
    policy: Policy
    stop: StopState
    eos_ids: frozenset[int]
    protected: Tensor
    digits: Tensor | None = None
    think_ids: tuple[int, int] | None = None
    logprobs: bool = False
    record_nodes: bool = False
    record_plan: TreePlan | None = None
    progress: PrefillProgress | None = None


@dataclass
class Step:
    """What one step committed: `verdict` and `trace` are cut to it.

    `trace` is None for the prefill, which verifies nothing.  `finish` is "stop", "length" or None;
    "length" also when the context is full.
    """

    verdict: Verdict
    commit: Commit
    finish: str | None
    trace: StepTrace | None = None
    logprobs: list[float] = field(default_factory=list)
    nodes: dict[str, list[Any]] | None = None
    seconds: float = 0.0


class _Clock:
    """Seconds since the last look."""

    def __init__(self) -> None:
        self.last = perf_counter()

    def lap(self) -> float:
        now = perf_counter()
        seconds, self.last = now - self.last, now
        return seconds


def decode(session: Session, request: Request) -> Generator[Step, None, None]:
    """Answer `request` in `session`, yielding once per step, the prefill first.

    The session is consistent at every yield, so the caller may stop at any of them.  An error
    within a step, Ctrl-C included, empties it.

    Raises:
        NumericalError: the target's logits are NaN, or all -inf.
    """
    try:
        yield from _Decoder(session, request).run()
    except GeneratorExit:
        raise
    except BaseException:
        session.clear()
        raise


class _Decoder:
    def __init__(self, session: Session, request: Request) -> None:
        self.session, self.request = session, request
        vocab = session.target.limits.vocab_size
        sampler = Sampler(request.params, vocab, request.eos_ids, request.prompt)
        ledger = Ledger.start(request.rule.limits, request.prompt, request.think_ids)
        self.state = VerifyState(request.protected, sampler, ledger, request.digits)
        self.sampler, self.ledger, self.stop = sampler, ledger, request.stop
        self.output: list[int] = []

    def run(self) -> Generator[Step, None, None]:
        session, request = self.session, self.request
        clock = _Clock()
        request.policy.begin()
        out = session.begin(request.prompt, request.policy.needs_draft, request.progress)
        root = DraftTree.root_only(request.prompt[-1], session.target.device)
        step = self._settle(out, Draft(root), index=0)
        session.begin_output(step.verdict.tokens)
        step.seconds = clock.lap()
        finish = step.finish
        yield step
        index = 0
        while finish is None:
            clock.lap()
            context = session.target.length(session.cache)
            plan, confidence = self._plan(context)
            draft = self._draft(plan)
            tree = draft.tree
            draft_s = clock.lap()
            out = session.verify(tree)
            verify_s = clock.lap()
            step = self._settle(out, draft, index)
            done = step.verdict
            rows = [self.output[-len(done.tokens) - 1], *done.tokens[: len(done.path) - 1]]
            session.commit(done.path, rows, done.tokens, out)
            step.finish = step.finish or self._context_full()
            seconds = {"draft": draft_s, "verify": verify_s, "host": clock.lap()}
            step.seconds = sum(seconds.values())
            outcome = Outcome(
                num_accepted=done.num_accepted,
                num_promoted=done.num_promoted,
                num_verified=tree.num_nodes - 1,
                committed=len(done.tokens),
                path=done.path,
                draft=draft,
                seconds=seconds,
                context_len=context,
                root_confidence=confidence,
            )
            request.policy.observe(plan, outcome)
            step.trace = StepTrace.of(
                done,
                len(done.tokens),
                step=index,
                position=len(self.output) - len(done.tokens),
                plan=plan.triple,
                root_confidence=confidence,
                num_drafted=draft.num_candidates,
                num_verified=tree.num_nodes - 1,
                nodes=step.nodes,
                reason=draft.reason,
                seconds=seconds,
            )
            finish = step.finish
            index += 1
            yield step

    def _plan(self, context: int) -> tuple[TreePlan, float | None]:
        """The policy's plan, no deeper than the tokens and the context that are left."""
        session, params = self.session, self.request.params
        remaining = params.max_tokens - len(self.output)
        usable = min(remaining, self._room())  # a step emits one token more than it drafts levels
        recording = self.request.record_plan
        asked = usable > 1 and (recording is not None or not self.request.policy.resting)
        confidence = session.confidence() if asked else None
        if confidence is None:
            return NOTHING, None
        if recording is not None:
            return recording.capped(self._room()), confidence
        signals = Signals(
            root_confidence=confidence,
            output_len=len(self.output),
            remaining=usable,
            context_len=context,
        )
        return self.request.policy.plan(signals), confidence

    def _draft(self, plan: TreePlan) -> Draft:
        if plan.draft_nothing:
            return Draft(DraftTree.root_only(self.output[-1], self.session.target.device))
        rule = self.request.rule
        sampler = self.sampler if rule.sampled_drafts else None
        with self.session.target.between_passes():
            return self.session.draft(plan, sampler, rule.draft_hidden)

    def _settle(self, out: Pass, draft: Draft, index: int) -> Step:
        """Rule, walk, limits, commit: pure decisions first, then this request's own memory."""
        walked = self._walk(out, draft, index)
        law = choice = None
        if walked is None:
            walked, law, choice = self._choose(out, draft, index)
        walked = apply_limits(walked, self.request.rule.limits, self.ledger)
        if self.request.record_plan is not None:
            walked = walked.cut(0)
        committed = commit(walked.tokens, self.stop)
        done = walked.committed(committed.kept)
        self.stop = committed.state
        self.ledger.record(done, committed.kept)
        if choice is not None:
            self.request.rule.observe(draft.tree, choice, done, self.state)
        self.output.extend(done.tokens)
        step = Step(done, committed, committed.finish_reason)
        if self.request.logprobs and law is not None:
            step.logprobs = _logprobs(law, done)
        if self.request.record_nodes and choice is not None:
            step.nodes = nodes_of(draft, choice)
        return step

    def _walk(self, out: Pass, draft: Draft, index: int) -> Verdict | None:
        """The target's own choosing and following, where it and the rule have that.

        None for requests that want to see more than the path.
        """
        request = self.request
        if request.logprobs or request.record_nodes or not self.sampler.untouched(len(self.output)):
            return None
        test = request.rule.node_test(self.state)
        if test is None:
            return None
        try:
            return self.session.target.follow(out, draft.tree, test)
        except NumericalError as error:
            raise NumericalError(
                f"{error.message}, step {index}", step=index, node=error.node, field="logits"
            ) from None

    @torch.inference_mode()
    def _choose(self, out: Pass, draft: Draft, index: int) -> tuple[Verdict, Law, Choice]:
        rule, tree = self.request.rule, draft.tree
        with self.session.target.between_passes():
            law = self.sampler.law(out.logits, tree, self.output, index)
            if rule.signals == "hidden":
                law = replace(law, hidden=out.hidden)
            choice = rule.choose(law, tree, self.state)
            return verdict(tree, choice), law, choice

    def _context_full(self) -> str | None:
        return "length" if self._room() < 1 else None

    def _room(self) -> int:
        """Positions of the context that are still free."""
        target = self.session.target
        return int(target.limits.max_model_len - target.length(self.session.cache))


def _logprobs(law: Law, done: Verdict) -> list[float]:
    """The target's log probability of each committed token, before temperature and filters."""
    nodes = done.path[: len(done.tokens)]
    rows = law.logits[nodes].float().log_softmax(-1)
    tokens = torch.tensor(done.tokens, device=rows.device)
    return rows.gather(-1, tokens[:, None])[:, 0].tolist()

"""The decode loop: draft, verify, decide, commit.

One step drafts a tree under the last emitted token (the root), runs it through the target in one
pass, lets the rule choose at every node, follows the path, and commits what the stop conditions
leave.  The prompt is step 0 of the same shape: a tree of one node whose logits the prefill gave.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from adaptivespec.core.commit import commit
from adaptivespec.core.draft import Draft
from adaptivespec.core.errors import NumericalError
from adaptivespec.core.law import Law
from adaptivespec.core.sampling import Sampler
from adaptivespec.core.trace import StepTrace, nodes_of
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, Verdict, verdict
from adaptivespec.engine.request import Request, Step
from adaptivespec.engine.session import Session
from adaptivespec.engine.target import Pass
from adaptivespec.policy.base import NOTHING, Outcome, Signals, TreePlan
from adaptivespec.verify.base import VerifyState
from adaptivespec.verify.limits import Ledger, apply_limits


def decode(session: Session, request: Request) -> Generator[Step, None, None]:
    """Answer `request` in `session`, yielding once per step, the prefill first.

    The session is consistent at every yield, so the caller may stop at any of them.  An error
    within a step, Ctrl-C included, empties it.

    Raises:
        NumericalError: the target's logits are NaN, or all -inf.
    """
    decoder = Decoder(session, request)
    try:
        step = decoder.read()
        while step is None:
            step = decoder.read()
        yield step
        while not decoder.finished:
            tree = decoder.draft()
            start = perf_counter()
            out = session.verify(tree)
            yield decoder.settle(out, perf_counter() - start)
    except GeneratorExit:
        raise
    except BaseException:
        session.clear()
        raise


@dataclass(frozen=True)
class _Pending:
    """What was drafted and not verified yet; `context` in tokens, and the time it took."""

    plan: TreePlan
    confidence: float | None
    draft: Draft
    context: int
    seconds: float


class Decoder:
    """One request in one session, a step at a time: `read` the prompt, then `draft` and `settle`.

    Between the two the caller runs the drafted tree through the target, alone or with the trees of
    other sequences.  After an error the session must be cleared, and the decoder is of no use.
    """

    def __init__(self, session: Session, request: Request) -> None:
        self.session, self.request = session, request
        vocab = session.target.limits.vocab_size
        sampler = Sampler(request.params, vocab, request.eos_ids, request.prompt)
        ledger = Ledger.start(request.rule.limits, request.prompt, request.think_ids)
        self.state = VerifyState(request.protected, sampler, ledger, request.digits)
        self.sampler, self.ledger, self.stop = sampler, ledger, request.stop
        self.output: list[int] = []
        self.finish: str | None = None
        self.steps = 0
        request.policy.begin()
        self.cached_tokens = session.open(request.prompt, request.policy.needs_draft)
        self._pending: _Pending | None = None
        self._reading_s = 0.0

    @property
    def finished(self) -> bool:
        """Whether the last step ended the answer."""
        return self.finish is not None

    @property
    def unread(self) -> int:
        """Tokens of the prompt that have yet to be read."""
        return len(self.session.unread)

    @property
    def context(self) -> int:
        """Tokens in the session's cache."""
        return int(self.session.target.length(self.session.cache))

    @property
    def any_tree_will_do(self) -> bool:
        """Whether the answer's tokens are the same whatever is drafted."""
        rule, recording = self.request.rule, self.request.record_plan
        steady = rule.tree_independent or self.request.params.greedy
        return rule.lossless and steady and recording is None

    def borrow(self, others: Iterable[Session]) -> None:
        """Before the first `read`: copy what one of `others` holds of the prompt already."""
        request = self.request
        self.cached_tokens = self.session.borrow(request.prompt, others, request.policy.needs_draft)

    def read(self, most: int | None = None) -> Step | None:
        """Read the prompt, at most `most` tokens of it; the prefill's step once all is read."""
        start = perf_counter()
        out = self.session.read(most, self.request.progress)
        if out is None:
            self._reading_s += perf_counter() - start
            return None
        root = DraftTree.root_only(self.request.prompt[-1], self.session.target.device)
        step = self._settle(out, Draft(root), index=0)
        self.session.begin_output(step.verdict.tokens)
        step.seconds = self._reading_s + perf_counter() - start
        self.finish = step.finish
        return step

    def draft(self, most_nodes: int | None = None) -> DraftTree:
        """The next tree, to be verified in the session's cache.

        Args:
            most_nodes: nodes it may have, the root included, where it may have fewer than the
                policy wants: see `any_tree_will_do`.
        """
        start = perf_counter()
        context = self.context
        plan, confidence = self._plan(context, most_nodes)
        draft = self._draft(plan)
        self._pending = _Pending(plan, confidence, draft, context, perf_counter() - start)
        return draft.tree

    def settle(self, out: Pass, verify_s: float = 0.0, company: int = 1) -> Step:
        """Decide over the tree that `draft` gave, commit, and learn.

        Args:
            out: the tree's own rows of the pass.
            verify_s: seconds that the pass took.
            company: sequences that shared it. What a shared pass took is in the trace, and says
                nothing to a policy that wants to know what its own nodes cost.
        """
        start = perf_counter()
        pending, self._pending = self._pending, None
        if pending is None:
            raise ValueError("no tree was drafted")
        draft, plan = pending.draft, pending.plan
        num_verified = draft.tree.num_nodes - 1
        step = self._settle(out, draft, self.steps)
        done = step.verdict
        rows = [self.output[-len(done.tokens) - 1], *done.tokens[: len(done.path) - 1]]
        self.session.commit(done.path, rows, done.tokens, out)
        step.finish = step.finish or self._context_full()
        seconds = {"draft": pending.seconds, "verify": verify_s, "host": perf_counter() - start}
        step.seconds = sum(seconds.values())
        outcome = Outcome(
            num_accepted=done.num_accepted,
            num_promoted=done.num_promoted,
            num_verified=num_verified,
            committed=len(done.tokens),
            path=done.path,
            draft=draft,
            seconds=seconds if company == 1 else {},
            context_len=pending.context,
            root_confidence=pending.confidence,
        )
        self.request.policy.observe(plan, outcome)
        step.trace = StepTrace.of(
            done,
            len(done.tokens),
            step=self.steps,
            position=len(self.output) - len(done.tokens),
            plan=plan.triple,
            root_confidence=pending.confidence,
            num_drafted=draft.num_candidates,
            num_verified=num_verified,
            nodes=step.nodes,
            reason=draft.reason,
            seconds=seconds,
        )
        self.finish = step.finish
        self.steps += 1
        return step

    def _plan(self, context: int, most_nodes: int | None) -> tuple[TreePlan, float | None]:
        """The policy's plan, no deeper than the tokens and the context that are left."""
        session, params = self.session, self.request.params
        remaining = params.max_tokens - len(self.output)
        usable = min(remaining, self._room())  # a step emits one token more than it drafts levels
        recording = self.request.record_plan
        asked = usable > 1 and (recording is not None or not self.request.policy.resting)
        if most_nodes is not None and most_nodes < 2:
            asked = False
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
        plan = self.request.policy.plan(signals)
        return plan if most_nodes is None else plan.within(most_nodes), confidence

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
            step.logprobs, step.top_logprobs = _logprobs(law, done, self.request.top_logprobs)
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
        return self.session.target.limits.max_model_len - self.context


def _logprobs(
    law: Law, done: Verdict, top: int
) -> tuple[list[float], list[list[tuple[int, float]]]]:
    """The target's log probability of each committed token, before temperature and filters.

    And of the `top` likeliest tokens there.
    """
    device = law.logits.device
    nodes = torch.tensor(done.path[: len(done.tokens)], device=device)
    rows = law.logits.index_select(0, nodes).float().log_softmax(-1)
    tokens = torch.tensor(done.tokens, device=device)
    chosen = rows.gather(-1, tokens[:, None])[:, 0].tolist()
    if not top:
        return chosen, []
    best = rows.topk(min(top, rows.shape[-1]), -1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return chosen, [list(zip(ids, values, strict=True)) for ids, values in pairs]

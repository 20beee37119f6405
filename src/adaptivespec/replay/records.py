"""A trace made ready for replay: every recorded tree as arrays, on a vocabulary of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.law import Law
from adaptivespec.core.trace import StepTrace
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.growth import Growth
from adaptivespec.policy.base import TreePlan
from adaptivespec.replay.trace_file import Trace

__all__ = ["Record", "Records", "Sub"]


@dataclass(frozen=True, eq=False)
class Sub:
    """The tree that a plan gets out of a record.

    Attributes:
        draft: its tokens are ids of the local vocabulary.
        nodes: i64[M], the recorded node of each of its nodes.
        widths: rows of each pass of the drafter; the first level needs none.
        complete: whether everything that the plan asked for was on record.
    """

    draft: Draft
    nodes: Tensor
    widths: tuple[int, ...]
    complete: bool


@dataclass(frozen=True, eq=False)
class Record:
    """One recorded step: N nodes, and one more entry N that stands for what was not recorded.

    Attributes:
        position: output tokens committed before it.
        committed: tokens it committed.
        root_confidence: the drafter's top probability at the root; None = nothing was drafted.
        token: i64[N + 1], local ids; entry N is the size of the vocabulary.
        target: i64[N], local ids of the target's own token after each node.
        drop: f32[N + 1], nats of each node's token under its parent; entry N +inf. A margin that
            was 0 in float32 is taken for impossible.
        logq: f32[N + 1]; entry N -inf.
        children: i64[N + 1, K], the child of each node by rank; N where there is none.
    """

    position: int
    committed: int
    root_confidence: float | None
    token: Tensor
    target: Tensor
    drop: Tensor
    logq: Tensor
    children: Tensor
    subs: dict[TreePlan, Sub] = field(default_factory=dict)

    def sub(self, plan: TreePlan) -> Sub:
        """Carry out a plan on the recorded offers. Plans without memory are grown once."""
        if plan.acceptance is not None:  # new with every step
            return self._grow(plan)
        if plan not in self.subs:
            self.subs[plan] = self._grow(plan)
        return self.subs[plan]

    def _grow(self, plan: TreePlan) -> Sub:
        if plan.draft_nothing:
            tree = DraftTree.root_only(int(self.token[0]))
            return Sub(Draft(tree), torch.zeros(1, dtype=torch.int64), (), True)
        missing = self.target.shape[0]
        short = plan.topk - self.children.shape[1]
        children = F.pad(self.children, (0, short), value=missing) if short > 0 else self.children
        # The growth sees node numbers in place of tokens, so its tree says which nodes it took.
        growth = Growth(0, plan, sparse=True)
        widths: list[int] = []
        complete = True
        while not growth.stopped:
            if growth.level:
                widths.append(growth.width)
            offers = children[growth.frontier_tokens, : plan.topk]
            complete = complete and bool((offers < missing).all())
            growth.expand(offers, self.logq[offers])
        draft = growth.draft()
        if plan.positions:  # a fixed tree asks for its own nodes only
            complete = draft.tree.num_nodes == min(plan.available, plan.num_draft_tokens)
        nodes = draft.tree.token
        tree = replace(draft.tree, token=self.token[nodes])
        return Sub(replace(draft, tree=tree), nodes, tuple(widths), complete)

    def law(self, nodes: Tensor, vocab_size: int) -> Law:
        """The target's law at some nodes, as far as it was recorded.

        Logits are -drop at a node's recorded children, 0 at the target's own token and -inf
        elsewhere, so the peak is 0.
        """
        offers, target = self.children[nodes], self.target[nodes]
        logits = torch.full((nodes.shape[0], vocab_size + 1), -math.inf)
        logits.scatter_(1, self.token[offers], -self.drop[offers])  # what is missing: last column
        logits.scatter_(1, target.unsqueeze(1), 0.0)
        return Law(logits[:, :vocab_size], torch.zeros(nodes.shape[0]), target)


class Records:
    """The steps of a trace.

    Token ids are mapped to the ranks of the ids that occur, so that a row of logits is short and
    ids keep their order.

    Attributes:
        trace: where they come from.
        vocabulary: i64[V], the token ids that occur, rising.
        protected: bool[V].
        stop_ids: local ids that end the output.
        end: output tokens of the whole text.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        tokens = {token for step in trace.steps for token in _ids(step)}
        self.vocabulary = torch.tensor(sorted(tokens), dtype=torch.int64)
        header = trace.header
        self.protected = torch.isin(self.vocabulary, torch.tensor(header.protected))
        stops = torch.isin(self.vocabulary, torch.tensor(header.stop_ids))
        self.stop_ids = frozenset(stops.nonzero().squeeze(1).tolist())
        self.steps = [self._record(step) for step in trace.steps]
        last = self.steps[-1] if self.steps else None
        self.end = last.position + last.committed if last is not None else 0

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.vocabulary)

    def _record(self, step: StepTrace) -> Record:
        nodes = step.nodes or {}
        parent, rank = torch.tensor(nodes["parent"]), torch.tensor(nodes["rank"])
        count = parent.shape[0]
        children = torch.full((count + 1, int(rank.max()) + 1), count)
        children[parent[1:], rank[1:]] = torch.arange(1, count)
        drop = torch.tensor(nodes["margin"], dtype=torch.float32).log().neg()
        logq = torch.tensor(nodes["logq"], dtype=torch.float32)
        return Record(
            step.position,
            step.committed,
            step.root_confidence,
            token=F.pad(self._local(nodes["token"]), (0, 1), value=self.vocab_size),
            target=self._local(nodes["target"]),
            drop=F.pad(drop, (0, 1), value=math.inf),
            logq=F.pad(logq, (0, 1), value=-math.inf),
            children=children,
        )

    def _local(self, tokens: list[int]) -> Tensor:
        return torch.searchsorted(self.vocabulary, torch.tensor(tokens))


def _ids(step: StepTrace) -> list[int]:
    nodes = step.nodes or {}
    return [*nodes["token"], *nodes["target"]]

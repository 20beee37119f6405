"""FLy: keep a mismatch where the target is unsure and what follows it matches."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, cast

import torch
from pydantic import AliasChoices, Field
from torch import Tensor

from adaptivespec.core.law import Law, at_parent, log_norm_and_entropy
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import exact, family, follow_best

_ROWS = 16  # rows of logits that the gate copies at once


class FlyOptions(RuleOptions):
    """Options of FLy; vLLM's names for them are accepted too."""

    window: int = Field(
        6,
        ge=1,
        validation_alias=AliasChoices("window", "fly_window_size"),
        description="exact matches wanted after a mismatch (vLLM: fly_window_size)",
    )
    theta: float = Field(
        0.3,
        ge=0,
        validation_alias=AliasChoices("theta", "fly_entropy_threshold"),
        description="the gate's threshold (vLLM: fly_entropy_threshold)",
    )
    top_k: int = Field(
        3,
        ge=1,
        validation_alias=AliasChoices("top_k", "fly_entropy_top_k"),
        description="probabilities gate=code looks at (vLLM: fly_entropy_top_k)",
    )
    gate: Literal["paper", "code"] = Field(
        "paper", description="paper: H / ln V >= theta; code: H of the top_k > theta nats"
    )


class FlyRule(Rule):
    """Lossy: keep a mismatch where the target is unsure and the next W drafts match exactly.

    A child x of a node whose own token y was not drafted is promoted when

    * the gate passes in the node's row p, the softmax of its logits at temperature 1 before top-k,
      top-p and min-p. ``gate="paper"``: H(p) / ln V >= theta. ``gate="code"``, as in the authors'
      program: the sum of -p ln p over the ``top_k`` largest p, taken as they are and not
      renormalised, exceeds theta nats;
    * the window holds: the target's own token was drafted at x and at the W - 1 nodes after it. So
      a mismatch with fewer than W drafts left is rejected (j + W <= K), and a mismatch inside the
      window of another undoes that one.

    On a tree the window runs along a path. Of several children that pass, the one with the longest
    run of matches is promoted, then the one of largest margin, then of lowest index; at T > 0 too.
    At T > 0 a match is one with the token drawn for its position: all nodes of a depth share one
    random number, so what the window reads is what the walk will follow. Since tokens yet to come
    decide, emitted tokens have no simple law then. (FLy, arXiv 2511.22972.)
    """

    name: ClassVar[str] = "fly"
    formula: ClassVar[str] = "x = y, else H(p) / ln V >= theta and the next W drafts are exact"
    source: ClassVar[str] = "FLy 2511.22972"
    Options: ClassVar[type[RuleOptions]] = FlyOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(FlyOptions, self.options)

    @property
    def lossless(self) -> bool:
        """Never."""
        return False

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token, or the child that keeps the mismatch."""
        drop, tokens = law.child_drop(tree), law.target
        if tree.max_depth > self._opts.window:
            tokens = self._keep(law, tree, drop, state.protected)
        return Choice(law.target, tokens, drop, law.target_drop)

    def _keep(self, law: Law, tree: DraftTree, drop: Tensor, protected: Tensor) -> Tensor:
        """i64[..., N]: the target's token at every node, or the child that keeps a mismatch."""
        y, above = law.target, tree.parent_index
        run = exact_run(tree, exact(y, tree) & tree.is_child)
        rejected = (run == 0).gather(-1, above)  # the parent's own token was not drafted
        passes = (run >= self._opts.window) & rejected & (drop < math.inf)
        passes = passes > protected[tree.token_index]  # of booleans: "and not"
        if law.scaled is not None:
            passes = passes & (at_parent(law.scaled, tree) > -math.inf)
        runs = torch.where(family(tree) & passes.unsqueeze(-2), run.unsqueeze(-2), 0)
        longest = runs.amax(-1)
        gate = self._gate(law, longest > 0)
        passes = passes & gate.gather(-1, above) & (run == longest.gather(-1, above))
        return follow_best(y, tree, torch.where(passes, drop, math.inf), protected)

    def _gate(self, law: Law, asked: Tensor) -> Tensor:
        """bool[..., N]: where the gate passes among the nodes asked for."""
        size, vocab = asked.shape[-1], law.logits.shape[-1]
        # A child that passes the window owns a run of W nodes that no other one shares.
        most = (size - 1) // (self._opts.window + 1)
        node = asked.float().topk(most, -1).indices
        start = torch.arange(0, asked.numel(), size, device=node.device)
        rows = (node.reshape(-1, most) + start.unsqueeze(-1)).reshape(-1)
        z, peak = law.logits.reshape(-1, vocab), law.peak.reshape(-1)
        passes = [
            self._unsure(z.index_select(0, part), peak.index_select(0, part))
            for part in torch.split(rows, _ROWS)
        ]
        gate = torch.zeros_like(asked).scatter(-1, node, torch.cat(passes).reshape(node.shape))
        return asked & gate

    def _unsure(self, z: Tensor, peak: Tensor) -> Tensor:
        """bool[R]: whether the gate passes in rows of logits [R, V] with peaks f32[R]."""
        log_norm, entropy = log_norm_and_entropy(z, peak)
        if self._opts.gate == "paper":
            return entropy / math.log(z.shape[-1]) >= self._opts.theta
        top = z.topk(min(self._opts.top_k, z.shape[-1]), -1).values.float()
        p = torch.exp(top - (peak + log_norm).unsqueeze(-1))
        unsure: Tensor = torch.special.entr(p).sum(-1) > self._opts.theta
        return unsure


def exact_run(tree: DraftTree, match: Tensor) -> Tensor:
    """i64[..., N]: how many exact drafts follow one another from each node on, itself not counted.

    Args:
        tree: N nodes.
        match: bool[..., N], drafts that are the target's own token; one per family at most.
    """
    run = torch.zeros_like(tree.parent)
    for _ in range(tree.max_depth):
        longer = torch.where(match, run + 1, 0)
        run = torch.zeros_like(run).scatter_add(-1, tree.parent_index, longer)
    return run

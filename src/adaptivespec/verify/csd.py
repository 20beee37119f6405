"""CSD: accept what was rejected often enough, where it is not much worse."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field

from adaptivespec.core.law import Law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, Verdict
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.margin import promote

_NO_PAIR = 2**63 - 1  # ends the sorted pairs, so that a search always lands on one of them


class CsdOptions(RuleOptions):
    """Options of CSD."""

    tau: float = Field(0.01, gt=0, le=1, description="least margin p / max p of a promoted draft")
    min_count: int = Field(2, ge=1, description="rejections that make a pair frequent")
    capacity: int = Field(4096, ge=1, description="pairs remembered per request")


class CsdRule(Rule):
    """Lossy: promote a draft that was often rejected for this token and has margin >= tau.

    Where the target's own token y was not drafted, a child x is eligible when the pair (y, x) is
    frequent and z_x - max z >= ln tau. At T = 0 the eligible child of largest margin wins, then the
    one of lowest index; at T > 0, y being drawn, x is drawn from p_T restricted to them.

    The memory belongs to the request. A step that ends with a rejection counts one pair: y and the
    best-ranked child (lowest index) that has margin >= tau. It is frequent from ``min_count``
    rejections on; pairs that hold a protected token are not counted. Beyond ``capacity`` pairs the
    one that was rejected longest ago is forgotten. (CSD, arXiv 2604.13634.)
    """

    name: ClassVar[str] = "csd"
    formula: ClassVar[str] = "x = y, else (y, x) is frequent and p(x) / max p >= tau"
    source: ClassVar[str] = "CSD 2604.13634"
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "margins"
    Options: ClassVar[type[RuleOptions]] = CsdOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(CsdOptions, self.options)
        # The next float32 after -ln tau: drops below it are those that do not exceed -ln tau.
        edge = torch.tensor(-math.log(self._opts.tau), dtype=torch.float32)
        self._limit = torch.nextafter(edge, torch.tensor(math.inf))

    @property
    def lossless(self) -> bool:
        """Never."""
        return False

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token, or the best child among the frequent pairs."""
        drop, tokens = law.child_drop(tree), law.target
        frequent = state.memory.get("frequent")  # i64[pairs + 1], sorted
        if frequent is not None and tree.num_nodes > 1:
            own = law.target.gather(-1, tree.parent_index)
            pair = own * len(state.protected) + tree.token_index
            known = frequent[torch.searchsorted(frequent, pair)] == pair
            limit = torch.where(known, self._limit, -math.inf)
            noise = None
            if law.scaled is not None:
                noise = state.sampler.promotion_noise(tree.num_nodes, tree.device)
            tokens = promote(law, tree, limit, state.protected, noise, drop)
        return Choice(law.target, tokens, drop, law.target_drop)

    def observe(
        self, tree: DraftTree, choice: Choice, verdict: Verdict, state: VerifyState
    ) -> None:
        """Count the pair that ended the step, if a rejection ended it."""
        if verdict.bonus is None:
            return
        node, own = verdict.path[-1], verdict.strict[-1]
        children = (tree.parent == node).nonzero().squeeze(-1)
        token = tree.token[children]
        near = (choice.child_drop[children] < self._limit) > state.protected[token]
        near = near & (token != own).all() & ~state.protected[own]
        if not bool(near.any()):
            return
        pair = own * len(state.protected) + int(token[near][0])
        counts: dict[int, int] = state.memory.setdefault("counts", {})
        counts[pair] = counts.pop(pair, 0) + 1  # now the youngest
        forgotten = 0
        if len(counts) > self._opts.capacity:
            forgotten = counts.pop(next(iter(counts)))
        least = self._opts.min_count
        if counts[pair] == least or forgotten >= least:
            pairs = sorted(key for key, count in counts.items() if count >= least)
            state.memory["frequent"] = torch.tensor([*pairs, _NO_PAIR], device=tree.device)

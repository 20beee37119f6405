"""Growing a draft tree level by level and pruning it to a budget (EAGLE-2, 2406.16858).

Expand: every frontier node offers its `topk` likeliest children; the best `topk` of the level by
cumulative probability form the next frontier, and all offers stay candidates.  Rerank: the
`num_draft_tokens - 1` candidates of largest cumulative probability are kept.  They are closed
under parents because a child is never likelier than its parent and ties keep the earlier one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.policy.base import TreePlan


class Growth:
    """The tree under construction.  Tensors are tiny (at most topk + (num_steps - 1) * topk^2)."""

    def __init__(self, root: int, plan: TreePlan, device: torch.device | None = None) -> None:
        self.plan, self.device, self.root = plan, device, root
        self.num_candidates = 0
        self._token: list[Tensor] = []  # candidates, a tensor per level
        self._parent: list[Tensor] = []  # candidate index of the parent, -1 = root
        self._depth: list[int] = []
        self._logq: list[Tensor] = []
        self._cumulative: list[Tensor] = []
        self._frontier = torch.full((1,), -1, device=device)  # candidate indices
        self._frontier_cumulative = torch.zeros(1, 1, device=device)
        self.frontier_tokens = torch.full((1,), root, device=device)

    @property
    def width(self) -> int:
        return self._frontier.shape[0]

    def expand(self, tokens: Tensor, logq: Tensor) -> Tensor:
        """Offer children `tokens, logq [width, k]` of the frontier; choose the next frontier.

        Returns `[next width]`: for each new frontier node, the row of its parent in the old one.
        """
        width, k = tokens.shape
        cumulative = (self._frontier_cumulative + logq).reshape(-1)
        flat_tokens = tokens.reshape(-1)
        first = self.num_candidates
        self.num_candidates += width * k
        self._token.append(flat_tokens)
        self._parent.append(self._frontier.repeat_interleave(k) if k > 1 else self._frontier)
        self._depth.append(width * k)
        self._logq.append(logq.reshape(-1))
        self._cumulative.append(cumulative)
        if width == 1:  # the offers of one node come sorted
            best = torch.arange(min(k, self.plan.topk), device=self.device)
            self._frontier_cumulative = cumulative[: best.shape[0], None]
        else:
            values, best = cumulative.topk(min(self.plan.topk, width * k))
            self._frontier_cumulative = values[:, None]
        self._frontier = best + first
        self.frontier_tokens = flat_tokens[best]
        self._last_logq = logq.reshape(-1)[best]
        return best // k

    def stopped(self) -> bool:
        """Whether the plan's confidence floor ends the growth after the last level."""
        floor = self.plan.min_confidence
        return floor > 0 and float(self._last_logq.max().exp()) < floor

    def tree(self) -> DraftTree:
        """The pruned tree of `min(num_draft_tokens, candidates + 1)` nodes, root first."""
        keep = min(self.plan.num_draft_tokens - 1, self.num_candidates)
        if keep <= 0:
            return DraftTree.root_only(self.root, self.device)
        token, parent = torch.cat(self._token), torch.cat(self._parent)
        logq = torch.cat(self._logq)
        depth = torch.repeat_interleave(
            torch.arange(1, len(self._depth) + 1), torch.tensor(self._depth)
        ).to(self.device)
        if keep < self.num_candidates:
            order = torch.cat(self._cumulative).sort(stable=True, descending=True).indices
            chosen = order[:keep].sort().values
            node_of = torch.zeros(self.num_candidates + 1, dtype=torch.long, device=self.device)
            node_of[chosen] = torch.arange(1, keep + 1, device=self.device)
            token, logq, depth = token[chosen], logq[chosen], depth[chosen]
            parent = node_of[parent[chosen]]  # -1 reads the spare last entry, 0 = the root
        else:
            parent = parent + 1
        zero = token.new_zeros(1)
        return DraftTree(
            token=torch.cat((token.new_full((1,), self.root), token)),
            parent=torch.cat((zero - 1, parent)),
            depth=torch.cat((zero, depth)),
            logq=torch.cat((logq.new_zeros(1), logq)),
        )

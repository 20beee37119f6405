"""Growing a draft tree as a plan says: level by level with tensors, then pruned to a size.

Expand: every frontier node offers its likeliest children; those that the plan keeps form the next
frontier, and all offers stay candidates (EAGLE-2, 2406.16858).  Rerank: the candidates of largest
score are verified, `num_draft_tokens - 1` of them or as many as pay for themselves.  They are
closed under parents because a child never scores above its parent and ties keep the earlier one.
A plan with positions takes exactly those (Medusa, 2401.10774).
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.tree import DraftTree
from adaptivespec.policy.plan import Lookahead, TreePlan

#: For one level of a fixed tree: frontier row and rank of every node, and which are expanded next.
_Level = tuple[Tensor, Tensor, Tensor]


class Growth:
    """The tree under construction.  Call `expand` once per level while `stopped` is empty.

    Args:
        root: the last committed token.
        plan: what to grow.
        device: of the offers.
        sparse: offers may hold log q = -inf for children that do not exist (trees on record).
        sampled: offers were drawn from q: ranks are the order drawn, and values choose nothing.

    Attributes:
        stopped: why no further level is to be grown; "" while one is.
        frontier_tokens: i64[width], tokens of the nodes to expand next.
        frontier: i64[width], their numbers among the candidates; -1 is the root.
    """

    def __init__(
        self,
        root: int,
        plan: TreePlan,
        device: torch.device | None = None,
        sparse: bool = False,
        sampled: bool = False,
    ) -> None:
        self.plan, self.device, self.root = plan, device, root
        self.sparse, self.sampled = sparse, sampled
        self.num_candidates = self.level = 0
        self.stopped = "depth" if plan.num_steps == 0 else "full" if plan.draft_nothing else ""
        self._token: list[Tensor] = []  # candidates, a tensor per level
        self._parent: list[Tensor] = []  # candidate index of the parent, -1 = root
        self._rank: list[Tensor] = []
        self._logq: list[Tensor] = []
        self._score: list[Tensor] = []
        self._hidden: list[Tensor] = []
        self._q: list[tuple[Tensor, Tensor]] = []  # frontier and the law of its children
        self._sum = 0.0
        self.frontier = torch.full((1,), -1, device=device)
        self._frontier_score = torch.zeros(1, 1, device=device)
        self.frontier_tokens = torch.full((1,), root, device=device)

    @property
    def width(self) -> int:
        """Nodes to expand next."""
        return self.frontier.shape[0]

    def expand(
        self, tokens: Tensor, logq: Tensor, hidden: Tensor | None = None, q: Tensor | None = None
    ) -> Tensor:
        """Offer children `tokens, logq [width, k]` of the frontier, likeliest first; choose anew.

        `hidden [width, H]` is the drafter's feature behind each row, kept for rules that read it;
        `q f32[width, V]` the law its children were drawn from, for sampled drafts.

        Returns `[next width]`: for each new frontier node, the row of its parent in the old one.
        """
        width, k = tokens.shape
        self.level += 1
        step = logq
        if self.plan.acceptance is not None:
            step = self.plan.acceptance.log_of(logq, self.level)
        score = (self._frontier_score + step).reshape(-1)
        if q is not None:
            self._q.append((self.frontier, q))
        fixed = self.plan.positions
        if fixed:
            rows, ranks, inner = _levels(fixed, k, self.device)[self.level - 1]
            taken = rows * k + ranks
        elif self.plan.keep.drop and self.level >= self.plan.keep.first:
            taken = inner = self._best(score, width, k)
        else:
            taken, inner = None, self._best(score, width, k)
        flat_tokens, flat_logq = tokens.reshape(-1), logq.reshape(-1)
        parent = self.frontier.repeat_interleave(k) if k > 1 else self.frontier
        rank = _ranks(width, k, self.device)
        chosen = inner
        if taken is not None:
            flat_tokens, flat_logq, score = flat_tokens[taken], flat_logq[taken], score[taken]
            parent, rank, chosen = parent[taken], rank[taken], taken
            if fixed:
                chosen = taken[inner]
            else:
                inner = torch.arange(taken.shape[0], device=self.device)
        self._token.append(flat_tokens)
        self._parent.append(parent)
        self._rank.append(rank)
        self._logq.append(flat_logq)
        self._score.append(score)
        source = chosen // k
        if hidden is not None:
            own = taken // k if taken is not None else torch.arange(width * k) // k
            self._hidden.append(hidden.index_select(0, own.to(hidden.device)))
        self.frontier = inner + self.num_candidates
        self.num_candidates += score.shape[0]
        self._frontier_score = score[inner, None]
        self.frontier_tokens = flat_tokens[inner]
        self.stopped = self._stop(flat_logq, score)
        return source

    def _best(self, score: Tensor, width: int, k: int) -> Tensor:
        """The offers to expand next, by number, best first."""
        keep, most = self.plan.keep, self.plan.width
        as_offered = width == 1 and not self.sparse and self.plan.acceptance is None
        if self.sampled or as_offered:
            # The offers of one node come sorted by q; drawn ones stay in the order drawn.
            best = torch.arange(min(width * k, most), device=self.device)
            values = score[: best.shape[0]]
        else:
            values, best = (row[:most] for row in score.sort(stable=True, descending=True))
        floor = -math.inf
        gated = self.level >= keep.first
        if gated and keep.relative > 0:
            floor = float(values[0]) + math.log(keep.relative) - 1e-6  # of rounding
        if gated and keep.absolute > 0:
            floor = max(floor, math.log(keep.absolute) - 1e-6)
        if floor > -math.inf:
            best = best[values >= floor]
        elif self.sparse:
            best = best[values > -math.inf]
        return best

    def _stop(self, logq: Tensor, score: Tensor) -> str:
        """What ends the growth after this level; "" when nothing does."""
        plan, stop = self.plan, self.plan.stop
        if self.level >= plan.num_steps:
            return "depth"
        if self.width == 0:
            return "nothing kept"
        if stop.full and self._real() >= plan.num_draft_tokens - 1:
            return "full"
        first = self.num_candidates - score.shape[0]
        if stop.min_confidence > 0:
            best = float(logq[self.frontier - first].max().exp())
            if best < stop.min_confidence:
                return "confidence"
        if stop.min_path > 0 and float(self._frontier_score.max().exp()) < stop.min_path:
            return "path"
        if stop.min_gain is not None:
            scores = torch.cat(self._score).exp()
            budget = min(plan.num_draft_tokens - 1, scores.shape[0])
            total = float(scores.topk(budget).values.sum())
            gain, self._sum = total - self._sum, total
            if gain <= stop.min_gain:
                return "gain"
        if stop.lookahead is not None:
            return "" if self._worth_more(stop.lookahead) else "price"
        return ""

    def _worth_more(self, lookahead: Lookahead) -> bool:
        """Whether one, two, ... more levels gain more than their passes cost."""
        scores = torch.cat(self._score).exp().sort(descending=True).values.tolist()
        powers = torch.tensor(lookahead.powers(self.level + 1), device=self.device)
        above = self._frontier_score.exp() * powers - self._bar(scores)  # [width, levels]
        gain = above.clamp_min_(0).sum(0).cumsum(0).tolist()
        return any(more > price for more, price in zip(gain, lookahead.price, strict=True))

    def _bar(self, scores: list[float]) -> float:
        """What a further node must score: more than one that it displaces, or than its price."""
        budget, prices = self.plan.num_draft_tokens - 1, self.plan.prices
        if not prices:
            return scores[budget - 1] if len(scores) >= budget else 0.0
        size, now = self._best_size(list(accumulate(scores, initial=1.0)))
        displaced = scores[size - 2] if size > 1 else math.inf
        larger = [(price - now) / (n - size) for n, price in prices if n > size]
        return min([displaced, *larger[:1]])

    def _best_size(self, gains: list[float]) -> tuple[int, float]:
        """The size, root included, of largest expected tokens less price, and that price.

        `gains[n - 1]` is what the best n nodes are expected to commit.
        """
        most = len(gains)
        best = max(
            (
                (gains[min(size, most) - 1] - price, -size, price)
                for size, price in self.plan.prices
            ),
            default=(0.0, -most, 0.0),
        )
        return min(-best[1], most), best[2]

    def _real(self) -> int:
        """Candidates that exist."""
        if not self.sparse:
            return self.num_candidates
        return sum(int((score > -math.inf).sum()) for score in self._score)

    def draft(self) -> Draft:
        """The pruned tree, root first."""
        reason: dict[str, float | str] = {"stopped": self.stopped}
        if not self.num_candidates:
            return self._nothing(reason)
        score = torch.cat(self._score)
        chosen = self._choose(score, reason)
        if chosen is not None and chosen.shape[0] == 0:
            return self._nothing(reason)
        token, parent = torch.cat(self._token), torch.cat(self._parent)
        logq, rank = torch.cat(self._logq), torch.cat(self._rank)
        sizes = [row.shape[0] for row in self._token]
        depth = torch.repeat_interleave(
            torch.arange(1, len(sizes) + 1), torch.tensor(sizes), output_size=sum(sizes)
        ).to(self.device)
        hidden = torch.cat(self._hidden) if self._hidden else None
        node_of = None
        if chosen is not None:
            count = chosen.shape[0]
            node_of = torch.zeros(self.num_candidates + 1, dtype=torch.long, device=self.device)
            node_of[chosen] = torch.arange(1, count + 1, device=self.device)
            token, logq, depth = token[chosen], logq[chosen], depth[chosen]
            rank, score = rank[chosen], score[chosen]
            parent = node_of[parent[chosen]]  # -1 reads the spare last entry, 0 = the root
            hidden = hidden[chosen] if hidden is not None else None
        else:
            parent = parent + 1
        zero = token.new_zeros(1)
        tree = DraftTree(
            token=torch.cat((token.new_full((1,), self.root), token)),
            parent=torch.cat((zero - 1, parent)),
            depth=torch.cat((zero, depth)),
            logq=torch.cat((logq.new_zeros(1), logq)),
            q=self._laws(token.shape[0] + 1, node_of),
            hidden=None if hidden is None else torch.cat((torch.zeros_like(hidden[:1]), hidden)),
        )
        return Draft(
            tree,
            rank=torch.cat((zero, rank)),
            score=torch.cat((score.new_zeros(1), score)),
            num_candidates=self._real(),
            num_levels=self.level,
            reason=reason,
        )

    def _nothing(self, reason: dict[str, float | str]) -> Draft:
        tree = DraftTree.root_only(self.root, self.device)
        return Draft(tree, num_candidates=self._real(), num_levels=self.level, reason=reason)

    def _choose(self, score: Tensor, reason: dict[str, float | str]) -> Tensor | None:
        """Candidates to verify, in the order they were offered; None = all of them."""
        keep = min(self.plan.num_draft_tokens - 1, self._real())
        if keep <= 0:
            return torch.empty(0, dtype=torch.long, device=self.device)
        prices = self.plan.prices
        if keep == self.num_candidates and not prices:
            return None
        if self.sampled:
            return torch.arange(keep, device=self.device)
        ordered, order = score.sort(stable=True, descending=True)
        if prices:
            gains = [1.0, *(ordered[:keep].double().exp().cumsum(0) + 1).tolist()]
            size, price = self._best_size(gains)
            keep = size - 1
            reason["gain"], reason["price"], reason["nodes"] = gains[keep], price, size
        return order[:keep].sort().values

    def _laws(self, size: int, node_of: Tensor | None) -> Tensor | None:
        """f32[N, V]: what the children of each expanded node were drawn from; zeros elsewhere."""
        if not self._q:
            return None
        laws = torch.zeros(size, self._q[0][1].shape[-1], device=self.device)
        for frontier, q in self._q:
            node = frontier + 1 if node_of is None else node_of[frontier]
            real = (node > 0) | (frontier < 0)
            laws[node[real]] = q[real]
        return laws


@lru_cache(maxsize=256)
def _ranks(width: int, k: int, device: torch.device | None) -> Tensor:
    """i64[width * k]: the place of every offer among its siblings."""
    return torch.arange(k, device=device).repeat(width)


@lru_cache(maxsize=64)
def _levels(
    positions: tuple[tuple[int, ...], ...], k: int, device: torch.device | None
) -> list[_Level]:
    """A fixed tree by levels, without the nodes that need more than k children to be offered."""
    levels: list[_Level] = []
    expanded: list[tuple[int, ...]] = [()]
    parents = {node[:-1] for node in positions}
    for _ in range(max(len(node) for node in positions)):
        row_of = {node: row for row, node in enumerate(expanded)}
        nodes = [node for node in positions if node[:-1] in row_of and node[-1] < k]
        inner = [i for i, node in enumerate(nodes) if node in parents]
        rows, ranks = [row_of[node[:-1]] for node in nodes], [node[-1] for node in nodes]
        columns = (torch.tensor(column, dtype=torch.int64) for column in (rows, ranks, inner))
        level_rows, level_ranks, level_inner = (column.to(device) for column in columns)
        levels.append((level_rows, level_ranks, level_inner))
        expanded = [nodes[i] for i in inner]
    return levels

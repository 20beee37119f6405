"""The margin rule on a batch whose requests each have options of their own.

Decides what ``verify.margin``, the strict walk and ``verify.limits`` decide for one request after
the other, without a loop over requests or nodes and without waiting for the device. What a request
may still promote depends on its earlier rounds, so that account is kept on the device as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import Law
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import reached
from adaptivespec.integrations.sglang.ledgers import Ledgers
from adaptivespec.integrations.sglang.sampling import promotion_uniforms, upload
from adaptivespec.verify.margin import MarginOptions, drop_limit, promote_eligible
from adaptivespec.verify.paths import exact

__all__ = ["Decision", "Ledgers", "MarginRows", "TokenClasses", "decide"]

_NO_BOUND = 2**62  # on promotions in one step


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """What the rule knows of the target's tokens; constant for a server.

    Attributes:
        protected: bool[V], never promoted and never overridden, whoever asks.
        digits: bool[V], tokens of digits; None when they are not known.
        think_ids: (opening, closing) ids of thinking sections, for requests that name none.
    """

    protected: Tensor
    digits: Tensor | None = None
    think_ids: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class MarginRows:
    """The options of the B requests of a batch; built once for each composition of the batch.

    An option that no request uses is None, and costs nothing.

    Attributes:
        tokens: the target's tokens.
        limit: f32[B, 1], nats; children that drop less are eligible, -inf: none is.
        stop_ids: i64[B, S], protected for the request; padded with -1.
        protect_digits, exact_between, think_only: bool[B, 1].
        max_promotions, skip_tokens, regret_window: i64[B, 1].
        max_regret: f64[B, 1], nats.
        think_ids: i64[B, 2], -1 where there are none.
        lossless: whether no request of the batch can promote anything.
    """

    tokens: TokenClasses
    limit: Tensor
    stop_ids: Tensor | None
    protect_digits: Tensor | None
    max_promotions: Tensor | None
    exact_between: Tensor | None
    max_regret: Tensor | None
    regret_window: Tensor
    skip_tokens: Tensor | None
    think_only: Tensor | None
    think_ids: Tensor
    lossless: bool

    @classmethod
    def of(
        cls,
        options: Sequence[MarginOptions],
        stop_ids: Sequence[Collection[int]],
        tokens: TokenClasses,
    ) -> MarginRows:
        """From one entry for each request.

        Raises ConfigError when a request wants digits protected or promotions for thinking only,
        and it is not known which tokens those are.
        """
        think = [one.think_ids or tokens.think_ids for one in options]
        for one, ids in zip(options, think, strict=True):
            if one.protect_digits and tokens.digits is None:
                raise ConfigError("it is not known which tokens are digits", field="protect_digits")
            if one.think_only and ids is None:
                raise ConfigError("there are no thinking tokens", field="think_only")
        device, fields = tokens.protected.device, MarginOptions.model_fields

        def column(name: str, dtype: torch.dtype, off: float = 0) -> Tensor | None:
            values, default = [getattr(one, name) for one in options], fields[name].default
            if all(value == default for value in values):
                return None
            values = [off if value is None else value for value in values]
            return upload(torch.tensor(values, dtype=dtype).unsqueeze(-1), device)

        drops = {kappa: float(drop_limit(kappa)) for kappa in {one.kappa for one in options}}
        limits = [[-math.inf if one.lossless else drops[one.kappa]] for one in options]
        most = max(map(len, stop_ids), default=0)
        stops = [[*ids, *[-1] * (most - len(ids))] for ids in stop_ids]
        windows = [[one.regret_window] for one in options]
        return cls(
            tokens=tokens,
            limit=upload(torch.tensor(limits), device),
            stop_ids=upload(torch.tensor(stops), device) if most else None,
            protect_digits=column("protect_digits", torch.bool),
            max_promotions=column("max_promotions_per_step", torch.int64, _NO_BOUND),
            exact_between=column("exact_between", torch.bool),
            max_regret=column("max_regret", torch.float64, math.inf),
            regret_window=upload(torch.tensor(windows), device),
            skip_tokens=column("skip_tokens", torch.int64),
            think_only=column("think_only", torch.bool),
            think_ids=upload(torch.tensor([ids or (-1, -1) for ids in think]), device),
            lossless=all(one.lossless for one in options),
        )

    @property
    def limited(self) -> bool:
        """Whether some request limits its promotions."""
        limits = (
            self.max_promotions,
            self.exact_between,
            self.max_regret,
            self.skip_tokens,
            self.think_only,
        )
        return any(limit is not None for limit in limits)

    def protects(self, token: Tensor) -> Tensor:
        """bool[..., B, N]: whether each ``token`` i64[..., B, N] is protected in its request."""
        found = self.tokens.protected[token]
        if self.protect_digits is not None and self.tokens.digits is not None:
            found |= self.tokens.digits[token] & self.protect_digits
        if self.stop_ids is not None:
            found |= (token.unsqueeze(-1) == self.stop_ids.unsqueeze(-2)).any(-1)
        return found


@dataclass(frozen=True, eq=False)
class Decision:
    """What the strict walk is to follow, and what it costs.

    Attributes:
        target: i64[B, N], the target's own token.
        tokens: i64[B, N], the token to follow at every node.
        regret: f32[B, max_depth], nats charged for the followed draft at depth d + 1 where it was
            promoted; -1 where it was exact or there is none.
    """

    target: Tensor
    tokens: Tensor
    regret: Tensor


def decide(
    law: Law,
    tree: DraftTree,
    rows: MarginRows,
    ledgers: Ledgers,
    slots: Tensor,
    position: Tensor,
    seed: Tensor,
) -> Decision:
    """Rewrite the target's tokens, and enter the promotions that will be followed in the ledgers.

    All that the rewritten tokens lead to counts as emitted: a request that is cut by a stop ends
    there and needs its ledger no more.

    Args:
        law: of the batch.
        tree: [B, N].
        rows: of the B requests.
        ledgers: of all slots; changed.
        slots: i64[B], distinct.
        position: i64[B], the output position that each root's row decides.
        seed: i64[B], for the promotion stream.
    """
    if rows.lossless:
        nothing = torch.full_like(law.peak[:, :1], -1.0).expand(-1, tree.max_depth)
        return Decision(law.target, law.target, nothing)
    drop, noise = law.child_drop(tree), None
    if law.scaled is not None:
        place = position.unsqueeze(-1) + tree.depth - 1
        noise = promotion_uniforms(seed, place, tree.token)
    protected, closed = rows.protects(torch.stack([tree.token_index, law.target]))
    eligible = (drop < rows.limit) > protected  # of booleans: "and not"
    tokens = promote_eligible(law, tree, drop, eligible, closed, noise)
    reach = reached(tree, tokens)
    promoted = (reach & tree.is_child) > exact(law.target, tree)
    regret = _by_depth(tree, promoted, drop, -1.0)[:, 1:]
    if not rows.limited:
        return Decision(law.target, tokens, regret)
    return _limit(Decision(law.target, tokens, regret), tree, reach, rows, ledgers, slots, position)


def _by_depth(tree: DraftTree, chosen: Tensor, values: Tensor, default: float) -> Tensor:
    """[B, max_depth + 1]: ``values`` [B, N] of the chosen nodes, at most one at each depth."""
    spare = tree.max_depth + 1  # takes what is not chosen
    out = values.new_full((len(values), spare + 1), default)
    return out.scatter_(-1, tree.depth.masked_fill(~chosen, spare), values)[:, :spare]


def _limit(
    free: Decision,
    tree: DraftTree,
    reach: Tensor,
    rows: MarginRows,
    ledgers: Ledgers,
    slots: Tensor,
    position: Tensor,
) -> Decision:
    """Cut each walk at the first promotion that a limit forbids, and take it into the ledgers.

    A promotion is judged as if those before it stood. For the first forbidden one they do, and what
    is found of later ones does not matter.

    Args:
        free: the decision without limits.
        reach: bool[B, N], the nodes it leads to.
    """
    depth = tree.max_depth
    place = position.unsqueeze(-1) + torch.arange(depth + 2, device=tree.device)
    promoted = free.regret >= 0
    bans = []  # bool[B, depth] each
    if rows.max_promotions is not None:
        bans.append(promoted.cumsum(-1) > rows.max_promotions)
    if rows.skip_tokens is not None:
        bans.append(place[:, :depth] < rows.skip_tokens)
    if rows.exact_between is not None:
        since = torch.cat([ledgers.exact_since[slots].unsqueeze(-1), ~promoted], -1)
        bans.append(rows.exact_between > since[:, :-1])
    if rows.think_only is not None:
        path = _by_depth(tree, reach, tree.token, -1)
        inside = _inside(ledgers.in_think[slots], path, rows.think_ids)
        bans.append(rows.think_only > inside[:, :depth])
    if rows.max_regret is not None:
        charge = free.regret.clamp_min(0).double()
        before = ledgers.spent_before(slots, place[:, :1])
        spent = before + pad(charge, (1, 0)).cumsum(-1)[:, :-1]
        opening = place[:, :depth] - rows.regret_window + 1  # of the window, or within this walk
        ahead = opening - place[:, :1]
        forgotten = torch.where(
            ahead > 0, spent.gather(-1, ahead.clamp_min(0)), ledgers.spent_before(slots, opening)
        )
        bans.append(spent - forgotten + charge > rows.max_regret)
    kept = (promoted & torch.stack(bans).any(0)).cumsum(-1) == 0
    cut = kept.sum(-1, keepdim=True)  # drafts kept, max_depth when no limit forbids any
    tokens = torch.where(reach & (tree.depth == cut), free.target, free.tokens)
    regret = free.regret.masked_fill(~kept, -1.0)
    last = torch.minimum(reach.sum(-1, keepdim=True) - 1, cut)  # of the walk
    if rows.exact_between is not None:
        ledgers.exact_since[slots] = since.gather(-1, last).squeeze(-1)
    if rows.think_only is not None:
        ledgers.in_think[slots] = inside.gather(-1, last).squeeze(-1)
    if rows.max_regret is not None:
        charge = regret.clamp_min(0).double()
        ledgers.charge(slots, place, before + pad(charge, (1, 1)).cumsum(-1))
    return Decision(free.target, tokens, regret)


def _inside(before: Tensor, path: Tensor, think_ids: Tensor) -> Tensor:
    """bool[B, L]: whether a thinking section is open after each token of a path.

    Args:
        before: bool[B], whether one is open before the first.
        path: i64[B, L].
        think_ids: i64[B, 2].
    """
    opens, closes = (path == ids for ids in torch.split(think_ids, 1, -1))
    rank = 2 * torch.arange(1, path.shape[-1] + 1, device=path.device)
    mark = rank * (opens | closes) + opens  # the last mark is the largest, and odd where it opens
    marks = torch.cat([before.unsqueeze(-1), mark], -1).cummax(-1).values
    return (marks[:, 1:] & 1).bool()

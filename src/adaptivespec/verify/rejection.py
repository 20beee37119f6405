"""Speculative sampling: drafts drawn from q, accepted so that what is emitted has the law p."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.errors import TreeError
from adaptivespec.core.law import Law, draw
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.paths import family, follow_first


class RejectionOptions(RuleOptions):
    """Options of rejection sampling."""

    lenience: float = Field(1.0, gt=0, le=1, description="l; below 1 accepts more, and is lossy")


class RejectionRule(Rule):
    """Lossless: accept a drawn draft with probability min(1, p / q), else draw from the residual.

    Several children, drawn without replacement, are tried in the order drawn. With r = p_T and q
    the law they were drawn from, child x is accepted with probability min(1, r(x) / (l q(x))); when
    it is not, r becomes norm(max(0, r - q)) and x leaves q, which is renormalised. When none is
    accepted the token is drawn from r. A draft that q excludes is never accepted, though r may draw
    the same token. Nodes without children emit the token of the request's own stream; the coins and
    the draws from r come from the promotion stream.

    The lenience l < 1 is lossy: the acceptance is l = 1's, divided by l. "Promoted" is then a draft
    that l = 1 would not have accepted with the same coins; a protected token is never promoted nor
    overridden. At temperature 0 the rule is strict verification.
    (Leviathan et al., arXiv 2211.17192, lenience in its appendix; Chen et al., 2302.01318; several
    children: SpecInfer, 2305.09781, and Sequoia, 2402.12374.)
    """

    name: ClassVar[str] = "rejection"
    formula: ClassVar[str] = "drawn x: p(x) / (l q(x)) > coin, else y ~ norm(max(0, p - q))"
    source: ClassVar[str] = "Leviathan 2211.17192, Chen 2302.01318, SpecInfer 2305.09781"
    sampled_drafts: ClassVar[bool] = True
    Options: ClassVar[type[RuleOptions]] = RejectionOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(RejectionOptions, self.options)

    @property
    def lossless(self) -> bool:
        """True without lenience."""
        return self._opts.lenience == 1

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The first accepted child, or a token drawn from what the children leave of p.

        Raises TreeError at T > 0 when the tree does not carry the law of its drafts.
        """
        drop = law.child_drop(tree)
        if law.scaled is None or tree.num_nodes == 1:
            return Choice(law.target, law.target, drop, law.target_drop)
        if tree.q is None:
            raise TreeError("rule 'rejection' needs the law that drafts were drawn from", field="q")
        ratio, rest = ratios(law.scaled.softmax(-1), tree.q, tree)
        shape = (3, *tree.token.shape)
        noise = state.sampler.promotion_noise(3 * tree.token.numel(), tree.device).reshape(shape)
        # Two float32 uniforms make one that resolves tokens of probability below 2^-24.
        drawn = draw(rest, noise[1].double() + noise[2].double() * 2.0**-24)
        y = torch.where(family(tree).any(-1), drawn, law.target)
        taken = noise[0] < ratio
        target = follow_first(y, tree, taken, torch.zeros_like(state.protected))
        tokens = target
        if not self.lossless:
            lenient = (noise[0] * self._opts.lenience < ratio) > state.protected[tree.token_index]
            tokens = follow_first(target, tree, taken | lenient, state.protected)
        return Choice(target, tokens, drop, law.drop_of(target))


def ratios(p: Tensor, q: Tensor, tree: DraftTree) -> tuple[Tensor, Tensor]:
    """r(x) / q(x) of every child when its elder siblings were rejected, and what is left of p.

    Args:
        p: f32[..., N, V], the target's law at every node.
        q: f32[..., N, V], the law the children of every node were drawn from, without replacement;
            siblings stand in the order drawn.
        tree: N nodes.

    Returns f32[..., N], 0 at the root, in padding and where q excludes the token; and
    f32[..., N, V], the law after the last child was rejected, p itself where there is none.
    """
    vocab, size, tiny = p.shape[-1], tree.num_nodes, torch.finfo(p.dtype).tiny
    child = _children(tree)  # i64[rows, most]
    # Rows with more children first, so that each round works on the top of both, in place.
    order = (child >= 0).sum(-1).argsort(descending=True)
    child, token = child[order], tree.token_index.reshape(-1)
    rest = p.reshape(-1, vocab).index_select(0, order)  # r up to a factor, as is the next
    law = q.reshape(-1, vocab).index_select(0, order)
    ratio = torch.zeros(len(rest), device=p.device)
    for place in range(child.shape[-1]):
        # No more families of a tree than this have so many children.
        top = len(rest) // size * ((size - 1) // (place + 1))
        real, at = child[:top, place, None] >= 0, child[:top, place].clamp_min(0)
        r, drawn, x = rest[:top], law[:top], token[at].unsqueeze(-1)
        has, wants = r.gather(-1, x), drawn.gather(-1, x)
        mass = drawn.sum(-1, keepdim=True)
        factor = torch.where(real & (mass > tiny), r.sum(-1, keepdim=True) / mass, 0.0)
        fair = factor * wants
        ratio.scatter_(0, at, torch.where(fair > 0, has / fair, 0.0).squeeze(-1))  # row 0: a root
        r.addcmul_(drawn, -factor).clamp_min_(0.0)
        drawn.scatter_(-1, x, torch.where(real, 0.0, wants))
    rest = rest.index_select(0, order.argsort()).reshape(p.shape)
    mass = rest.sum(-1, keepdim=True)
    none = (mass == 0).to(p.dtype)  # then p will do: a rejection by rounding alone led there
    return ratio.reshape(tree.token.shape), rest.div_(mass + none).addcmul_(p, none)


def _children(tree: DraftTree) -> Tensor:
    """i64[rows, most]: children of each node in order, numbered through the batch; -1 = none."""
    size, above = tree.num_nodes, tree.parent_index
    # The deepest path takes one child of a family at most. A batch is as deep as its deepest tree.
    most = size - (tree.max_depth if above.dim() == 1 else 1)
    rank = (tree.parent.unsqueeze(-1) == tree.parent.unsqueeze(-2)).tril(-1).sum(-1)
    slot = torch.where(tree.is_child, above * most + rank, size * most)  # one to spare
    number = torch.arange(above.numel(), device=above.device).reshape(above.shape)
    table = torch.full((*above.shape[:-1], size * most + 1), -1, device=above.device)
    return table.scatter(-1, slot, number)[..., :-1].reshape(-1, most)

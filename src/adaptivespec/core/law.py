"""What the target says at every node of a tree: its own token, its peak, and its sampling law.

At temperature 0 the law is one-hot at the argmax (lowest id on ties). At T > 0 it is the softmax of
z / T after top-k, top-p and min-p, in that order. Everything here works row by row: what a node
gets depends on its own logits alone, never on how many nodes stand beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree

_BLOCK = 128  # tokens per block of the two-level inverse CDF
_FIRST_LOOK = 256  # tokens top-p looks at before it looks at more
SMALLEST_TEMPERATURE = 2.0**-126  # smallest normal float32; below it 0 / 0 would come up
_NEGATIVE_INFINITY = 0xFF80  # of bfloat16, as bits; what is above is a NaN
_ROW_BLOCK = 2**19  # most logits that a reduction with exp copies at once; larger is slower on CPU
_UNDERFLOW = 128.0  # nats below the peak at which a float32 probability is 0


@dataclass(frozen=True, eq=False)
class Law:
    """The target's verdict on every node, for one tree or a batch of trees.

    Attributes:
        logits: [..., N, V], processed logits z (bias, masks and penalties of the node's own path);
            any floating type, and the tensor as given when nothing was applied.
        peak: f32[..., N], max z.
        target: i64[..., N], the target's own token y.
        scaled: f32[..., N, V], log p_T up to a constant for each row, in nats: (z - peak) / T, and
            -inf where top-k, top-p or min-p exclude a token; None at temperature 0.
        greedy: bool[..., 1], the trees at temperature 0 in a batch of both kinds: their ``scaled``
            is z - peak, which is not their law. None when all trees are of one kind.
        hidden: [..., N, H], the target's last hidden state at each node, before the final norm;
            None unless the rule asked for it.
    """

    logits: Tensor
    peak: Tensor
    target: Tensor
    scaled: Tensor | None = None
    hidden: Tensor | None = None
    greedy: Tensor | None = None

    @cached_property
    def logp(self) -> Tensor | None:
        """f32[..., N, V]: log p_T in nats, -inf for excluded tokens; None at temperature 0."""
        return None if self.scaled is None else self.scaled.log_softmax(-1)

    @property
    def log_norm(self) -> Tensor:
        """f32[..., N]: logsumexp(z) - peak at temperature 1, in nats, >= 0: -ln of the largest p.

        So p(x) = exp(-drop - log_norm), p being the softmax of z whatever the temperature.
        """
        return self._moments[0]

    @property
    def entropy(self) -> Tensor:
        """f32[..., N]: entropy of the softmax of z at temperature 1, in nats, in [0, ln V]."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        return log_norm_and_entropy(self.logits, self.peak)

    def drop_of(self, token: Tensor) -> Tensor:
        """f32[..., N]: peak - z of one token (i64[..., N]) at each node, in nats, >= 0."""
        return self.peak - self.logits.gather(-1, token.unsqueeze(-1)).squeeze(-1).float()

    def margin_of(self, token: Tensor) -> Tensor:
        """f32[..., N]: exp(z_token - peak) = p / max p at each node, in [0, 1]."""
        return torch.exp(-self.drop_of(token))

    @cached_property
    def target_drop(self) -> Tensor:
        """f32[..., N]: drop of the target's own token; exactly 0 at temperature 0."""
        return torch.zeros_like(self.peak) if self.scaled is None else self.drop_of(self.target)

    def child_drop(self, tree: DraftTree) -> Tensor:
        """f32[..., N]: drop of each node's token under its parent's logits; root, padding: +inf."""
        drop = self.peak.gather(-1, tree.parent_index) - at_parent(self.logits, tree).float()
        return torch.where(tree.is_child, drop, math.inf)


def at_parent(rows: Tensor, tree: DraftTree) -> Tensor:
    """[..., N]: the entry of each node's token in its parent's row of ``rows`` [..., N, V].

    Only those entries are read, and no view of ``rows`` is ever copied. Root and padding get some
    entry.
    """
    lead = rows.shape[:-2]
    batch = [
        torch.arange(size, device=rows.device).reshape(-1, *[1] * (len(lead) - axis))
        for axis, size in enumerate(lead)
    ]
    return rows[(*batch, tree.parent_index, tree.token_index)]


def log_norm_and_entropy(z: Tensor, peak: Tensor) -> tuple[Tensor, Tensor]:
    """logsumexp(z) - peak and the entropy of softmax(z) of each row, in nats.

    Works through blocks of rows, so that however large the batch only one block is ever copied.

    Args:
        z: [..., V], any floating type; -inf is a token of probability 0.
        peak: f32[...], max z.

    Returns two f32[...].
    """
    vocab = z.shape[-1]
    every, peaks = z.reshape(-1, vocab), peak.reshape(-1, 1)
    step = max(1, _ROW_BLOCK // vocab)
    norms, entropies = [], []
    for start in range(0, len(every), step):
        rows, top = every[start : start + step], peaks[start : start + step]
        p = rows.softmax(-1, dtype=torch.float32)
        norm = p.amax(-1).reciprocal().log()
        # 0 * inf would be NaN; from this drop on p is 0 and any finite number does.
        weighted = (top - rows).float().clamp_max_(_UNDERFLOW).mul_(p)
        norms.append(norm)
        entropies.append(norm + _row_sum(weighted))
    return torch.cat(norms).reshape(peak.shape), torch.cat(entropies).reshape(peak.shape)


def _row_sum(rows: Tensor) -> Tensor:
    """f32[R]: sums of f32[R, V] in two levels; one level may split a lone row among threads."""
    if rows.shape[-1] % _BLOCK:
        rows = torch.nn.functional.pad(rows, (0, -rows.shape[-1] % _BLOCK))
    return rows.reshape(len(rows), -1, _BLOCK).sum(-1).sum(-1)


def greedy_law(logits: Tensor) -> Law:
    """The law at temperature 0 of logits [..., N, V]: nothing is copied, no random number drawn."""
    if logits.dtype == torch.float32 and logits.device.type == "cpu":
        # numpy's argmax is vectorised and several times faster than torch's; lowest id on ties too.
        target = torch.from_numpy(logits.detach().numpy().argmax(-1, keepdims=True))
        return Law(logits, logits.gather(-1, target).squeeze(-1), target.squeeze(-1))
    if logits.dtype == torch.bfloat16 and logits.device.type == "cpu":
        found = _argmax_as_integers(logits.detach())
        if found is not None:
            target = found.unsqueeze(-1)
            return Law(logits, logits.gather(-1, target).squeeze(-1).float(), found)
    peak, target = logits.max(-1)
    return Law(logits, peak.float(), target)


def _argmax_as_integers(logits: Tensor) -> Tensor | None:
    """argmax of bfloat16 rows by their bits, much faster than as floats; lowest id on ties.

    Positive floats order as their bits do. None where that does not settle it: a row without a
    positive entry, or a NaN of negative sign, which would hide among the negative numbers.
    """
    signed = logits.view(torch.int16).numpy()
    if signed.view(np.uint16).max(initial=0) > _NEGATIVE_INFINITY:
        return None
    index = signed.argmax(-1, keepdims=True)
    if (np.take_along_axis(signed, index, -1) <= 0).any():
        return None
    return torch.from_numpy(index).squeeze(-1)


def sampled_law(
    logits: Tensor,
    uniform: Tensor,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Law:
    """The law at temperature T > 0, with one token drawn at every node.

    Args:
        logits: [..., N, V], processed.
        uniform: f64[..., N] in [0, 1), one for each node; equal numbers and equal logits draw equal
            tokens, whatever the rest of the tree.
        temperature: T > 0. However small, nothing overflows.
        top_k: keep the k largest logits and what ties with the k-th; 0 = all.
        top_p: keep the shortest prefix, by falling probability, that holds this mass, and its ties.
        min_p: keep tokens whose probability is at least this share of the largest.
    """
    z = logits.float()
    peak = z.amax(-1)
    scaled = z - peak.unsqueeze(-1)  # <= 0, and 0 at the peak
    scaled /= max(temperature, SMALLEST_TEMPERATURE)
    scaled, weight = filtered(scaled, top_k, top_p, min_p)
    return Law(logits, peak, draw(weight, uniform), scaled)


def filtered(
    scaled: Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Apply top-k, then top-p to what is left, then min-p (vLLM's order of the first two).

    A filter is a cut-off in value, so tokens that tie with the last one kept are kept as well, and
    no sort order can matter.

    Args:
        scaled: f32[..., V], nats, the maximum of each row being 0.

    Returns ``scaled`` with -inf for excluded tokens, and f32[..., V] weights proportional to p_T.
    """
    values = None
    if 0 < top_k < scaled.shape[-1]:
        values = scaled.topk(top_k, dim=-1).values  # [..., k], falling
        scaled = scaled.masked_fill(scaled < values[..., -1:], -math.inf)
    weight = scaled.softmax(-1)
    cut = torch.full_like(weight[..., :1], math.log(min_p) if min_p > 0 else -math.inf)
    if top_p < 1:
        cut = torch.maximum(cut, _nucleus(scaled, weight.amax(-1, keepdim=True), top_p, values))
    if top_p < 1 or min_p > 0:
        out = scaled < cut
        scaled, weight = scaled.masked_fill(out, -math.inf), weight.masked_fill(out, 0.0)
    return scaled, weight


def _nucleus(scaled: Tensor, largest: Tensor, top_p: float, values: Tensor | None) -> Tensor:
    """f32[..., 1]: the smallest value inside the nucleus of mass ``top_p`` in each row.

    Sorting a vocabulary is slow, so the largest few hundred tokens are tried first and only rows
    whose nucleus is wider are sorted.

    Args:
        scaled: f32[..., V], the maximum of each row being 0.
        largest: f32[..., 1], the largest probability of each row.
        values: f32[..., k], the k largest entries of ``scaled``, falling, when nothing else is
            left but ties with the last.
    """
    vocab = scaled.shape[-1]
    if values is not None:
        return reaches(values, largest, top_p)
    values = scaled.topk(min(vocab, _FIRST_LOOK), dim=-1).values
    mass = values.double().exp().sum(-1, keepdim=True) * largest.double()
    cut = reaches(values, largest, top_p)
    wide = (mass < top_p).squeeze(-1)
    if values.shape[-1] < vocab and bool(wide.any()):
        ordered = scaled[wide].sort(dim=-1, descending=True).values
        cut[wide] = reaches(ordered, largest[wide], top_p)
    return cut


def reaches(values: Tensor, largest: Tensor, top_p: float | Tensor) -> Tensor:
    """f32[..., 1]: the falling value at which the mass reaches ``top_p``, the last if none does.

    Args:
        values: f32[..., k], nats, falling; 0 is the maximum of the row.
        largest: f32[..., 1], the probability of the maximum.
        top_p: one number, or f64[..., 1] with one for each row.
    """
    mass = values.double().exp().cumsum(-1) * largest.double()
    before = (mass < top_p).sum(-1, keepdim=True)
    return values.gather(-1, before.clamp_max(values.shape[-1] - 1))


def draw(weight: Tensor, uniform: Tensor) -> Tensor:
    """i64[...]: inverse CDF of each row of ``weight`` [..., V] >= 0 at ``uniform`` f64[...].

    Two levels (blocks of 128, then inside one block) spare a scan of the vocabulary. A token of
    weight 0 is never drawn: the point sought stays below the sum it is sought in. A row that holds
    NaN gives some token of the vocabulary.
    """
    vocab = weight.shape[-1]
    if vocab % _BLOCK:
        weight = torch.nn.functional.pad(weight, (0, -vocab % _BLOCK))
    blocks = weight.reshape(*weight.shape[:-1], -1, _BLOCK)  # [..., V / 128, 128]
    edges = blocks.sum(-1).double().cumsum(-1)  # [..., V / 128]
    block, rest = _search(edges, uniform.unsqueeze(-1) * edges[..., -1:])
    chosen = block.unsqueeze(-1).expand(*block.shape, _BLOCK)
    inner = blocks.gather(-2, chosen).squeeze(-2).double().cumsum(-1)  # [..., 128]
    index, _ = _search(inner, rest)
    return (block * _BLOCK + index).squeeze(-1).clamp_max(vocab - 1)


def _search(edges: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """The first edge above ``point`` [..., 1], as an index, and point minus the edge before."""
    point = torch.minimum(point, torch.nextafter(edges[..., -1:], torch.zeros_like(point)))
    index = torch.searchsorted(edges, point, right=True)
    index = index.clamp_max(edges.shape[-1] - 1)  # only NaN finds none
    before = edges.gather(-1, (index - 1).clamp_min(0))
    return index, point - torch.where(index > 0, before, 0.0)

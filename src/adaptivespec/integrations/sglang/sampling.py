"""The target's law at every node of a batch of trees whose requests sample each in their own way.

The random number of a node depends on nothing but its request's seed and the output position that
the node decides. So the tokens of a seeded request are the same whatever trees are drafted, with
whom it shares a batch, and on which rank it runs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptivespec.core.law import SMALLEST_TEMPERATURE, Law, draw, greedy_law, reaches
from adaptivespec.core.tree import DraftTree

__all__ = ["SamplingRows", "law_of", "promotion_uniforms", "seed_of", "target_uniforms", "upload"]

_SORT_BLOCK = 2**24  # most logits sorted at once, at 28 bytes each


@dataclass(frozen=True, eq=False)
class SamplingRows:
    """How the B requests of a batch sample; built once for each composition of the batch.

    A greedy request has temperature 1 and no filter: what is computed from them is not used.

    Attributes:
        temperature: f32[B], > 0.
        top_k: i64[B], 0 = off.
        top_p: f64[B], 1 = off.
        log_min_p: f32[B], ln(min_p); -inf = off.
        greedy: bool[B].
        seed: i64[B].
        unsorted: i64[W], the requests with top-p but without top-k.
        any_sampled, any_greedy, any_top_p, any_min_p: whether some request is, or has it on.
        max_top_k: the largest top_k, 0 when none is on.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    log_min_p: Tensor
    greedy: Tensor
    seed: Tensor
    unsorted: Tensor
    any_sampled: bool
    any_greedy: bool
    any_top_p: bool
    any_min_p: bool
    max_top_k: int

    @classmethod
    def of(
        cls,
        temperature: Sequence[float],
        top_k: Sequence[int],
        top_p: Sequence[float],
        min_p: Sequence[float],
        seed: Sequence[int],
        vocab_size: int,
        device: torch.device | str | None = None,
    ) -> SamplingRows:
        """From one entry for each request.

        Args:
            temperature: 0 = greedy.
            top_k: 1 = greedy; off when not in [1, vocab_size).
            top_p: in (0, 1].
            min_p: in [0, 1].
            seed: any integers; taken modulo 2^64.
            vocab_size: V.
        """
        t, p, m = (torch.tensor(x, dtype=torch.float64) for x in (temperature, top_p, min_p))
        k = torch.tensor(top_k, dtype=torch.int64)
        greedy = (t == 0) | (k == 1)
        t = t.masked_fill(greedy, 1.0).clamp_min(SMALLEST_TEMPERATURE)
        k = k.masked_fill(greedy | (k < 1) | (k >= vocab_size), 0)
        p, m = p.masked_fill(greedy, 1.0), m.masked_fill(greedy, 0.0)
        return cls(
            temperature=upload(t.float(), device),
            top_k=upload(k, device),
            top_p=upload(p, device),
            log_min_p=upload(m.log().float(), device),
            greedy=upload(greedy, device),
            seed=upload(torch.tensor([_signed(x) for x in seed], dtype=torch.int64), device),
            unsorted=upload(((p < 1) & (k == 0)).nonzero().squeeze(-1), device),
            any_sampled=not bool(greedy.all()),
            any_greedy=bool(greedy.any()),
            any_top_p=bool((p < 1).any()),
            any_min_p=bool((m > 0).any()),
            max_top_k=int(k.max()) if k.numel() else 0,
        )


def law_of(
    logits: Tensor,
    tree: DraftTree,
    rows: SamplingRows,
    position: Tensor,
    argmax: Tensor | None = None,
) -> Law:
    """The law at every node, with the target's own token drawn from it; nothing is synchronised.

    The filters are those of ``core.law.filtered``, each request having its own.

    Args:
        logits: [B, N, V], processed; any floating type.
        tree: [B, N].
        rows: of the B requests.
        position: i64[B], the output position that each root's row decides.
        argmax: i64[B, N] of the logits, where the caller has it.

    A row that holds NaN, or is all -inf, gets some token of the vocabulary.
    """
    if argmax is None:
        greedy = greedy_law(logits)
    else:
        greedy = Law(logits, logits.gather(-1, argmax.unsqueeze(-1)).squeeze(-1).float(), argmax)
    if not rows.any_sampled:
        return greedy
    scaled = logits.float() - greedy.peak.unsqueeze(-1)  # <= 0, and 0 at the peak
    scaled /= rows.temperature.view(-1, 1, 1)
    weight = _filter(scaled, rows)
    target = draw(weight, target_uniforms(rows.seed, position.unsqueeze(-1) + tree.depth))
    if not rows.any_greedy:
        return Law(logits, greedy.peak, target, scaled)
    one_hot = rows.greedy.unsqueeze(-1)
    target = torch.where(one_hot, greedy.target, target)
    return Law(logits, greedy.peak, target, scaled, greedy=one_hot)


def _filter(scaled: Tensor, rows: SamplingRows) -> Tensor:
    """Put -inf for what top-k, top-p and min-p exclude into ``scaled`` f32[B, N, V], in place.

    Returns f32[B, N, V], weights proportional to p_T.
    """
    values = None
    if rows.max_top_k:
        values = scaled.topk(rows.max_top_k).values  # [B, N, k], falling
        top_k = rows.top_k.view(-1, 1, 1)
        rank = torch.arange(rows.max_top_k, device=scaled.device)
        values.masked_fill_(rank >= top_k, -math.inf)
        last = (top_k - 1).clamp_min_(0).expand(*values.shape[:-1], 1)
        scaled.masked_fill_(scaled < values.gather(-1, last), -math.inf)
    weight = scaled.softmax(-1)
    if rows.any_top_p or rows.any_min_p:
        cut = rows.log_min_p.view(-1, 1, 1)
        if rows.any_top_p:
            cut = torch.maximum(cut, _nucleus(scaled, weight, rows, values))
        out = scaled < cut
        scaled.masked_fill_(out, -math.inf)
        weight.masked_fill_(out, 0.0)
    return weight


def _nucleus(scaled: Tensor, weight: Tensor, rows: SamplingRows, values: Tensor | None) -> Tensor:
    """f32[B, N, 1]: the smallest value inside each row's nucleus; -inf without top-p.

    Where top-k is on its ``values`` f32[B, N, k] are all there is to look at. The other requests'
    rows are sorted: how wide a nucleus is, the host does not know.
    """
    largest, top_p = weight.amax(-1, keepdim=True), rows.top_p.view(-1, 1, 1)
    off = torch.full_like(largest, -math.inf)
    cut = off if values is None else reaches(values, largest, top_p)
    if rows.unsorted.numel():
        most = max(1, _SORT_BLOCK // scaled[0].numel())
        for row in torch.split(rows.unsorted, most):
            ordered = scaled[row].sort(-1, descending=True).values
            cut[row] = reaches(ordered, largest[row], top_p[row])
    return torch.where(top_p < 1, cut, off)


def target_uniforms(seed: Tensor, place: Tensor) -> Tensor:
    """f64[B, N] in [0, 1): the number that draws the target's token at each output position.

    Args:
        seed: i64[B].
        place: i64[B, N], output positions.
    """
    state = place * _GOLDEN + (seed * _SEED_STEP).unsqueeze(-1)
    return _shift(_mix(state), 11).double() * 2.0**-53


def promotion_uniforms(seed: Tensor, place: Tensor, token: Tensor) -> Tensor:
    """f32[B, N] in [0, 1): a second stream, with one number for each token at each position.

    Args:
        seed: i64[B].
        place: i64[B, N], output positions.
        token: i64[B, N], the drafts that compete for them.
    """
    state = place * _GOLDEN + token * _TOKEN_STEP + (seed * _SEED_STEP + _PROMOTIONS).unsqueeze(-1)
    return _shift(_mix(state), 40).float() * 2.0**-24


def seed_of(rid: str, server_seed: int) -> int:
    """The seed of a request that brought none: the same wherever ``rid`` is decoded."""
    digest = hashlib.blake2b(f"{server_seed}:{rid}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def upload(values: Tensor, device: torch.device | str | None) -> Tensor:
    """``values`` of the host on ``device``; the copy to a GPU is queued and not waited for."""
    if device is not None and torch.device(device).type == "cuda":
        values = values.pin_memory()  # from other memory the host waits
    return values.to(device, non_blocking=True)


def _signed(number: int) -> int:
    """``number`` modulo 2^64, as int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63


# Odd numbers of irregular bits: the golden ratio's, then those of other generators.
_GOLDEN = _signed(0x9E3779B97F4A7C15)
_SEED_STEP = _signed(0xD1B54A32D192ED03)
_TOKEN_STEP = _signed(0xDA942042E4DD58B5)
_PROMOTIONS = _signed(0x2545F4914F6CDD1D)
_FIRST_FACTOR = _signed(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, bits: int) -> Tensor:
    """x >> bits with zeros shifted in; int64's own shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """i64: splitmix64's finaliser, a bijection on 64 bits; multiplication wraps."""
    x = (x ^ _shift(x, 30)) * _FIRST_FACTOR
    x = (x ^ _shift(x, 27)) * _SECOND_FACTOR
    return x ^ _shift(x, 31)

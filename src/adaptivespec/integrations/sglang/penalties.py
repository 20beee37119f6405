"""Penalties and min_new_tokens along each node's own path, for a batch of draft trees.

SGLang's verify step penalises all nodes of a tree alike: once a round it counts the last output
token, so that neither the rest of an accepted run nor a node's drafted ancestors are ever counted,
and min_new_tokens counts rounds. Here each node is penalised as plain decoding would penalise its
position, so that strict verification yields what plain decoding yields.

The meaning is that of SGLang's plain decoding without overlap (sampling/penaltylib and
SamplingBatchInfo.apply_logits_bias, 0.5.20 to 0.5.23). With c the number of times that a token
stands in the output before a position, the prompt never included:

    z <- z - (frequency * c + presence)                              where c > 0
    z <- z * repetition if z < 0 else z / repetition                 where c > 0
    z <- -inf at every stop id                                       before min_new_tokens tokens

in this order, each rounded to the type of the logits, and before logit bias and grammar mask.
(SGLang adds the frequency penalty up c times; the product differs by the rounding of that sum. With
overlap its plain decoding counts one token late.)
``core.sampling`` differs, as vLLM does: there repetition comes first and counts the prompt too.

Use, with ``reqs`` the requests of a batch and ``slots`` their rows of SGLang's request pool::

    counts = PenaltyCounts(req_to_token.shape[0], vocab_size, device)
    # at a request's prefill, also when it was retracted and is prefilled again:
    counts.admit(slot, penalties_of(req), req.output_ids)
    # when the composition of the batch changes:
    rows = PenaltyRows.of([penalties_of(req) for req in reqs], vocab_size, device)
    # in every round, before eagle_sample, whose own penalties must be off:
    apply(logits, tree, rows, counts, slots, seq_lens - prompt_lens + 1)
    # and after it:
    followed = tree.token.flatten()[accept_index].where(accept_index >= 0, -1)
    counts.record(slots, followed)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.integrations.sglang.sampling import upload

_FIRST_ROWS = 8  # rows of counts that the first request with a penalty allocates


@dataclass(frozen=True)
class Penalties:
    """One request's penalties; the defaults are none.

    Attributes:
        frequency: subtracted for each occurrence in the output.
        presence: subtracted once for a token in the output.
        repetition: divides logits >= 0 and multiplies those below, of tokens in the output.
        min_new_tokens: no stop id before the output has so many tokens.
        stop_ids: the ids that it holds back.
    """

    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    min_new_tokens: int = 0
    stop_ids: tuple[int, ...] = ()

    @property
    def counted(self) -> bool:
        """True when the tokens of the output must be counted."""
        return self.frequency != 0 or self.presence != 0 or self.repetition != 1

    @property
    def any(self) -> bool:
        """True when any logit can change."""
        return self.counted or (self.min_new_tokens > 0 and bool(self.stop_ids))


def penalties_of(request: Any) -> Penalties:
    """The penalties of SGLang's ``Req``; min_new_tokens holds back the ids that SGLang does."""
    params, tokenizer = request.sampling_params, request.tokenizer
    stop_ids = {*(params.stop_token_ids or ()), *(request.eos_token_ids or ())}
    if tokenizer is not None:
        stop_ids.update(tokenizer.additional_stop_token_ids or ())
        stop_ids.add(tokenizer.eos_token_id)
    return Penalties(
        frequency=params.frequency_penalty,
        presence=params.presence_penalty,
        repetition=params.repetition_penalty,
        min_new_tokens=params.min_new_tokens,
        stop_ids=tuple(sorted(stop_ids - {None})),
    )


@dataclass(frozen=True, eq=False)
class PenaltyRows:
    """The penalties of one batch on the device: b of its B requests have any.

    Attributes:
        index: i64[b], the places of those requests in the batch; None when b = B.
        frequency, presence, repetition: f32[b, 1, 1].
        min_new_tokens: i64[b, 1].
        stop_ids: i64[b, S], padded by repetition; S = 0 when nobody has min_new_tokens.
        any: b > 0.
        additive: some request has a frequency or presence penalty.
        scaling: some request has a repetition penalty.
    """

    index: Tensor | None
    frequency: Tensor
    presence: Tensor
    repetition: Tensor
    min_new_tokens: Tensor
    stop_ids: Tensor
    any: bool
    additive: bool
    scaling: bool

    @classmethod
    def of(
        cls, penalties: Sequence[Penalties], vocab_size: int, device: torch.device | str
    ) -> PenaltyRows:
        """Build from the penalties of each request, in the order of the batch."""
        index = [place for place, one in enumerate(penalties) if one.any]
        chosen = [penalties[place] for place in index]
        minimum, stop_ids = _padded_stop_ids(chosen, vocab_size)

        def numbers(values: list[float]) -> Tensor:
            return upload(torch.tensor(values, dtype=torch.float32), device).view(-1, 1, 1)

        def integers(values: Sequence[Any]) -> Tensor:
            return upload(torch.tensor(values, dtype=torch.int64), device)

        return cls(
            index=None if len(index) == len(penalties) else integers(index),
            frequency=numbers([one.frequency for one in chosen]),
            presence=numbers([one.presence for one in chosen]),
            repetition=numbers([one.repetition for one in chosen]),
            min_new_tokens=integers(minimum).unsqueeze(-1),
            stop_ids=integers(stop_ids),
            any=bool(chosen),
            additive=any(one.frequency != 0 or one.presence != 0 for one in chosen),
            scaling=any(one.repetition != 1 for one in chosen),
        )

    def select(self, array: Tensor) -> Tensor:
        """[b, ...]: the requests that have penalties, of an array [B, ...]; a copy if b < B."""
        return array if self.index is None else array[self.index]


class PenaltyCounts:
    """How often each token stands in the output of each request that has a penalty.

    Counts hold the output tokens with KV, which are those before the root of the current tree; the
    root itself is always read from the tree. So they never need a token that the host has not seen.

    Rows of V counts are handed out on demand and taken back, and their number doubles when none is
    free: nothing is allocated before the first penalty, and 256 requests of 152k ids take 156 MB.
    All methods issue work on the current stream, which must be that of the forward pass. None waits
    for the device.

    Args:
        slots: rows of the request pool; a slot lies in [0, slots).
        vocab_size: V, the width of the logits.
        device: where the logits are.
    """

    def __init__(self, slots: int, vocab_size: int, device: torch.device | str) -> None:
        self.vocab_size = vocab_size
        self._row_of = torch.zeros(slots, dtype=torch.int64, device=device)
        # Row 0 belongs to slots without a penalty and stays zero.
        self._counts = torch.zeros(1, vocab_size, dtype=torch.int32, device=device)
        self._rows: dict[int, int] = {}
        self._free: list[int] = []

    def admit(self, slot: int, penalties: Penalties, output_ids: Sequence[int]) -> None:
        """Start the request that is prefilled into ``slot``, or start it again.

        Args:
            slot: its row of the request pool. What the slot held before is forgotten.
            penalties: without a penalty that counts tokens, the slot only gives up its row.
            output_ids: the output that is prefilled with the prompt: none for a new request, all
                that it had produced for a retracted one. The token that this prefill produces is
                not among them, since it becomes the root.
        """
        if not penalties.counted:
            self.release(slot)
            return
        if slot not in self._rows:
            if not self._free:
                self._grow()
            self._rows[slot] = self._free.pop()
            self._row_of[slot] = self._rows[slot]
        counts = self._counts[self._rows[slot]].zero_()
        if output_ids:
            ids = upload(torch.tensor(list(output_ids)), counts.device)
            counts.scatter_add_(0, ids, torch.ones_like(ids, dtype=torch.int32))

    def release(self, slot: int) -> None:
        """Take the slot's row back, if it has one. Admitting its next request does so as well."""
        row = self._rows.pop(slot, None)
        if row is not None:
            self._free.append(row)
            self._row_of[slot] = 0

    def record(self, slots: Tensor, tokens: Tensor) -> None:
        """Count what a round has given KV: the root of each tree, and the drafts followed from it.

        The bonus is left out: it is the next round's root.

        Args:
            slots: i64[B].
            tokens: integers [B, D], padded with -1.
        """
        if not self._rows:
            return
        row = self._row_of[slots].unsqueeze(-1)  # [B, 1]
        real = (tokens >= 0) & (row > 0)
        place = row * self.vocab_size + tokens.clamp_min(0)
        self._counts.view(-1).scatter_add_(0, place.flatten(), real.flatten().int())

    def of(self, slots: Tensor) -> Tensor:
        """i32[B, V]: the counts at ``slots``, i64[B]; zero for those without a penalty. A copy."""
        return self._counts[self._row_of[slots]]

    def _grow(self) -> None:
        """Add as many rows as there are, though never more than the slots can use."""
        rows = self._counts.shape[0]
        more = min(max(rows, _FIRST_ROWS), self._row_of.numel() + 1 - rows)
        self._counts = torch.nn.functional.pad(self._counts, (0, 0, 0, more))
        self._free.extend(reversed(range(rows, rows + more)))


def apply(
    logits: Tensor,
    tree: DraftTree,
    rows: PenaltyRows,
    counts: PenaltyCounts,
    slots: Tensor,
    position: Tensor,
) -> None:
    """Penalise every node's logits, in place, by the tokens on its own path.

    Nothing waits for the device. One temporary of the size of the penalised logits is made when a
    repetition penalty is among them, and one more when not all requests have penalties.

    Args:
        logits: [B * N, V], raw; contiguous.
        tree: [B, N], with max_depth given.
        rows: the penalties of the B requests.
        counts: has every request with a penalty, and its output before the root.
        slots: i64[B].
        position: i64[B], the output position (from 0) that the root's row predicts.
    """
    if not rows.any:
        return
    want = (tree.token.numel(), counts.vocab_size)
    if logits.shape != want:
        raise ValueError(f"logits must have shape {want}, got {tuple(logits.shape)}")
    all_logits = logits.view(*tree.token.shape, -1)  # [B, N, V]
    z = rows.select(all_logits)
    if rows.additive or rows.scaling:
        token, path = rows.select(tree.token_index), rows.select(tree.ancestor_mask())
        _penalise_paths(z, token, path, counts.of(rows.select(slots)), rows)
    if rows.stop_ids.shape[-1] > 0:
        early = rows.select(tree.positions(position)) < rows.min_new_tokens  # [b, N]
        ids = rows.stop_ids.unsqueeze(1).expand(-1, tree.num_nodes, -1)
        z.scatter_(-1, ids, torch.where(early.unsqueeze(-1), -math.inf, z.gather(-1, ids)))
    if rows.index is not None:
        all_logits.index_copy_(0, rows.index, z)


def _penalise_paths(
    z: Tensor, token: Tensor, path: Tensor, before: Tensor, rows: PenaltyRows
) -> None:
    """Penalise z [b, N, V] in place: densely by the counts before the root, then path by path.

    Scaling does not commute with subtraction, so the tokens of the tree are penalised once more,
    from their raw logits. This is done for every pair of a node and a token of the tree: where the
    token is off the node's path, the dense result comes out again.

    Args:
        token: i64[b, N].
        path: bool[b, N, N], (i, j) is True when j is i or an ancestor of i.
        before: i32[b, V].
    """
    same = token.unsqueeze(-1) == token.unsqueeze(-2)
    on_path = path.float() @ same.float()  # [b, N, N]: how often path i holds token j; exact
    count = before.gather(-1, token).unsqueeze(1) + on_path
    places = token.unsqueeze(1).expand_as(path)
    of_tree = z.gather(-1, places)
    _penalise(z, before.unsqueeze(1), rows)
    _penalise(of_tree, count, rows)
    z.scatter_(-1, places, of_tree)  # a token that stands twice in the tree: equal values


def _penalise(z: Tensor, count: Tensor, rows: PenaltyRows) -> None:
    """Penalise z [b, N, M] in place by ``count``, [b, 1 or N, M]."""
    if rows.additive:
        z.sub_(rows.frequency * count + rows.presence * (count > 0))
    if rows.scaling:
        scale = torch.where(count > 0, rows.repetition, 1.0)
        positive = z.clamp_min(0).div_(scale)
        z.clamp_max_(0).mul_(scale).add_(positive)  # one of the two parts is 0


def _padded_stop_ids(
    penalties: Sequence[Penalties], vocab_size: int
) -> tuple[list[int], list[list[int]]]:
    """min_new_tokens of each request, and its stop ids, padded to one length by repetition.

    A request without stop ids in the vocabulary gets min_new_tokens 0 and any id.
    """
    ids = [
        [i for i in one.stop_ids if 0 <= i < vocab_size] if one.min_new_tokens > 0 else []
        for one in penalties
    ]
    width = max(map(len, ids), default=0)
    minimum = [one.min_new_tokens if own else 0 for one, own in zip(penalties, ids, strict=True)]
    return minimum, [own + (own or [0])[:1] * (width - len(own)) for own in ids]

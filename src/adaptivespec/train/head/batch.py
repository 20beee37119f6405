"""A batch of training texts: packed features, and what the target said at the rows that count."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.train.data.corpus import Item
from adaptivespec.train.data.features import Sequence_
from adaptivespec.train.head.pack import ROWS_STEP, Pack, rounded
from adaptivespec.train.head.teacher import Teacher


class TextFeatures(Protocol):
    """Texts and, by their index, what the target computed on them; `FeatureStore` is one."""

    @property
    def items(self) -> Sequence[Item]: ...

    def __getitem__(self, index: int, /) -> Sequence_: ...


@dataclass
class Batch:
    """Inputs of `Eagle3Module.run` and the targets of its outputs.

    A place counts where the target's choice is draftable and the answer has not ended before it.
    """

    pack: Pack
    taps: Tensor  # bf16[count * length, taps * H]
    tokens: Tensor  # i64[count * length], the token after each position
    wanted: Tensor  # [m, draft vocab], the target's probabilities at the places that count
    best: Tensor  # i64[m], the draft id it chose there
    at: Tensor  # i64[real], which row of `wanted` speaks of the token after next; -1 for none
    text: Tensor  # i64[real], the text of each packed row

    def counted(self, step: int) -> tuple[Tensor, Tensor]:
        """Packed rows whose loss counts at an unroll step, and their rows of `wanted`."""
        row = torch.arange(self.at.shape[0] - min(step, self.at.shape[0]))
        said = self.at[row + step]
        row = row[(said >= 0) & (self.text[row] == self.text[row + step])]
        return row, self.at[row + step]


class Batcher:
    """Makes batches for a draft vocabulary `target_ids i64[V]` of a teacher."""

    def __init__(
        self, teacher: Teacher, target_ids: Tensor, steps: int, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self.teacher, self.steps, self.dtype = teacher, steps, dtype
        self.rows = teacher.rows(target_ids).to(dtype)
        self.draft_id = torch.full((teacher.vocab_size,), -1)
        self.draft_id[target_ids] = torch.arange(target_ids.shape[0])
        self.eos = torch.tensor(teacher.eos_token_ids, dtype=torch.long)
        self.wanted = torch.empty(0)

    @torch.no_grad()
    def __call__(self, texts: Sequence[Sequence_]) -> Batch:
        """The batch of some texts; the next call overwrites its `wanted`."""
        firsts = [max(s.prompt_len - 1, 0) for s in texts]
        lengths = [s.tokens.shape[0] - 1 for s in texts]
        pack = Pack.of(lengths, firsts, self.steps, self.dtype)
        taps = torch.zeros(pack.count, pack.length, texts[0].taps.shape[1], dtype=self.dtype)
        tokens = torch.zeros(pack.count, pack.length, dtype=torch.long)
        chosen, final = [], []
        for b, (s, first, n) in enumerate(zip(texts, firsts, lengths, strict=True)):
            taps[b, :n] = s.taps[:n]
            tokens[b, :n] = s.tokens[1:]
            ended = torch.isin(s.tokens[first + 1 :], self.eos)
            chosen.append(self.draft_id[s.greedy[first + 1 :]].masked_fill(ended, -1))
            final.append(s.final[first + 1 :])
        best = torch.cat(chosen)
        counts = (best >= 0).nonzero()[:, 0]
        at = torch.full_like(best, -1)
        at[counts] = torch.arange(counts.shape[0])
        normed = self.teacher.normed(torch.cat(final)[counts]).to(self.dtype)
        extra = rounded(normed.shape[0], ROWS_STEP) - normed.shape[0]
        normed = F.pad(normed, (0, 0, 0, extra))
        if self.wanted.shape[0] < normed.shape[0]:
            self.wanted = torch.empty(normed.shape[0], self.rows.shape[0], dtype=self.dtype)
        wanted = torch.mm(normed, self.rows.t(), out=self.wanted[: normed.shape[0]])
        torch.softmax(wanted, -1, out=wanted)
        return Batch(
            pack=pack,
            taps=taps.flatten(0, 1),
            tokens=tokens.flatten(),
            wanted=wanted,
            best=best[counts],
            at=at,
            text=pack.place[: pack.real] // pack.length,
        )


def batches(items: Sequence[Item], size: int, seed: str) -> list[list[int]]:
    """Indices of `items` in batches of like length, each from short to long, in a random order."""
    rng = random.Random(seed)  # noqa: S311  not for secrets
    order = list(range(len(items)))
    rng.shuffle(order)
    made = []
    for start in range(0, len(order), 64 * size):
        part = sorted(order[start : start + 64 * size], key=lambda i: len(items[i].tokens))
        made += [part[i : i + size] for i in range(0, len(part), size)]
    rng.shuffle(made)
    return made

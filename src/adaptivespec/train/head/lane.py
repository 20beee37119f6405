"""One thread's part of a training step: its texts, forward and backward, in buffers of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptivespec.train.data.features import Sequence_
from adaptivespec.train.head.batch import Batch, Batcher
from adaptivespec.train.head.loss import OutputLoss
from adaptivespec.train.head.model import Eagle3Module
from adaptivespec.train.head.ops import Take
from adaptivespec.train.head.options import TrainOptions
from adaptivespec.train.head.pack import ROWS_STEP, rounded
from adaptivespec.train.head.teacher import Teacher


@dataclass
class StepResult:
    """One unroll step of a batch at the rows that count."""

    rows: Tensor  # i64[n], packed rows
    losses: Tensor  # f32[n]
    hits: Tensor  # bool[n], whether the head's first choice is the target's


@dataclass
class Part:
    """A lane's batch, and which of its rows' losses are taken at each unroll step."""

    batch: Batch
    chosen: list[tuple[Tensor, Tensor]]  # packed rows, and their rows of `batch.wanted`

    @property
    def counts(self) -> list[int]:
        return [rows.numel() for rows, _ in self.chosen]


@dataclass
class Learned:
    """Sums over the rows that counted, per unroll step, and gradients by parameter."""

    losses: list[float]
    hits: list[float]
    gradients: dict[str, Tensor]


class Lane:
    """Runs batches through `module`, which belongs to this lane alone.

    Args:
        teacher: the target's frozen parts.
        options: `loss_rows`, `step_weight`, `tie_output` and `seed` are read.
        steps: how often the head is unrolled.
    """

    def __init__(
        self, module: Eagle3Module, teacher: Teacher, options: TrainOptions, steps: int
    ) -> None:
        self.module, self.options, self.steps = module, options, steps
        self.batcher = Batcher(teacher, module.target_ids, steps, module.embedding.dtype)
        vocab = module.config.draft_vocab_size
        self.output_loss = OutputLoss(module.matrices["lm_head"], vocab)

    def part(self, texts: Sequence[Sequence_], name: str) -> Part:
        """The batch of `texts`; `name` seeds the choice of rows."""
        batch = self.batcher(texts)
        chosen = [batch.counted(k) for k in range(self.steps)]
        if self.options.loss_rows < 1:
            for k in range(1, self.steps):
                chosen[k] = self._some(f"{self.options.seed}-{name}-{k}", *chosen[k])
        return Part(batch, chosen)

    def learn(self, part: Part, counts: Sequence[int]) -> Learned:
        """Gradients of the mean losses; `counts` are the rows of the whole batch, per step."""
        outputs, gradients, losses, hits = [], [], [], []
        for k, (normed, gradient, result) in enumerate(self._unrolled(part, exact=False)):
            share = self.options.step_weight**k / max(counts[k], 1)
            outputs.append(normed)
            gradients.append(self.output_loss.backward(normed, gradient, share))
            losses.append(float(result.losses.sum()))
            hits.append(float(result.hits.sum()))
        if not self.options.tie_output:
            self.output_loss.finish()
        torch.autograd.backward(outputs, gradients)
        return Learned(losses, hits, self.module.gradients())

    @torch.no_grad()
    def judge(self, texts: Sequence[Sequence_]) -> Iterator[tuple[Tensor, StepResult]]:
        """Per unroll step the text of each row that counts, and the result."""
        batch = self.batcher(texts)
        part = Part(batch, [batch.counted(k) for k in range(self.steps)])
        for _, _, result in self._unrolled(part, exact=True):
            yield batch.text[result.rows], result

    def _unrolled(self, part: Part, exact: bool) -> Iterator[tuple[Tensor, Tensor, StepResult]]:
        """Per unroll step the normed rows, their logits' gradient, and the result."""
        batch = part.batch
        self.output_loss.begin(batch.pack.rows * self.steps)
        for k, x in enumerate(self.module.run(batch.pack, batch.taps, batch.tokens)):
            rows, at = part.chosen[k]
            count = rows.numel()
            index = torch.cat((rows, rows.new_zeros(rounded(count, ROWS_STEP) - count)))
            normed = self.module.norm(Take.apply(x, index, count))
            losses, hits, gradient = self.output_loss.forward(
                normed, batch.wanted, at, batch.best[at], exact=exact
            )
            yield normed, gradient, StepResult(rows, losses, hits)

    def _some(self, seed: str, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """The rows whose loss is taken, see `TrainOptions.loss_rows`."""
        number = random.Random(seed).getrandbits(62)  # noqa: S311  not for secrets
        generator = torch.Generator().manual_seed(number)
        count = math.ceil(rows.numel() * self.options.loss_rows)
        kept = torch.randperm(rows.numel(), generator=generator)[:count].sort().values
        return rows[kept], at[kept]

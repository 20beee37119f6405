"""Soft cross-entropy over the draft vocabulary, with its gradient made in place."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptivespec.train.head.ops import Weight

#: Rows computed together, so that the temporaries stay in the processor's cache.
LOSS_ROWS = 64


class SoftCrossEntropy:
    """`-sum_x p(x) log softmax(logits)(x)` per row, `p` the target's probabilities.

    Keeps float32 scratch memory for rows of `vocab` logits.
    """

    def __init__(self, vocab: int) -> None:
        self.logits, self.probability, self.wanted = torch.empty(3, LOSS_ROWS, vocab)
        self.gathered = torch.empty(0)

    def __call__(
        self, logits: Tensor, wanted: Tensor, index: Tensor, best: Tensor, exact: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Loss and gradient of the first `n` rows.

        Args:
            logits: `[>= n, V]`; becomes `softmax(logits) - p`, and 0 beyond the first n rows.
            wanted: `p [m, V]`.
            index: `i64[n]`, the row of `wanted` for each row.
            best: `i64[n]`, the draft id that the target chose.
            exact: of equal largest logits only the first counts as a hit; slower.

        Returns the losses `f32[n]` and whether `best` has the largest logit, `bool[n]`.
        """
        rows = index.shape[0]
        losses, hits = torch.empty(rows), torch.empty(rows, dtype=torch.bool)
        if self.gathered.dtype != wanted.dtype or not self.gathered.numel():
            self.gathered = torch.empty_like(self.wanted, dtype=wanted.dtype)
        for start in range(0, rows, LOSS_ROWS):
            part = slice(start, min(start + LOSS_ROWS, rows))
            size = part.stop - start
            z, q, p = self.logits[:size], self.probability[:size], self.wanted[:size]
            z.copy_(logits[part])
            torch.softmax(z, -1, out=q)
            top = z.amax(-1)
            if exact:
                hits[part] = z.argmax(-1) == best[part]
            else:
                hits[part] = z.gather(-1, best[part, None])[:, 0] == top
            # log sum exp(z) = max z - log max q; sum p = 1.
            losses[part] = top - q.amax(-1).log_()
            p.copy_(torch.index_select(wanted, 0, index[part], out=self.gathered[:size]))
            z.mul_(p)
            losses[part] -= z.sum(-1)
            logits[part] = q.sub_(p)
        logits[rows:] = 0
        return losses, hits


class OutputLoss:
    """The output layer and its loss over the unroll steps of a batch.

    Logits of all steps stay in one buffer, where they turn into their gradient, so that the
    layer's own gradient is one matrix product.
    """

    def __init__(self, weight: Weight, vocab: int) -> None:
        self.weight = weight
        self.soft_cross_entropy = SoftCrossEntropy(vocab)
        self.logits, self.inputs, self.used = torch.empty(0, vocab), torch.empty(0), 0

    def begin(self, rows: int) -> None:
        """Make room for `rows` rows, all steps together."""
        w, self.used = self.weight.value, 0
        if self.logits.shape[0] < rows or self.logits.dtype != w.dtype:
            self.logits = torch.empty(rows, w.shape[0], dtype=w.dtype)
            self.inputs = torch.empty(rows, w.shape[1], dtype=w.dtype)

    @torch.no_grad()
    def forward(
        self, normed: Tensor, wanted: Tensor, index: Tensor, best: Tensor, exact: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, hits (see `SoftCrossEntropy`) and the logits' gradient of `normed [R, H]`.

        The gradient is that of the sum of the losses; the next `begin` overwrites it.
        """
        logits = self.logits[self.used : self.used + normed.shape[0]]
        torch.mm(normed, self.weight.value.t(), out=logits)
        losses, hits = self.soft_cross_entropy(logits, wanted, index, best, exact)
        return losses, hits, logits

    @torch.no_grad()
    def backward(self, normed: Tensor, gradient: Tensor, share: float) -> Tensor:
        """Keep what the layer's gradient needs of this step; returns the gradient of `normed`.

        Args:
            share: what the sum of this step's losses counts in the total loss.
        """
        rows = normed.shape[0]
        torch.mul(normed, share, out=self.inputs[self.used : self.used + rows])
        self.used += rows
        return (gradient @ self.weight.value).mul_(share)

    def finish(self) -> None:
        """Note the uses of all steps, after the last `backward`."""
        self.weight.note(self.inputs[: self.used], self.logits[: self.used])

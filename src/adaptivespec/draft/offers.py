"""What a drafter offers under each node of a frontier: its likeliest words, or drawn ones."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptivespec.core.sampling import Sampler


def offers(
    logits: Tensor, topk: int, target_ids: Tensor, vocab_size: int, sampler: Sampler | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Target ids i64 and log probabilities f32, `[R, topk]` each, of draft words.

    Args:
        logits: f32[R, Vd] over the draft vocabulary.
        target_ids: i64[Vd], the target's id of each draft word.
        vocab_size: V of the target.
        sampler: draws the words, without replacement; None takes the likeliest.

    Returns the two, and where words were drawn their law over the target's vocabulary, f32[R, V].
    """
    topk = min(topk, logits.shape[-1])
    if sampler is None:
        values, index = logits.topk(topk, -1)
        return target_ids[index], values - logits.logsumexp(-1, keepdim=True), None
    index, logq, q = sampler.draw_drafts(logits, topk)
    law = torch.zeros(logits.shape[0], vocab_size, device=logits.device)
    law[:, target_ids] = q
    return target_ids[index], logq, law

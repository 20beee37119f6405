"""Give a trained head a wider MLP or another draft vocabulary, without losing what it learned."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint
from adaptivespec.train.head.teacher import Teacher

#: Spread of a new gate or up row, as a share of the old rows' spread.
NEW_ROWS = 0.5


def grow(
    checkpoint: Eagle3Checkpoint,
    *,
    teacher: Teacher,
    intermediate_size: int | None = None,
    target_ids: Tensor | None = None,
    seed: int = 0,
) -> Eagle3Checkpoint:
    """A larger head that computes what `checkpoint` computes, on the draft ids that both have.

    Args:
        intermediate_size: width of the MLP, at least the present one.  New gate and up rows are
            random, new down columns zero.
        target_ids: the new draft vocabulary, distinct ids in rising order.  A kept id keeps its
            output row; a new one takes the target's row, each column scaled by the least-squares
            factor that maps the target's rows to the head's over the kept ids.

    Raises:
        ConfigError: a narrower MLP, or ids that are not distinct ids of the target in order.
    """
    checkpoint.check_target(teacher.vocab_size, teacher.hidden_size)
    tensors = {
        name: tensor.float().clone()
        for name, tensor in checkpoint.tensors.items()
        if name not in ("d2t", "t2d")
    }
    config, ids = checkpoint.config, checkpoint.target_ids
    if intermediate_size is not None:
        extra = intermediate_size - config.intermediate_size
        if extra < 0:
            raise ConfigError(
                f"must be at least the head's {config.intermediate_size}, got {intermediate_size}",
                field="intermediate_size",
            )
        generator = torch.Generator().manual_seed(seed)
        for name in (f"{LAYER}.mlp.gate_proj.weight", f"{LAYER}.mlp.up_proj.weight"):
            old = tensors[name]
            new = torch.randn(extra, old.shape[1], generator=generator) * (old.std() * NEW_ROWS)
            tensors[name] = torch.cat((old, new))
        down = tensors[f"{LAYER}.mlp.down_proj.weight"]
        zero = torch.zeros(down.shape[0], extra)
        tensors[f"{LAYER}.mlp.down_proj.weight"] = torch.cat((down, zero), 1)
        config = replace(config, intermediate_size=intermediate_size)
    if target_ids is not None:
        _check_ids(target_ids, teacher.vocab_size)
        tensors["lm_head.weight"] = _output_rows(checkpoint, teacher, target_ids)
        config = replace(config, draft_vocab_size=target_ids.shape[0])
        ids = target_ids.clone()
    return Eagle3Checkpoint(config, tensors, ids)


def tied(checkpoint: Eagle3Checkpoint, teacher: Teacher) -> Eagle3Checkpoint:
    """The head with the target's output rows as its `lm_head`.

    The gain of `norm` becomes the least-squares factor per column that maps the target's rows to
    the head's rows times its present gain, so that the logits change as little as they can.
    """
    target = teacher.rows(checkpoint.target_ids).float()
    head = _lm_head(checkpoint) * checkpoint.tensors["norm.weight"].float()
    changed = {"lm_head.weight": target, "norm.weight": _column_factors(target, head)}
    return replace(checkpoint, tensors={**checkpoint.tensors, **changed})


def _output_rows(checkpoint: Eagle3Checkpoint, teacher: Teacher, target_ids: Tensor) -> Tensor:
    """`lm_head` rows for `target_ids`, see `grow`."""
    row_of = torch.full((teacher.vocab_size,), -1)
    row_of[checkpoint.target_ids] = torch.arange(checkpoint.target_ids.shape[0])
    old = row_of[target_ids]
    kept = old >= 0
    source = teacher.rows(target_ids).float()
    lm_head = _lm_head(checkpoint)
    fitted = kept if bool(kept.any()) else None
    if fitted is None:
        factors = _column_factors(teacher.rows(checkpoint.target_ids).float(), lm_head)
    else:
        factors = _column_factors(source[fitted], lm_head[old[fitted]])
    rows = source * factors
    rows[kept] = lm_head[old[kept]]
    return rows


def _lm_head(checkpoint: Eagle3Checkpoint) -> Tensor:
    try:
        return checkpoint.tensors["lm_head.weight"].float()
    except KeyError:
        raise ConfigError(
            "the head has no lm_head of its own", field="draft_model", remedy="Give it one first"
        ) from None


def _column_factors(source: Tensor, wanted: Tensor) -> Tensor:
    """The `f [H]` with the least `|source * f - wanted|`, both `[R, H]`."""
    return (source * wanted).sum(0) / source.square().sum(0).clamp(min=1e-12)


def _check_ids(ids: Tensor, vocab_size: int) -> None:
    rising = ids.dim() == 1 and ids.numel() > 0 and bool((ids[1:] > ids[:-1]).all())
    if not rising or int(ids[0]) < 0 or int(ids[-1]) >= vocab_size:
        raise ConfigError(
            f"must be distinct ids in [0, {vocab_size}) in rising order", field="target_ids"
        )

"""The user's own model as a target, and the drafters made for it, each prepared once a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.choice import DrafterChoice, make_drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.engine.loading import drafter_for, load_head
from adaptivespec.engine.model.transformers_target import TransformersTarget

#: Where a model keeps what was prepared for it. A table of ours would keep the model alive.
_ATTRIBUTE = "_adaptivespec"


@dataclass
class _Prepared:
    """Of one model, as long as it stays on its device and in its dtype."""

    target: TransformersTarget
    dtype: torch.dtype
    device: torch.device
    drafters: dict[str, Drafter[Any]] = field(default_factory=dict)


def target_of(model: Any) -> TransformersTarget:
    """The model as a target.

    Raises:
        ConfigError: trees cannot be verified with it; says what is in the way.
    """
    return _prepared(model).target


def load_drafter(model: Any, draft_model: str | Path | Eagle3Checkpoint) -> Drafter[Any]:
    """The drafter of an EAGLE-3 head for a model of transformers, which lends its embedding.

    Args:
        model: the target, a causal language model.
        draft_model: a directory, a hub id, or a checkpoint in memory.

    Raises:
        CheckpointError, ModelNotFoundError: no such head, or it was made for another model.
    """
    if not isinstance(draft_model, Eagle3Checkpoint):
        loaded = load_head(draft_model, "", {})
        if loaded is None:
            raise ConfigError("names no head", field="draft_model")
        draft_model = loaded
    return drafter_for(target_of(model), draft_model)


def drafter_of(model: Any, draft_model: Any) -> Drafter[Any] | None:
    """What ``generate`` is given as draft_model, as a drafter; those named by a path are kept."""
    if draft_model is None or isinstance(draft_model, Drafter):
        return draft_model
    if isinstance(draft_model, Eagle3Checkpoint):
        return load_drafter(model, draft_model)
    if not isinstance(draft_model, str | Path):
        raise ConfigError(
            f"is a {type(draft_model).__name__}, not a path, hub id, checkpoint or drafter",
            field="draft_model",
            remedy="For a model of transformers as a drafter, leave custom_generate out and give "
            "assistant_model",
        )
    kept = _prepared(model).drafters
    key = str(draft_model)
    if key not in kept:
        kept[key] = _named(model, draft_model)
    return kept[key]


def _named(model: Any, draft_model: str | Path) -> Drafter[Any]:
    """A head's drafter, n-grams, or both, as `draft_model` spells them."""
    choice = DrafterChoice.parse(draft_model)
    target = target_of(model)
    main = None if choice.main is None else load_drafter(model, choice.main)
    drafter = make_drafter(choice, main, target.limits.vocab_size, target.device)
    if drafter is None:
        raise ConfigError("names no drafter", field="draft_model")
    return drafter


def _prepared(model: Any) -> _Prepared:
    found = getattr(model, _ATTRIBUTE, None)
    if found is None or (found.dtype, found.device) != (model.dtype, model.device):
        limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if limit is None:
            raise ConfigError(
                "its config has no max_position_embeddings", field="model", remedy="Set it"
            )
        found = _Prepared(TransformersTarget(model, limit), model.dtype, model.device)
        setattr(model, _ATTRIBUTE, found)
    return found

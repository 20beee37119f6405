"""What an engine is made of: precision, limits, target, head."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import ConfigError, ModelNotFoundError
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.engine.weights import resolve_model

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
#: Heads that the package ships, by the name of their target.
SHIPPED_HEADS = {"smollm2-135m-instruct": "smollm2-135m-instruct-eagle3"}


def precision(name: str) -> torch.dtype:
    """The torch type of "auto", "bfloat16" or "float32"."""
    if name == "auto":
        return torch.bfloat16 if _bf16_is_native() else torch.float32
    if name not in DTYPES:
        raise ConfigError(
            f"unknown dtype {name!r}", field="dtype", remedy=f"Use auto, {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def _bf16_is_native() -> bool:
    """Whether oneDNN has bfloat16 kernels for this CPU; without them it is slower than float32."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


def context_limit(asked: int | None, limit: int) -> int:
    """The longest sequence, as asked for within the model's own limit."""
    if asked is None:
        return limit
    if not 2 <= asked <= limit:
        raise ConfigError(f"must lie in [2, {limit}], got {asked}", field="max_model_len")
    return asked


def load_head(
    draft_model: str | Path | None, target_name: str, hub: Mapping[str, Any]
) -> Eagle3Checkpoint | None:
    """The head that was asked for, or the one that ships for this target, if any."""
    if draft_model is not None:
        if Path(draft_model).exists():
            return Eagle3Checkpoint.load(draft_model)
        try:
            found = resolve_model(str(draft_model), **hub)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(
                error.message,
                field="draft_model",
                remedy="Give the directory of an EAGLE-3 head, or a hub id",
            ) from error
        return Eagle3Checkpoint.load(found.path)
    shipped = SHIPPED_HEADS.get(target_name.lower())
    if shipped is None:
        return None
    return Eagle3Checkpoint.load(str(files("adaptivespec").joinpath("heads", shipped)))

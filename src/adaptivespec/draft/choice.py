"""Which drafter a user asks for, and making it of its parts.

``ngram`` is prompt lookup alone.  ``HEAD+ngram`` grafts it onto what HEAD drafts, and ``+ngram``
onto the drafter that the target would have had anyway.  Anything else names a head or a small
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import ConfigError
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.graft import GraftDrafter
from adaptivespec.draft.ngram import NgramDrafter

NGRAM = "ngram"
GRAFT = f"+{NGRAM}"


@dataclass(frozen=True)
class DrafterChoice:
    """What was asked for.

    Attributes:
        main: the head or small model, a path or hub id; None for the target's usual drafter.
        ngram: whether n-grams are drafted.
        alone: whether nothing else is.
    """

    main: str | Path | None = None
    ngram: bool = False
    alone: bool = False

    @classmethod
    def parse(cls, draft_model: str | Path | None) -> DrafterChoice:
        """Read ``draft_model``; a path that exists is that path, whatever it is called.

        Raises:
            ConfigError: n-grams on n-grams.
        """
        text = str(draft_model)
        if draft_model is None or not text.endswith(NGRAM) or _is_path(draft_model):
            return cls(draft_model)
        if text == NGRAM:
            return cls(None, ngram=True, alone=True)
        if not text.endswith(GRAFT):
            return cls(draft_model)
        main = text.removesuffix(GRAFT)
        if main == NGRAM or main.endswith(GRAFT):
            raise ConfigError(
                f"{text!r} grafts n-grams onto n-grams",
                field="draft_model",
                remedy=f"Use {NGRAM}, {GRAFT} or HEAD{GRAFT}",
            )
        return cls(main or None, ngram=True)


def _is_path(draft_model: str | Path) -> bool:
    return isinstance(draft_model, Path) or ("/" in draft_model and Path(draft_model).exists())


def make_drafter(
    choice: DrafterChoice,
    main: Drafter[Any] | None,
    vocab_size: int,
    device: torch.device | None = None,
) -> Drafter[Any] | None:
    """The drafter that was asked for.

    Args:
        main: the head's or small model's drafter; None where there is none, and then n-grams, if
            they were asked for, are drafted alone.
        vocab_size: V of the target.
        device: of the target.
    """
    if not choice.ngram:
        return main
    ngram = NgramDrafter(vocab_size, device)
    return ngram if main is None or choice.alone else GraftDrafter(main, ngram)


def is_language_model(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a model which drafts by itself, rather than of a head.

    Heads are of one layer, and say that they are heads or what their draft vocabulary is.
    """
    names = [str(name) for name in config.get("architectures") or ()]
    marked = any(key in config for key in ("draft_vocab_size", "speculators_model_type"))
    headed = any("eagle" in name.lower() or "speculator" in name.lower() for name in names)
    layers = config.get("num_hidden_layers", 1)
    return not (marked or headed) and isinstance(layers, int) and layers > 1

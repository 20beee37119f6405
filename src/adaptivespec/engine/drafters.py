"""The drafter beside a target: a head, a small model, n-grams, or n-grams grafted onto either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptivespec.draft.base import Drafter
from adaptivespec.draft.choice import NGRAM, DrafterChoice, is_language_model, make_drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.draft.small_lm import SmallLMDrafter, check_vocabulary
from adaptivespec.engine.loading import SHIPPED_HEADS, Backend, find_head, read_config
from adaptivespec.engine.target import Target
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.engine.weights.jsonfile import read_json


@dataclass(frozen=True)
class DraftModel:
    """What drafts, found and not loaded yet.

    Attributes:
        choice: what was asked for.
        path: of the head or small model; None where there is none.
        name: for people.
    """

    choice: DrafterChoice
    path: Path | None
    name: str

    @classmethod
    def find(
        cls, draft_model: str | Path | None, target_name: str, hub: Mapping[str, Any]
    ) -> DraftModel:
        """Find what `draft_model` of `Engine.from_pretrained` names.

        Raises:
            ConfigError, ModelNotFoundError: it names nothing that drafts.
        """
        choice = DrafterChoice.parse(draft_model)
        if choice.alone:
            return cls(choice, None, NGRAM)
        path = find_head(choice.main, target_name, hub)
        if path is None:  # a model without a head: what needs no weights is better than nothing
            return cls(DrafterChoice(ngram=True, alone=True), None, NGRAM)
        main = str(choice.main or SHIPPED_HEADS[target_name.lower()])
        return cls(choice, path, f"{main}+{NGRAM}" if choice.ngram else main)

    @property
    def small(self) -> bool:
        """Whether it is a language model rather than a head."""
        if self.path is None or self.path.suffix == ".safetensors":
            return False
        if self.path.suffix == ".gguf":
            return True
        return is_language_model(read_json(self.path / "config.json", missing_ok=True))

    def head(self) -> Eagle3Checkpoint | None:
        """The head, loaded; None where it is none."""
        return None if self.path is None or self.small else Eagle3Checkpoint.load(self.path)

    def drafter(
        self,
        of_head: Drafter[Any] | None,
        backend: Backend,
        target: Target[Any],
        tokenizer: Tokenizer,
    ) -> Drafter[Any] | None:
        """The drafter; None where there is none.

        Args:
            of_head: that of `head`, made beside the target.
            backend: that a small model runs on, too.
            target, tokenizer: of the model that verifies.

        Raises:
            CheckpointError: a small model that reads other tokens.
        """
        limits = target.limits
        main = of_head
        if self.path is not None and self.small:
            config = read_config(self.path)
            check_vocabulary(Tokenizer.from_dir(self.path).vocabulary, tokenizer.vocabulary)
            room = min(limits.max_model_len, config.max_position_embeddings)
            model, _ = backend.for_model(config, room).load(self.path, config, room, None)
            main = SmallLMDrafter(model, limits.vocab_size)
        return make_drafter(self.choice, main, limits.vocab_size, target.device)

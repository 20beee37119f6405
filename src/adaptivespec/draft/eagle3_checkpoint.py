"""EAGLE-3 checkpoints in memory (Li et al., 2503.01840): read from any dialect, and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.draft.dialects import Dialect, dialect_named
from adaptivespec.draft.dialects.base import Written
from adaptivespec.draft.eagle3_config import LAYER, Eagle3Config
from adaptivespec.draft.heads import (
    CONFIG_FILE,
    VOCABULARY_MAPS,
    WEIGHTS_FILE,
    Head,
    spelled_for,
)
from adaptivespec.draft.proposal import Proposal

__all__ = ["LAYER", "Eagle3Checkpoint", "Eagle3Config"]


@dataclass(frozen=True)
class Eagle3Checkpoint:
    """A head in memory.  `target_ids i64[draft_vocab]` maps a draft id to the target's id."""

    config: Eagle3Config
    tensors: dict[str, Tensor]
    target_ids: Tensor

    @classmethod
    def load(cls, path: str | Path, allow_pickles: bool = False) -> Eagle3Checkpoint:
        """Read a head in any dialect, every tensor checked.

        Args:
            path: a directory with `config.json` and one safetensors file, or that file.
            allow_pickles: read a `.bin`, tensors alone (`torch.load(weights_only=True)`).

        Raises:
            ModelNotFoundError: no such directory, or it lacks a file.
            CheckpointError: missing, unexpected or mis-shaped tensors (all listed), a bad `d2t`,
                a config that is no head's, or a pickle that was not allowed.
        """
        return cls.of(Head.open(path, allow_pickles))

    @classmethod
    def of(cls, head: Head) -> Eagle3Checkpoint:
        """The tensors of an opened head. Raises CheckpointError as `load`."""
        tensors = head.read()
        ids = _target_ids(head.config, tensors, str(head.files.weights))
        return cls(head.config, tensors, ids)

    def check_target(self, vocab_size: int, hidden_size: int) -> None:
        """CheckpointError unless the head was made for a target of these sizes."""
        c = self.config
        if (c.vocab_size, c.hidden_size) != (vocab_size, hidden_size):
            raise CheckpointError(
                f"the head wants a target with vocabulary {c.vocab_size} and hidden size "
                f"{c.hidden_size}, this one has {vocab_size} and {hidden_size}",
                field="draft_model",
                remedy="Use a head trained for this target, or --policy none",
            )

    def save(self, path: str | Path) -> None:
        """Write `config.json` in the SGLang dialect and bfloat16 weights, `d2t` and `t2d` included.

        The directory is made when missing. Raises ConfigError where the dialect cannot say it.
        """
        arange = torch.arange(self.config.draft_vocab_size)
        mask = torch.zeros(self.config.vocab_size, dtype=torch.bool)
        mask[self.target_ids] = True
        tensors = {
            name: tensor.to(torch.bfloat16)
            for name, tensor in self.tensors.items()
            if name not in VOCABULARY_MAPS
        }
        tensors |= {"d2t": self.target_ids - arange, "t2d": mask}
        _write(self.config, tensors, Path(path), dialect_named("sglang"), None)

    def save_as(
        self, path: str | Path, dialect: str = "sglang", proposal: Proposal | None = None
    ) -> None:
        """Write the head in a dialect, every tensor as it is.

        Args:
            path: a directory, made when missing.
            dialect: a name of `dialects.DIALECTS`.
            proposal: how drafts are accepted, for the dialect that says so.

        Raises:
            ConfigError: an unknown dialect, or one that cannot say what the head needs.
        """
        offsets = self.target_ids - torch.arange(self.config.draft_vocab_size)
        implied = {"d2t": offsets} if "d2t" not in self.tensors and bool(offsets.any()) else {}
        _write(self.config, self.tensors | implied, Path(path), dialect_named(dialect), proposal)


def _write(
    config: Eagle3Config,
    tensors: Mapping[str, Tensor],
    path: Path,
    dialect: Dialect,
    proposal: Proposal | None,
) -> None:
    """Weights first, then the config: a directory with a config is whole."""
    from safetensors.torch import save_file

    dtype = str(tensors["fc.weight"].dtype).removeprefix("torch.")
    written = Written(dtype, "lm_head.weight" not in tensors, proposal)
    text = json.dumps(dialect.write(config, written), indent=1) + "\n"
    partial = path / (WEIGHTS_FILE + ".partial")
    try:
        path.mkdir(parents=True, exist_ok=True)
        save_file(
            {spelled_for(name, dialect.layer): t.contiguous() for name, t in tensors.items()},
            partial,
            metadata={"format": "pt"},
        )
        partial.replace(path / WEIGHTS_FILE)
        (path / CONFIG_FILE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write to {path}: {error.strerror}",
            field="out",
            remedy="Name a directory that may be written to",
        ) from error


def _target_ids(config: Eagle3Config, tensors: Mapping[str, Tensor], where: str) -> Tensor:
    """`i + d2t[i]`, checked against the vocabulary and against `t2d`."""
    ids = torch.arange(config.draft_vocab_size)
    if "d2t" not in tensors:
        return ids
    ids = ids + tensors["d2t"].long()
    problem = ""
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        problem = f"d2t maps to ids outside [0, {config.vocab_size})"
    elif ids.unique().numel() != ids.numel():
        problem = "d2t maps two draft ids to one target id"
    elif "t2d" in tensors:
        mask = torch.zeros(config.vocab_size, dtype=torch.bool)
        mask[ids] = True
        if not torch.equal(mask, tensors["t2d"].bool()):
            problem = "t2d does not mark the ids that d2t maps to"
    if problem:
        raise CheckpointError(
            f"{where}: {problem}",
            field="draft_model",
            remedy="d2t[i] is an offset: target id = i + d2t[i]. Fetch or convert the head again",
        )
    return ids

"""A linear probe on hidden states, and its checkpoint: what `judge` and `semantic` load.

A checkpoint is a directory with `config.json` (what the probe is for and how it was made) and
`model.safetensors` (`weight` f32[F], `bias` f32[1]).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ConfigError

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
FIELD = "rule_options.head"
KINDS = ("judge", "semantic")
#: Heads that the package ships.
SHIPPED = {"judge": "smollm2-135m-instruct-judge"}
_SMALLEST = 1e-12  # keeps a row of zeros at zero


@dataclass(frozen=True, eq=False)
class Probe:
    """The logit `w . [h / rms(h); d / rms(d)] + b`: how likely a drafted token does no harm.

    Dividing by the root mean square makes the scale of the hidden states irrelevant.

    Attributes:
        kind: "judge" (h alone) or "semantic" (h and d).
        target: name of the target it was trained for.
        vocab_size, hidden_size: of that target, H being the latter.
        draft_hidden_size: D, width of the drafter's feature; 0 for a judge.
        weight: f32[H + D].
        bias: f32[1].
        provenance: how it was made, for readers; nothing is computed from it.
    """

    kind: str
    target: str
    vocab_size: int
    hidden_size: int
    draft_hidden_size: int
    weight: Tensor
    bias: Tensor
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def logit(self, hidden: Tensor, draft_hidden: Tensor | None = None) -> Tensor:
        """f32[..., N] from hidden [..., N, H] and, for "semantic", draft_hidden [..., N, D]."""
        size = self.hidden_size
        logit = _scored(hidden, self.weight[:size]) + self.bias
        if draft_hidden is not None:
            logit = logit + _scored(draft_hidden, self.weight[size:])
        return logit

    def to(self, device: torch.device) -> Probe:
        """The same on another device."""
        return replace(self, weight=self.weight.to(device), bias=self.bias.to(device))

    def check_target(self, name: str) -> None:
        """Raise ConfigError unless the probe was trained for the target called `name`.

        Case and a hub id's organisation do not count.
        """
        if _short(name) != _short(self.target):
            raise ConfigError(
                f"this {self.kind} head was trained for {self.target}, the target is {name}",
                field=FIELD,
                remedy=how_to_train(self.kind),
            )

    def check_sizes(self, hidden: int, vocab: int, draft_hidden: int | None = None) -> None:
        """Raise CheckpointError unless the sizes are those of the models in use."""
        found = {"hidden_size": hidden, "vocab_size": vocab}
        if draft_hidden is not None:
            found["draft_hidden_size"] = draft_hidden
        wrong = [
            f"{name} {getattr(self, name)} instead of {size}"
            for name, size in found.items()
            if getattr(self, name) != size
        ]
        if wrong:
            raise CheckpointError(
                f"this {self.kind} head is for {self.target}, which is another model: "
                f"{', '.join(wrong)}",
                field=FIELD,
                remedy=how_to_train(self.kind),
            )

    def save(self, path: str | Path) -> None:
        """Write both files; the directory is made when missing."""
        from safetensors.torch import save_file

        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        partial = path / (WEIGHTS_FILE + ".partial")
        tensors = {"weight": self.weight.contiguous(), "bias": self.bias.contiguous()}
        save_file(tensors, partial, metadata={"format": "pt"})
        partial.replace(path / WEIGHTS_FILE)
        config = {
            "kind": self.kind,
            "target": self.target,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "draft_hidden_size": self.draft_hidden_size,
            "provenance": self.provenance,
        }
        text = json.dumps(config, indent=1) + "\n"
        (path / CONFIG_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, kind: str) -> Probe:
        """Read the directory `path`; an empty one means the head that ships with the package.

        Raises:
            ConfigError: there is no such directory, or none ships for this kind.
            CheckpointError: a file is missing or damaged, of another kind, or its tensors have
                other shapes than its configuration says.
        """
        if not str(path):
            if kind not in SHIPPED:
                raise ConfigError(f"no {kind} head ships", field=FIELD, remedy=how_to_train(kind))
            path = str(files("adaptivespec").joinpath("heads", SHIPPED[kind]))
        path = Path(path)
        if not path.is_dir():
            raise ConfigError(f"{path} is no directory", field=FIELD, remedy=how_to_train(kind))
        data = _config(path / CONFIG_FILE, kind)
        found = data.get("kind")
        if found != kind:
            raise _broken(path, f"is a head for {found!r}, not for {kind!r}", kind)
        try:
            probe = cls(
                kind=kind,
                target=str(data["target"]),
                vocab_size=int(data["vocab_size"]),
                hidden_size=int(data["hidden_size"]),
                draft_hidden_size=int(data["draft_hidden_size"]),
                provenance=dict(data.get("provenance") or {}),
                **_tensors(path / WEIGHTS_FILE, kind),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(
                path / CONFIG_FILE, f"lacks a value or has a bad one: {error!r}", kind
            ) from error
        size = probe.hidden_size + probe.draft_hidden_size
        reads_drafter = kind == "semantic"
        if (probe.draft_hidden_size > 0) != reads_drafter:
            raise _broken(path, f"has draft_hidden_size {probe.draft_hidden_size}", kind)
        if probe.weight.shape != (size,) or probe.bias.shape != (1,):
            shapes = f"{list(probe.weight.shape)} and {list(probe.bias.shape)}"
            raise _broken(path, f"has weight and bias of {shapes}, not [{size}] and [1]", kind)
        return probe


def normalised(rows: Tensor) -> Tensor:
    """f32[..., H]: rows divided by their root mean square; zeros stay zeros."""
    rows = rows.float()
    return rows * (rows.square().mean(-1, keepdim=True) + _SMALLEST).rsqrt()


def how_to_train(kind: str) -> str:
    """The remedy for a missing head."""
    return (
        f"Train one with `adaptivespec train-judge --kind {kind} --data PROMPTS --output DIR` and "
        f"use --rule {kind} --rule-option head=DIR"
    )


def _scored(rows: Tensor, weight: Tensor) -> Tensor:
    # Summed row by row: a matrix product may round otherwise when other rows stand beside it.
    return (normalised(rows) * weight).sum(-1)


def _short(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _broken(path: Path, problem: str, kind: str) -> CheckpointError:
    return CheckpointError(f"{path} {problem}", field=FIELD, remedy=how_to_train(kind))


def _config(path: Path, kind: str) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _broken(path, f"cannot be read: {error}", kind) from error
    if not isinstance(data, dict):
        raise _broken(path, "is no JSON object", kind)
    return data


def _tensors(path: Path, kind: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _broken(path, f"cannot be read: {error}", kind) from error
    if set(tensors) != {"weight", "bias"}:
        raise _broken(path, f"holds {', '.join(tensors) or 'nothing'}, not weight and bias", kind)
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise _broken(path, "holds numbers that are not finite", kind)
    return tensors

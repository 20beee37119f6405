"""EAGLE-3 heads on disk: which files, in which dialect, and whether every tensor is there.

Opening a head reads its config and the header of its weights; tensors are read when asked for.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import CheckpointError, ModelNotFoundError
from adaptivespec.draft.dialects import Dialect, dialect_of
from adaptivespec.draft.eagle3_config import LAYER, Eagle3Config
from adaptivespec.nn.checkpoint import check_tensors, open_safetensors

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
VOCABULARY_MAPS = ("d2t", "t2d")
#: What checkpoints call the one decoder layer.
LAYER_NAMES = (LAYER, "layers.0")
#: Buffers that every loader computes anew.
HARMLESS = ("rotary_emb.inv_freq",)
_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class HeadFiles:
    """The two files of a head."""

    config: Path
    weights: Path

    @property
    def pickled(self) -> bool:
        """Whether the weights are a pickle, which can run code when it is read."""
        return self.weights.suffix == ".bin"

    @classmethod
    def find(cls, path: str | Path) -> HeadFiles:
        """The files of a head: a directory, or a weights file with `config.json` beside it.

        Raises:
            ModelNotFoundError: a file is missing, or there are several weights files.
        """
        path = Path(path)
        if path.is_file() and path.suffix in (".safetensors", ".bin"):
            return cls(_config_beside(path.parent), path)
        if not path.is_dir():
            raise ModelNotFoundError(
                f"{path} is neither a directory nor a .safetensors file",
                field="draft_model",
                remedy="Give the directory of an EAGLE-3 head: config.json and model.safetensors",
            )
        config = _config_beside(path)
        files = sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))
        if len(files) != 1:
            raise ModelNotFoundError(
                f"{path} must hold config.json and one .safetensors file, found {len(files)} "
                "of the latter",
                field="draft_model",
                remedy="Give the file itself, or another directory"
                if files
                else "A head of the hub that has nothing but a pickle (.bin) is fetched and made "
                "safe by `adaptivespec convert-head ID OUT --to sglang --allow-pickles`; then give "
                "OUT",
            )
        return cls(config, files[0])

    def read_config(self) -> dict[str, Any]:
        """The object in `config.json`; CheckpointError where it cannot be read."""
        try:
            data = json.loads(self.config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise CheckpointError(
                f"{self.config} cannot be read: {error}", field="draft_model"
            ) from error
        if not isinstance(data, dict):
            raise CheckpointError(
                f"{self.config} holds a JSON {type(data).__name__} where an object belongs",
                field="draft_model",
            )
        return data


@dataclass(frozen=True)
class Head:
    """A head whose config and header have been read.

    Attributes:
        files: where it lies.
        data: its `config.json`.
        dialect: the one that `data` is in.
        config: what `data` describes.
        shapes: of every tensor, under this package's names; foreign names are left as they are.
        names: this package's name -> the file's.
        dtypes: the file's names of the types of its weights, most frequent first.
    """

    files: HeadFiles
    data: Mapping[str, Any]
    dialect: Dialect
    config: Eagle3Config
    shapes: Mapping[str, tuple[int, ...]]
    names: Mapping[str, str]
    dtypes: tuple[str, ...]

    @classmethod
    def open(cls, path: str | Path, allow_pickles: bool = False) -> Head:
        """Read config and header.

        Args:
            path: a directory, or a weights file with `config.json` beside it.
            allow_pickles: read a `.bin`, tensors alone (`torch.load(weights_only=True)`).

        Raises:
            ModelNotFoundError: a file is missing.
            CheckpointError: the config is no head's, or the weights are a pickle that was not
                allowed.
        """
        files = HeadFiles.find(path)
        data = files.read_config()
        dialect = dialect_of(data, str(files.config))
        config = dialect.read(data, str(files.config))
        if files.pickled:
            if not allow_pickles:
                raise _pickle_refused(files)
            tensors = _unpickle(files.weights)
            found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
            kinds = {name: str(t.dtype).removeprefix("torch.") for name, t in tensors.items()}
        else:
            with open_safetensors(files.weights) as file:
                found, kinds = file.shapes(), file.dtypes()
        names = {canonical(name): name for name in found}
        if len(names) != len(found):
            raise CheckpointError(
                f"the layer goes by both {' and '.join(LAYER_NAMES)}", field=str(files.weights)
            )
        weights = [kind for name, kind in kinds.items() if name not in VOCABULARY_MAPS]
        dtypes = tuple(sorted(set(weights), key=lambda kind: (-weights.count(kind), kind)))
        shapes = {name: found[theirs] for name, theirs in names.items()}
        return cls(files, data, dialect, config, shapes, names, dtypes)

    @property
    def missing(self) -> list[str]:
        """Tensors that must be there and are not, under the file's naming."""
        optional = self.config.optional()
        expected = self.config.shapes()
        return [self._theirs(n) for n in expected if n not in self.shapes and n not in optional]

    @property
    def unexpected(self) -> list[str]:
        """Tensors that no head of this config has, under the file's naming."""
        known = self.config.shapes()
        return [
            self.names[name]
            for name in self.shapes
            if name not in known and not name.endswith(HARMLESS)
        ]

    @property
    def borrowed(self) -> list[str]:
        """Tensors that the target lends, or the head's own embedding if it is tied."""
        lent = ("embed_tokens.weight", "lm_head.weight")
        return [n for n in lent if n not in self.shapes and n in self.config.optional()]

    def check(self) -> None:
        """Raise CheckpointError unless every tensor is there, known and of its shape.

        All that is wrong is listed, under the names that the file uses.
        """
        check_tensors(
            {self.names[name]: shape for name, shape in self.shapes.items()},
            {self._theirs(name): shape for name, shape in self.config.shapes().items()},
            {self._theirs(name) for name in self.config.optional()},
            str(self.files.weights),
            ignored_suffixes=HARMLESS,
        )

    def read(self) -> dict[str, Tensor]:
        """Every tensor, as stored, under this package's names.

        Raises:
            CheckpointError: as `check`; a weight is not plain floating point.
        """
        self.check()
        wanted = [name for name in self.config.shapes() if name in self.shapes]
        if self.files.pickled:
            tensors = _unpickle(self.files.weights)
            read = {name: tensors[self.names[name]] for name in wanted}
        else:
            with open_safetensors(self.files.weights) as file:
                read = {name: file.get(self.names[name]) for name in wanted}
        wrong = [
            f"{self.names[name]} {str(tensor.dtype).removeprefix('torch.')}"
            for name, tensor in read.items()
            if (tensor.dtype in _FLOATING) == (name in VOCABULARY_MAPS)
        ]
        if wrong:
            raise CheckpointError(
                f"tensors of a type that they cannot have: {', '.join(wrong)}",
                field=str(self.files.weights),
                remedy="Use the float32, bfloat16 or float16 weights of this head; d2t and t2d "
                "hold integers or booleans",
            )
        return read

    def _theirs(self, name: str) -> str:
        """The name that this file has, or would have, for a tensor."""
        prefix = LAYER_NAMES[1] + "."
        if any(theirs.startswith(prefix) for theirs in self.names.values()):
            return spelled_for(name, LAYER_NAMES[1])
        return name


def canonical(name: str) -> str:
    """This package's name of a tensor of a checkpoint."""
    other = LAYER_NAMES[1] + "."
    return f"{LAYER}.{name.removeprefix(other)}" if name.startswith(other) else name


def spelled_for(name: str, layer: str) -> str:
    """The name of a tensor where the layer is called `layer`."""
    return layer + name.removeprefix(LAYER) if name.startswith(LAYER + ".") else name


def _config_beside(directory: Path) -> Path:
    config = directory / CONFIG_FILE
    if not config.is_file():
        raise ModelNotFoundError(
            f"{directory} has no config.json",
            field="draft_model",
            remedy="Give the directory of an EAGLE-3 head: config.json and model.safetensors",
        )
    return config


def _pickle_refused(files: HeadFiles) -> CheckpointError:
    return CheckpointError(
        f"{files.weights.name} is a pickle, which can run code when it is read",
        field="draft_model",
        remedy="Convert it once: adaptivespec convert-head "
        f"{files.config.parent} OUT --to sglang --allow-pickles, which reads tensors alone",
    )


def _unpickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, read without running any of its code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the protocol of the pickle
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, RuntimeError, OSError, EOFError and others
        text = str(error).strip()
        first = text.splitlines()[0] if text else type(error).__name__
        raise CheckpointError(f"cannot be read: {first}", field=str(path)) from error
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise CheckpointError("holds more than named tensors", field=str(path))
    return dict(tensors)

"""Reading checkpoints without surprises: typed errors, and every tensor accounted for.

Shared by the target's loader and the draft head's loader. Nothing here ever loads part of a
checkpoint silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import CheckpointError

__all__ = ["SafetensorsFile", "check_tensors", "open_safetensors"]

Shape = Sequence[int]

_LISTED = 8
"""How many names of each kind of mismatch a message spells out."""

_FLOATING = {"F64", "F32", "F16", "BF16"}
_LFS_PREFIX = b"version https://git-lfs"


def check_tensors(
    found: Mapping[str, Shape],
    expected: Mapping[str, Shape],
    optional: AbstractSet[str] = frozenset(),
    where: str = "checkpoint",
    *,
    ignored_suffixes: tuple[str, ...] = (),
) -> None:
    """Compare the tensors a checkpoint holds with those a model needs.

    Args:
        found: name -> shape of every tensor in the checkpoint.
        expected: name -> shape of every tensor the model knows, optional ones included.
        optional: names of ``expected`` that may be absent (a present one must still have its
            shape).
        where: the file or directory, for the message.
        ignored_suffixes: unexpected names that end so are harmless (buffers that are recomputed).

    Raises:
        CheckpointError: lists all missing, unexpected and mis-shaped tensors at once: the counts,
            and the first eight of each.
    """
    missing = [name for name in expected if name not in found and name not in optional]
    unexpected = [
        name for name in found if name not in expected and not name.endswith(ignored_suffixes)
    ]
    misshaped = [
        f"{name} {list(found[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in found and list(found[name]) != list(shape)
    ]
    problems = [
        f"{len(names)} {kind}: {_first(names)}"
        for kind, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("mis-shaped", misshaped),
        )
        if names
    ]
    if problems:
        raise CheckpointError(
            f"the tensors do not fit the model: {'; '.join(problems)}",
            field=where,
            remedy="Check that the weights and the config.json beside them belong to the same "
            "model",
        )


def _first(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_LISTED])
    return listed if len(names) <= _LISTED else f"{listed}, and {len(names) - _LISTED} more"


class SafetensorsFile:
    """An open safetensors file. Made by :func:`open_safetensors`; tensors outlive it."""

    def __init__(self, path: Path, handle: Any) -> None:
        self.path = path
        self._handle = handle
        self.names: tuple[str, ...] = tuple(handle.keys())
        self.metadata: dict[str, str] = dict(handle.metadata() or {})

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every tensor, from the header alone (no tensor is read)."""
        return {name: tuple(self._handle.get_slice(name).get_shape()) for name in self.names}

    def dtypes(self) -> dict[str, str]:
        """Name -> type of every tensor, as the format spells it ("BF16"), from the header alone."""
        return {name: str(self._handle.get_slice(name).get_dtype()) for name in self.names}

    def require_floating(self, names: Iterable[str] | None = None) -> None:
        """Raise CheckpointError unless ``names`` (default: all) are F64, F32, F16 or BF16."""
        wrong = []
        for name in self.names if names is None else names:
            dtype = str(self._handle.get_slice(name).get_dtype())
            if dtype not in _FLOATING:
                wrong.append(f"{name} {dtype}")
        if wrong:
            raise CheckpointError(
                f"{len(wrong)} tensors are not plain floating point: {_first(wrong)}",
                field=str(self.path),
                remedy="Use the float32, bfloat16 or float16 weights of this model, or a GGUF file",
            )

    def get(self, name: str) -> torch.Tensor:
        """The tensor as stored: a view of the mapped file, copied on write, never written back.

        Raises:
            CheckpointError: no such tensor, or its bytes cannot be read.
        """
        try:
            tensor: torch.Tensor = self._handle.get_tensor(name)
        except Exception as error:  # the reader raises its own class, OSError or RuntimeError
            raise CheckpointError(
                f"tensor {name} cannot be read ({error})", field=str(self.path)
            ) from error
        return tensor


@contextmanager
def open_safetensors(path: str | Path) -> Iterator[SafetensorsFile]:
    """Open a safetensors file, memory-mapped.

    Raises:
        CheckpointError: missing, empty, truncated, a Git LFS pointer or not a safetensors file at
            all.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    remedy = "Download the file again"
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_LFS_PREFIX))
        if head == _LFS_PREFIX:
            raise CheckpointError(
                "this is a Git LFS pointer, not the weights",
                field=str(path),
                remedy="Run `git lfs pull` beside it",
            )
        if not head:
            raise CheckpointError("the file is empty", field=str(path), remedy=remedy)
        manager = safe_open(str(path), framework="pt")
    except FileNotFoundError as error:
        raise CheckpointError("no such file", field=str(path)) from error
    except (OSError, SafetensorError, RuntimeError) as error:
        raise CheckpointError(
            f"not a readable safetensors file, truncated or foreign ({error})",
            field=str(path),
            remedy=remedy,
        ) from error
    with manager as handle:
        yield SafetensorsFile(path, handle)

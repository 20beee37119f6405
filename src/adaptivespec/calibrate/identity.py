"""Which weights a checkpoint holds, from its files alone: every engine that serves it agrees."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Weights", "digest_of", "weights_at"]

WEIGHT_FILES = (".safetensors", ".gguf", ".bin")
CONFIG_FILE = "config.json"
SAMPLES, SAMPLE_BYTES = 64, 4096


class Weights(BaseModel):
    """A model or a draft head: what it was called, and a digest of its files where there are any.

    Names alone decide where one side has no digest (a hub id that is not on this disk).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    digest: str | None = None

    def same(self, other: Weights) -> bool:
        """Whether both are the same weights, as far as can be told."""
        if self.digest is not None and other.digest is not None:
            return self.digest == other.digest
        return self.name.casefold() == other.name.casefold()

    def __str__(self) -> str:
        return self.name if self.digest is None else f"{self.name} ({self.digest})"


def weights_at(path: str | Path | None, name: str) -> Weights:
    """The weights called ``name``, with their digest if ``path`` is a checkpoint on this disk."""
    here = None if path is None else Path(path).expanduser()
    found = here is not None and here.exists()
    return Weights(name=name, digest=digest_of(here) if found and here is not None else None)


def digest_of(path: Path) -> str | None:
    """A digest of a checkpoint, 16 hexadecimal digits; None where the path holds no weights.

    Args:
        path: a weights file, or a directory with config.json and weights.

    SHA-256 over config.json and, of every weights file (those of the first suffix that there is:
    safetensors, GGUF, bin) in the order of names, its name, its size and 64 samples of 4096 bytes
    spread over it, the first at its start (so the header of a safetensors file is in it). Some
    milliseconds; files smaller than 256 kB are read whole.
    """
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    kinds = ([file for file in files if file.suffix == kind] for kind in WEIGHT_FILES)
    weights = next(filter(None, kinds), None)
    if weights is None:
        return None
    digest = hashlib.sha256()
    for file in files:
        if file.name == CONFIG_FILE:
            digest.update(file.read_bytes())
    for file in weights:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as data:
            for number in range(SAMPLES):
                data.seek(number * size // SAMPLES)
                digest.update(data.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]

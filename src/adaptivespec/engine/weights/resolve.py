"""From what a user names a model by to files on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from adaptivespec.core.errors import ModelNotFoundError
from adaptivespec.engine.weights.embedded import EMBEDDED, fetch_embedded, is_embedded_name
from adaptivespec.engine.weights.progress import ProgressCallback, silent
from adaptivespec.engine.weights.store import hub_dir

__all__ = ["ModelFiles", "resolve_model"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class ModelFiles:
    """A model on this machine: its directory or GGUF file, and a name to show."""

    path: Path
    name: str


def resolve_model(
    model: str | Path | None,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    token: str | None = None,
    progress: ProgressCallback | None = None,
    pickles: bool = False,
) -> ModelFiles:
    """Find ``model``, downloading it where that is needed and allowed.

    Args:
        model: None or "SmolLM2-135M-Instruct" for the embedded default; a directory with
            config.json; a .gguf file; or a hub id "org/name". A path that exists comes before a hub
            id that looks the same.
        revision: branch, tag or commit of a hub model; nothing else has revisions.
        cache_dir: where fetched models lie; None means the user's cache directory, and the hub
            library's own for hub models.
        local_files_only: never use the network; what is not here is not found.
        token: for gated or private hub models.
        progress: see :func:`fetch_embedded`.
        pickles: of a hub model that has no other weights, download the pickled ones.

    Raises:
        ModelNotFoundError: no such path, name or hub model; or a directory without config.json.
        ConfigError: a hub id without `huggingface_hub`.
        DownloadError, ChecksumError, DiskFullError: fetching failed; each says what to do.
    """
    if model is None or (isinstance(model, str) and is_embedded_name(model)):
        return ModelFiles(
            fetch_embedded(cache_dir, offline=local_files_only, progress=progress), EMBEDDED.name
        )
    text = str(model)
    path = _existing(text)
    if path is not None:
        return _local(path)
    if isinstance(model, str) and _HUB_ID.fullmatch(text) and not text.endswith(".gguf"):
        from adaptivespec.engine.weights.hub import snapshot

        directory = snapshot(
            text,
            revision=revision,
            cache_dir=None if cache_dir is None else hub_dir(cache_dir),
            local_files_only=local_files_only,
            token=token,
            progress=progress or silent,
            pickles=pickles,
        )
        return ModelFiles(_local(directory).path, text)
    raise ModelNotFoundError(
        f"{text!r} is neither a file or directory here, nor a hub id (org/name), nor a known name",
        field="model",
        remedy=f"Check the path, or leave the model out for the embedded {EMBEDDED.name}",
    )


def _existing(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if text and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, not permitted, no such user, NUL
        return None


def _local(path: Path) -> ModelFiles:
    absolute = path.absolute()
    if path.is_dir():
        if (path / "config.json").is_file():
            return ModelFiles(absolute, absolute.resolve().name)
        ggufs = sorted(file.name for file in path.glob("*.gguf"))
        raise ModelNotFoundError(
            f"the directory {path} has no config.json",
            field="model",
            remedy=(
                f"It holds {ggufs[0]}: pass that file"
                if ggufs
                else "Pass the directory that holds config.json, the safetensors weights and "
                "tokenizer.json"
            ),
        )
    if path.suffix == ".gguf":
        return ModelFiles(absolute, path.stem)
    raise ModelNotFoundError(
        f"{path} is not a model",
        field="model",
        remedy="Pass a directory with config.json, or a .gguf file",
    )

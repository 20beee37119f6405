"""The cache of models: complete directories or nothing.

Layout: ``<cache>/models/<name>/`` with a ``manifest.json`` that lists every file and its size. A
directory is built under a temporary name beside its final place and renamed when complete, under a
lock that the operating system releases with its process. So whatever carries a final name and
agrees with its manifest is whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import (
    AdaptiveSpecError,
    CheckpointError,
    ConfigError,
    DiskFullError,
    DownloadError,
    ModelNotFoundError,
)
from adaptivespec.engine.weights.jsonfile import read_json
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent

__all__ = [
    "CachedModel",
    "build_entry",
    "cache_root",
    "default_cache_dir",
    "disk_errors",
    "intact",
    "list_models",
    "locked",
    "models_dir",
    "remove_model",
    "require_space",
]

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
"""Raised whenever the files of a cached model change in content; older entries are then rebuilt."""

_POLL_SECONDS = 0.5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOVE_CACHE = (
    "Free some space there, or put the cache elsewhere with --cache-dir or ADAPTIVESPEC_CACHE"
)


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache; ``complete`` says whether it can be used as it is."""

    name: str
    path: Path
    size_bytes: int
    created: datetime
    source: str
    complete: bool


def default_cache_dir() -> Path:
    """The user's cache directory for this package on this platform."""
    from platformdirs import user_cache_path

    return user_cache_path("adaptivespec")


def cache_root(cache_dir: str | Path | None) -> Path:
    """``cache_dir`` itself, or the default. Not created."""
    return default_cache_dir() if cache_dir is None else Path(cache_dir).expanduser()


def models_dir(cache_dir: str | Path | None) -> Path:
    """Where models lie in ``cache_dir`` (None: the default). Not created."""
    return cache_root(cache_dir) / "models"


def hub_dir(cache_dir: str | Path) -> Path:
    """Where downloads from the model hub lie in ``cache_dir``. Not created."""
    return Path(cache_dir).expanduser() / "hub"


def intact(path: Path) -> bool:
    """Whether ``path`` holds all the files of its manifest in their full size. Cheap."""
    try:
        manifest = read_json(path / MANIFEST)
    except CheckpointError:
        return False
    files = manifest.get("files")
    if manifest.get("version") != MANIFEST_VERSION or not isinstance(files, dict) or not files:
        return False
    for name, entry in files.items():
        try:
            if (path / name).stat().st_size != entry["size"]:
                return False
        except (OSError, KeyError, TypeError):
            return False
    return True


def require_space(directory: Path, needed: int, purpose: str) -> None:
    """Raise DiskFullError unless ``needed`` bytes are free where ``directory`` is or will be."""
    existing = next(
        parent for parent in (directory, *directory.absolute().parents) if parent.exists()
    )
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DiskFullError(
            f"{purpose} needs {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free in "
            f"{directory}",
            field="cache_dir",
            remedy=_MOVE_CACHE,
        )


@contextmanager
def disk_errors(directory: Path) -> Iterator[None]:
    """Turn the operating system's complaints about writing in ``directory`` into typed errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"the disk filled up while writing in {directory}",
                field="cache_dir",
                remedy=_MOVE_CACHE,
            ) from error
        raise DownloadError(
            f"cannot write in {directory} ({error.strerror or error})",
            field="cache_dir",
            remedy="Choose a directory you may write to with --cache-dir or ADAPTIVESPEC_CACHE",
        ) from error


@contextmanager
def locked(name: str, root: Path, progress: ProgressCallback = silent) -> Iterator[None]:
    """Hold the lock of the model ``name`` in ``root``, and clear away what dead processes left.

    Waits, reporting "waiting", while another process holds it.
    """
    from filelock import FileLock, Timeout

    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / f".{name}.lock")
    started = time.monotonic()
    while not lock.is_locked:
        with disk_errors(root), suppress(Timeout):
            lock.acquire(timeout=_POLL_SECONDS)
        if not lock.is_locked:
            progress(ProgressEvent("waiting", int(time.monotonic() - started)))
    try:
        _sweep(name, root)
        yield
    finally:
        lock.release()


def _temporary(name: str, root: Path) -> Path:
    """A fresh path that :func:`_sweep` recognises; "~" occurs in no name."""
    return root / f".{name}~{uuid.uuid4().hex}"


def _sweep(name: str, root: Path) -> None:
    """Delete what dead processes left of ``name``; the caller holds its lock, so none is alive."""
    for leftover in root.glob(f".{name}~*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def build_entry(name: str, root: Path) -> Iterator[Path]:
    """A temporary directory that becomes ``root / name`` if the block ends well, else vanishes.

    The caller holds the lock and has written the manifest (:func:`write_manifest`) last.
    """
    with disk_errors(root):
        directory = _temporary(name, root)
        directory.mkdir()
    try:
        yield directory
        with disk_errors(root):
            final = root / name
            if final.exists():
                final.rename(_temporary(name, root))
            directory.rename(final)
            _sync_directory(root)
    finally:
        _sweep(name, root)


def write_manifest(directory: Path, name: str, source: str, **facts: Any) -> None:
    """Sync the files directly in ``directory`` to disk; list their sizes and digests there."""
    files = {}
    for path in sorted(
        path for path in directory.iterdir() if path.is_file() and path.name != MANIFEST
    ):
        with path.open("r+b") as stream:
            os.fsync(stream.fileno())
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        files[path.name] = {"size": path.stat().st_size, "sha256": digest}
    manifest = {
        "version": MANIFEST_VERSION,
        "name": name,
        "source": source,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "files": files,
    }
    with (directory / MANIFEST).open("w", encoding="utf-8") as stream:
        json.dump(manifest, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_directory(path: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_models(cache_dir: str | Path | None = None) -> list[CachedModel]:
    """The models in the cache, by name, hub downloads in this cache included.

    Unfinished builds are not listed; damaged entries are, as not complete. With ``cache_dir`` None,
    hub downloads lie in the hub library's own cache and are not listed.
    """
    root = models_dir(cache_dir)
    found = [_describe(path) for path in _entries(root)]
    if cache_dir is not None:
        found += [_describe_hub(path) for path in _entries(hub_dir(cache_dir), "models--")]
    return sorted(found, key=lambda model: model.name.casefold())


def _entries(root: Path, prefix: str = "") -> list[Path]:
    if not root.is_dir():
        return []
    return [
        path
        for path in root.iterdir()
        if path.is_dir()
        and path.name.startswith(prefix)
        and _NAME.fullmatch(path.name.removeprefix(prefix))
    ]


def _size(path: Path) -> int:
    return sum(
        file.lstat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink()
    )


def _describe(path: Path) -> CachedModel:
    try:
        manifest = read_json(path / MANIFEST)
    except CheckpointError:
        manifest = {}
    name = str(manifest.get("name", ""))
    created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return CachedModel(
        name if name.casefold() == path.name else path.name,
        path,
        _size(path),
        created,
        str(manifest.get("source", "unknown")),
        intact(path),
    )


def _describe_hub(path: Path) -> CachedModel:
    name = path.name.removeprefix("models--")
    created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    incomplete = any(path.glob("blobs/*.incomplete"))
    return CachedModel(
        name, path, _size(path), created, f"hub {name.replace('--', '/')}", not incomplete
    )


def remove_model(name: str, cache_dir: str | Path | None = None) -> CachedModel:
    """Delete a model that :func:`list_models` lists, and nothing else; returns what it was.

    Raises:
        ConfigError: ``name`` is not a plain name (it has a separator, or starts with a dot).
        ModelNotFoundError: no such model in the cache.
        AdaptiveSpecError: the operating system refused to delete it.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not the name of a cached model",
            field="name",
            remedy="Names have letters, digits, '.', '_' and '-' only",
        )
    cached = list_models(cache_dir)
    model = next((model for model in cached if model.name == name), None)
    if model is None:
        names = ", ".join(model.name for model in cached) or "none"
        raise ModelNotFoundError(
            f"no cached model {name!r}", field="name", remedy=f"Cached: {names}"
        )
    with locked(model.path.name, model.path.parent):
        try:
            if model.path.is_symlink():
                model.path.unlink()
            else:
                doomed = _temporary(model.path.name, model.path.parent)
                model.path.rename(doomed)
                shutil.rmtree(doomed)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise AdaptiveSpecError(
                f"{model.path} cannot be removed ({error.strerror})", field="name"
            ) from error
    return model

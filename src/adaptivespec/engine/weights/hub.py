"""Models from the Hugging Face hub, through the optional dependency `huggingface_hub`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import (
    AdaptiveSpecError,
    ConfigError,
    DiskFullError,
    DownloadError,
    ModelNotFoundError,
)
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent

__all__ = ["PATTERNS", "PICKLES", "snapshot"]

PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.*")
"""Everything a model needs here; no pickled weights."""
PICKLES = ("*.bin",)
"""Those, for callers that may read them."""


def snapshot(
    repo_id: str,
    *,
    revision: str | None = None,
    cache_dir: Path | None = None,
    local_files_only: bool = False,
    token: str | None = None,
    progress: ProgressCallback = silent,
    pickles: bool = False,
) -> Path:
    """The local directory of ``repo_id``, downloaded where it is not cached.

    Pickled weights are left out, unless ``pickles`` and there are no others.

    ``cache_dir`` None means the hub library's own cache, shared with other tools.
    Reports "downloading".

    Raises:
        ConfigError: `huggingface_hub` is not installed, or the name is not a legal one.
        ModelNotFoundError: no such repository or revision, no permission, or not cached with
            ``local_files_only``.
        DownloadError: the hub cannot be reached or answers with an error.
        DiskFullError: no space left.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        raise ConfigError(
            f"{repo_id!r} is no directory here, so it names a hub model, and huggingface_hub is "
            "not installed",
            field="model",
            remedy="Run `pip install 'adaptivespec[hub]'`, or pass a local directory",
        ) from error
    label = repo_id if revision is None else f"{repo_id} at revision {revision}"

    def download(patterns: tuple[str, ...]) -> Path:
        with _typed_errors(label, local_files_only):
            return Path(
                huggingface_hub.snapshot_download(
                    repo_id,
                    revision=revision,
                    cache_dir=cache_dir,
                    local_files_only=local_files_only,
                    token=token,
                    allow_patterns=list(patterns),
                    tqdm_class=_reporter(progress),
                )
            )

    path = download(PATTERNS)
    if pickles and not any(path.glob("*.safetensors")):
        path = download(PATTERNS + PICKLES)
    return path


@contextmanager
def _typed_errors(label: str, local_files_only: bool) -> Iterator[None]:
    """Map what the hub library raises; the order matters, as its classes derive from each other."""
    from huggingface_hub import errors

    def not_found(problem: str, remedy: str) -> ModelNotFoundError:
        return ModelNotFoundError(problem, field="model", remedy=remedy)

    try:
        yield
    except AdaptiveSpecError:
        raise
    except errors.GatedRepoError as error:
        raise not_found(
            f"access to {label} on the hub is gated",
            "Accept its terms on its hub page, and pass a token of that account",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise not_found(f"the hub has no {label}", "Check the branch, tag or commit") from error
    except errors.RepositoryNotFoundError as error:
        raise not_found(
            f"the hub has no {label}, or it is private",
            "Check the spelling (org/name); pass a token for a private model; if a local "
            "directory was meant, it does not exist",
        ) from error
    except errors.HFValidationError as error:
        raise ConfigError(f"{label} is not a legal hub name ({error})", field="model") from error
    except errors.LocalEntryNotFoundError as error:
        if local_files_only:
            raise not_found(
                f"{label} is not in the local hub cache, and the network is not to be used",
                "Fetch it once without that restriction, or pass a local directory",
            ) from error
        raise _unreachable(label, error) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"the disk filled up while downloading {label}",
                field="cache_dir",
                remedy="Free some space there, or put the cache elsewhere with --cache-dir",
            ) from error
        raise _unreachable(label, error) from error
    except Exception as error:  # the HTTP library below raises classes of its own
        raise _unreachable(label, error) from error


def _unreachable(label: str, error: Exception) -> DownloadError:
    reason = str(error).strip().splitlines()
    return DownloadError(
        f"{label} could not be downloaded from the hub ({reason[0] if reason else error!r})",
        field="model",
        remedy="Check the network and try again, or download the model elsewhere and pass its "
        "directory; if a local directory was meant, it does not exist",
    )


def _reporter(progress: ProgressCallback) -> type[Any]:
    """A bar class for the hub library that reports bytes and draws nothing."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]

    class Nowhere:
        def write(self, text: str) -> None:
            """Drop ``text``."""

        def flush(self) -> None:
            """Nothing is held back."""

    class Reporter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **(kwargs | {"file": Nowhere(), "disable": False}))

        def update(self, n: float | None = 1) -> bool | None:
            result: bool | None = super().update(n)
            if self.unit == "B":
                progress(ProgressEvent("downloading", int(self.n), int(self.total or 0) or None))
            return result

    return Reporter

"""Hub downloads: what is asked for, and every failure as a typed error with a remedy."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptivespec.core.errors import (
    ConfigError,
    DiskFullError,
    DownloadError,
    ModelNotFoundError,
)
from adaptivespec.engine.weights.hub import PATTERNS, PICKLES, snapshot
from adaptivespec.engine.weights.progress import ProgressEvent

huggingface_hub = pytest.importorskip("huggingface_hub")


def make_error(name: str) -> Exception:
    """An error of the hub library without the HTTP response some of them want."""
    kind = getattr(huggingface_hub.errors, name)
    error: Exception = kind.__new__(kind)
    Exception.__init__(error, f"{name} happened\nwith details")
    return error


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch):
    """Let the hub library answer with a value or raise an error; returns its calls."""

    def set_answer(value: Any) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def download(repo_id: str, **options: Any) -> str:
            calls.append({"repo_id": repo_id, **options})
            if isinstance(value, BaseException):
                raise value
            return str(value)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        return calls

    return set_answer


def test_success(answer, tmp_path):
    calls = answer(tmp_path)
    assert snapshot("org/name", revision="r", cache_dir=tmp_path, token="t") == tmp_path
    (call,) = calls
    assert call["repo_id"] == "org/name"
    assert call["revision"] == "r"
    assert call["token"] == "t"
    assert call["cache_dir"] == tmp_path
    assert call["allow_patterns"] == list(PATTERNS)


def test_patterns_never_take_pickles():
    from huggingface_hub.utils import filter_repo_objects

    wanted = ["config.json", "model.safetensors", "model-00001-of-00002.safetensors"]
    wanted += ["model.safetensors.index.json", "chat_template.jinja", "tokenizer.model"]
    refused = ["pytorch_model.bin", "model.pt", "x.pth", "consolidated.00.ckpt", "tf.h5", "a.py"]
    assert list(filter_repo_objects(wanted + refused, allow_patterns=list(PATTERNS))) == wanted


@pytest.mark.parametrize("safe", [True, False])
def test_a_pickle_is_fetched_where_that_is_allowed_and_nothing_else_is_there(
    answer, tmp_path, safe
):
    if safe:
        (tmp_path / "model.safetensors").touch()
    calls = answer(tmp_path)
    assert snapshot("org/name", revision="r", pickles=True) == tmp_path
    wanted = [[*PATTERNS]] if safe else [[*PATTERNS], [*PATTERNS, *PICKLES]]
    assert [call["allow_patterns"] for call in calls] == wanted
    assert {call["revision"] for call in calls} == {"r"}


@pytest.mark.parametrize(
    ("name", "offline", "kind", "remedy"),
    [
        ("GatedRepoError", False, ModelNotFoundError, "token"),
        ("RepositoryNotFoundError", False, ModelNotFoundError, "spelling"),
        ("RevisionNotFoundError", False, ModelNotFoundError, "branch"),
        ("LocalEntryNotFoundError", True, ModelNotFoundError, "Fetch it once"),
        ("LocalEntryNotFoundError", False, DownloadError, "network"),
        ("HfHubHTTPError", False, DownloadError, "network"),
    ],
)
def test_errors_of_the_hub(answer, name, offline, kind, remedy):
    answer(make_error(name))
    with pytest.raises(kind, match="org/name") as caught:
        snapshot("org/name", local_files_only=offline)
    assert caught.value.field == "model"
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_an_illegal_name(answer):
    answer(make_error("HFValidationError"))
    with pytest.raises(ConfigError, match="legal hub name"):
        snapshot("org/na..me")


@pytest.mark.parametrize("error", [TimeoutError("slow"), RuntimeError("HTTP broke"), OSError()])
def test_other_failures_are_downloads_that_failed(answer, error):
    answer(error)
    with pytest.raises(DownloadError, match="could not be downloaded"):
        snapshot("org/name")


def test_disk_full(answer):
    answer(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(DiskFullError, match="org/name") as caught:
        snapshot("org/name", cache_dir=Path("c"))
    assert "--cache-dir" in caught.value.remedy


def test_an_interrupt_is_not_swallowed(answer):
    answer(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        snapshot("org/name")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="huggingface_hub is not installed") as caught:
        snapshot("org/name")
    assert "adaptivespec[hub]" in caught.value.remedy


def test_progress_goes_to_the_callback_and_not_to_the_terminal(answer, tmp_path, capfd):
    events: list[ProgressEvent] = []
    calls = answer(tmp_path)
    snapshot("org/name", progress=events.append)
    bar_class = calls[0]["tqdm_class"]
    with bar_class(total=10, unit="B", desc="bytes") as bar:
        bar.update(4)
        bar.update(6)
    with bar_class(total=3, desc="files", name="huggingface_hub.snapshot_download") as bar:
        bar.update(1)
    assert events == [ProgressEvent("downloading", 4, 10), ProgressEvent("downloading", 10, 10)]
    assert capfd.readouterr() == ("", "")


def test_a_real_refusal_without_network(tmp_path):
    with pytest.raises(ModelNotFoundError, match="not in the local hub cache"):
        snapshot("org/name", cache_dir=tmp_path, local_files_only=True)

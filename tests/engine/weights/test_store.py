"""The cache as a user sees it: what it lists, and that removing removes nothing else."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adaptivespec.core.errors import ConfigError, DiskFullError, DownloadError, ModelNotFoundError
from adaptivespec.engine.weights import store
from adaptivespec.engine.weights.embedded import fetch_embedded
from adaptivespec.engine.weights.store import list_models, remove_model


@pytest.fixture
def cache(tiny, tmp_path: Path) -> Path:
    """A cache with one model, a lock, and a stale build."""
    directory = tmp_path / "cache"
    fetch_embedded(directory, model=tiny.model)
    (directory / "models" / ".tiny-llama~0123").mkdir()
    return directory


def test_an_empty_or_absent_cache_lists_nothing(tmp_path):
    assert list_models(tmp_path) == []
    assert list_models(tmp_path / "absent") == []
    assert not (tmp_path / "absent").exists()


def test_list(cache):
    (model,) = list_models(cache)
    assert model.name == "Tiny-Llama"
    assert model.path == cache / "models" / "tiny-llama"
    assert model.size_bytes == sum(file.stat().st_size for file in model.path.iterdir())
    assert abs((datetime.now(UTC) - model.created).total_seconds()) < 60
    assert model.source == "tiny-llama==1.0 (tiny_llama/Tiny.Q4_1.gguf)"
    assert model.complete


def test_a_damaged_model_is_listed_as_such(cache):
    (cache / "models" / "tiny-llama" / "config.json").unlink()
    assert not list_models(cache)[0].complete
    (cache / "models" / "tiny-llama" / "manifest.json").write_text("{")
    (model,) = list_models(cache)
    assert (model.name, model.source, model.complete) == ("tiny-llama", "unknown", False)


def test_hub_downloads_in_this_cache_are_listed_and_removed(cache):
    blobs = cache / "hub" / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "abc").write_bytes(b"12345")
    model = next(model for model in list_models(cache) if model.source.startswith("hub"))
    assert (model.name, model.source, model.size_bytes) == ("org--name", "hub org/name", 5)
    (blobs / "def.incomplete").touch()
    assert not next(m for m in list_models(cache) if m.name == "org--name").complete
    remove_model("org--name", cache)
    assert not (cache / "hub" / "models--org--name").exists()
    assert [model.name for model in list_models(cache)] == ["Tiny-Llama"]


def test_remove(cache):
    bystander = cache / "models" / "other"
    bystander.mkdir()
    assert remove_model("Tiny-Llama", cache).name == "Tiny-Llama"
    assert [model.name for model in list_models(cache)] == ["other"]
    assert {p.name for p in (cache / "models").iterdir() if "lock" not in p.name} == {"other"}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../models", "a/b", "a\\b", "/etc", ".tiny-llama~0123", "~", "a\0"]
)
def test_remove_takes_plain_names_only(cache, name):
    with pytest.raises(ConfigError) as caught:
        remove_model(name, cache)
    assert caught.value.field == "name"
    assert (cache / "models" / "tiny-llama").is_dir()


def test_remove_of_what_is_not_there_says_what_is(cache):
    with pytest.raises(ModelNotFoundError, match="Cached: Tiny-Llama"):
        remove_model("gpt-5", cache)


def test_remove_of_a_link_removes_the_link(cache, tmp_path):
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    (cache / "models" / "linked").symlink_to(target)
    remove_model("linked", cache)
    assert not (cache / "models" / "linked").exists()
    assert (target / "file").exists()


def test_a_model_whose_name_begins_alike_is_not_swept(tmp_path):
    other = tmp_path / ".tiny-two~0123"
    other.mkdir()
    with store.locked("tiny", tmp_path):
        assert other.exists()
    with store.locked("tiny-two", tmp_path):
        assert not other.exists()


def test_a_failing_build_leaves_the_old_entry(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()

    def fail() -> None:
        with store.build_entry("model", tmp_path) as directory:
            (directory / "new").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "old").exists()


def test_a_build_replaces_the_old_entry(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    with store.build_entry("model", tmp_path) as directory:
        (directory / "new").touch()
        store.write_manifest(directory, "model", "test", extra=1)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"new", "manifest.json"}
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["extra"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_waiting_for_a_lock_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_POLL_SECONDS", 0.02)
    release, waiting, stages = threading.Event(), threading.Event(), []

    def hold() -> None:
        with store.locked("model", tmp_path):
            waiting.set()
            release.wait(20)

    def report(event: object) -> None:
        stages.append(event.stage)
        release.set()

    holder = threading.Thread(target=hold)
    holder.start()
    waiting.wait(20)
    with store.locked("model", tmp_path, report):
        assert set(stages) == {"waiting"}
    holder.join()


def test_system_errors_become_typed(tmp_path):
    for number, kind in ((28, DiskFullError), (13, DownloadError), (30, DownloadError)):
        with pytest.raises(kind, match="ADAPTIVESPEC_CACHE"), store.disk_errors(tmp_path):
            raise OSError(number, "reason")


def test_the_default_cache_is_the_users(monkeypatch, tmp_path):
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    assert store.models_dir(None) == tmp_path / "adaptivespec" / "models"
    assert store.models_dir("~/x").is_absolute()

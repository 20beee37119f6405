"""What a model's name leads to, and what is said when it leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adaptivespec.core.errors import ModelNotFoundError
from adaptivespec.engine.weights import hub, resolve
from adaptivespec.engine.weights.resolve import ModelFiles, resolve_model


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict]:
    """Calls of fetch_embedded, which does not fetch."""
    calls: list[dict] = []

    def fetch(cache_dir, **options):
        calls.append({"cache_dir": cache_dir, **options})
        return tmp_path

    monkeypatch.setattr(resolve, "fetch_embedded", fetch)
    return calls


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "my-model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize("name", [None, "smollm2-135m-instruct", "SmolLM2-135M-Instruct"])
def test_the_embedded_default(fetched, tmp_path, name):
    files = resolve_model(name, cache_dir="cache", local_files_only=True)
    assert files == ModelFiles(tmp_path, "SmolLM2-135M-Instruct")
    assert fetched == [{"cache_dir": "cache", "offline": True, "progress": None}]


def test_a_path_is_never_the_embedded_default(fetched):
    with pytest.raises(ModelNotFoundError):
        resolve_model(Path("smollm2-135m-instruct"))
    assert fetched == []


@pytest.mark.parametrize("kind", [str, Path])
def test_a_directory(directory, kind):
    assert resolve_model(kind(directory)) == ModelFiles(directory, "my-model")


def test_a_relative_directory_that_looks_like_a_hub_id(directory, monkeypatch):
    monkeypatch.chdir(directory.parent.parent)
    monkeypatch.setattr(hub, "snapshot", None)
    name = f"{directory.parent.name}/my-model"
    files = resolve_model(name)
    assert files.path.is_absolute()
    assert files.path.samefile(directory)
    monkeypatch.chdir(directory)
    assert resolve_model(".").name == "my-model"


def test_a_home_directory(directory, monkeypatch):
    monkeypatch.setenv("HOME", str(directory.parent))
    assert resolve_model("~/my-model").path == directory


def test_a_gguf_file(tiny_gguf):
    files = resolve_model(str(tiny_gguf))
    assert files == ModelFiles(tiny_gguf, "Tiny.Q4_1")


def test_a_directory_without_config_says_so(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json") as caught:
        resolve_model(tmp_path)
    assert "safetensors" in caught.value.remedy
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ModelNotFoundError, match=r"holds a\.gguf: pass that file"):
        resolve_model(tmp_path)


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ModelNotFoundError, match=r"directory with config\.json, or a \.gguf file"):
        resolve_model(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "llama",
        "./absent",
        "/absent/model",
        "a/b/c",
        "absent.gguf",
        "org/absent.gguf",
        "~nobody-here/x",
        "-x/y",
        "a" * 5000,
        "x\0y",
        "org/\u00e4",
    ],
)
def test_what_leads_nowhere(monkeypatch, name):
    monkeypatch.setattr(hub, "snapshot", None)
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(name)
    assert caught.value.field == "model"
    assert "SmolLM2-135M-Instruct" in caught.value.remedy


def test_a_hub_id(directory, monkeypatch):
    calls = []

    def snapshot(repo_id, **options):
        calls.append((repo_id, options))
        return directory

    monkeypatch.setattr(hub, "snapshot", snapshot)
    files = resolve_model("org/na-me_1.5", revision="v1", token="t", cache_dir="c")
    assert files == ModelFiles(directory, "org/na-me_1.5")
    ((repo_id, options),) = calls
    assert repo_id == "org/na-me_1.5"
    assert options["revision"] == "v1"
    assert options["token"] == "t"
    assert options["cache_dir"] == Path("c") / "hub"
    assert options["local_files_only"] is False
    resolve_model("org/name")
    assert calls[-1][1]["cache_dir"] is None


def test_a_hub_model_without_config(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "snapshot", lambda *args, **options: tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"has no config\.json"):
        resolve_model("org/name")


def test_importing_the_package_is_light():
    code = (
        "import sys, adaptivespec.engine.weights as w; "
        "print([m for m in ('torch', 'gguf', 'numpy', 'tokenizers', 'huggingface_hub', 'jinja2') "
        "if m in sys.modules])"
    )
    source = Path(resolve.__file__).parents[3]
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(source)}
    )
    assert found.stdout.strip() == "[]"

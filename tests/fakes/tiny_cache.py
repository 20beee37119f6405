"""What must hold of a cache around the tiny model of fakes.tiny_gguf."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.engine.weights import store
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.load import load_weights

FILES = {
    "NOTICE.txt",
    "Tiny.Q4_1.gguf",
    "config.json",
    "generation_config.json",
    "manifest.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def leftovers(cache: Path) -> list[str]:
    """What lies in the cache that is neither a model nor a lock."""
    return [
        p.name for p in (cache / "models").glob("*") if p.name.startswith(".") and "~" in p.name
    ]


def assert_whole(path: Path, gguf: Path) -> None:
    """The directory holds the model: all files, and the same weights as its GGUF file."""
    assert {file.name for file in path.iterdir()} == FILES
    assert store.intact(path)
    config = ModelConfig.from_dir(path)
    assert config == ModelConfig(
        **{**ModelConfig.from_gguf(gguf).__dict__, "torch_dtype": "float32"}
    )
    expected = load_weights(gguf, config)
    for name, tensor in load_weights(path, config).items():
        np.testing.assert_array_equal(tensor.numpy(), expected[name].numpy(), err_msg=name)
    text = "hello  12 <|end|>"
    assert Tokenizer.from_dir(path).encode(text) == Tokenizer.from_gguf(gguf).encode(text)

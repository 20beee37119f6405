"""From a GGUF file to a Hugging Face style directory."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.gguf_config import hf_config
from adaptivespec.engine.weights.gguf_file import GgufFile
from adaptivespec.engine.weights.gguf_tokenizer import tokenizer_files
from adaptivespec.engine.weights.progress import ProgressCallback, ProgressEvent, silent

__all__ = ["convert_gguf"]

_FLOAT32 = 4


def convert_gguf(gguf: Path, directory: Path, progress: ProgressCallback = silent) -> None:
    """Write the Hugging Face files of ``gguf`` into ``directory``; the weights in float32.

    These are config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
    model.safetensors. Reports "converting". Holds one tensor in memory at a time.

    Raises:
        CheckpointError, ConfigError: the file cannot be read or is not supported.
        OSError: a file cannot be written.
    """
    file = GgufFile.open(gguf, keep=False)
    config = hf_config(file)
    config["torch_dtype"] = "float32"
    shape = ModelConfig.from_dict(config, where=str(gguf))
    tokens = {
        key: config[key]
        for key in ("bos_token_id", "eos_token_id", "pad_token_id")
        if key in config
    }
    for name, value in {
        "config.json": config,
        "generation_config.json": tokens,
        **tokenizer_files(file),
    }.items():
        (directory / name).write_text(
            json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8"
        )
    _write_safetensors(file, directory / "model.safetensors", shape, progress)


def _write_safetensors(
    file: GgufFile, target: Path, config: ModelConfig, progress: ProgressCallback
) -> None:
    """Stream the tensors: the header's length, the JSON header, the values back to back."""
    shapes = file.shapes()
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * _FLOAT32
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [total, total + size]}
        total += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    done = 0
    with target.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for name, shape in shapes.items():
            values = file.tensor(name, config.num_heads, config.num_kv_heads)
            if values.shape != shape:
                raise CheckpointError(
                    f"tensor {name} does not have its declared shape", field=str(file.path)
                )
            stream.write(np.ascontiguousarray(values, dtype="<f4").data.cast("B"))
            done += values.nbytes
            progress(ProgressEvent("converting", done, total))

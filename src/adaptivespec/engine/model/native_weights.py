"""A model's weights as the native engine takes them: from its own files, decoded if need be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.families import FAMILIES
from adaptivespec.engine.weights.gguf_file import canonical_name
from adaptivespec.engine.weights.load import load_weights
from adaptivespec.engine.weights.store import MANIFEST
from adaptivespec.native.library import FORMATS
from adaptivespec.native.weights import RawTensor, gguf_tensors, raw_tensor
from adaptivespec.nn.checkpoint import check_tensors

EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
_ROPE_FACTORS = "rope_freqs.weight"  # the config has them as rope_scaling


@dataclass(frozen=True)
class NativeWeights:
    """All tensors of a model under Hugging Face names.

    `permuted` says that query and key rows are in GGUF's order. The output layer is absent if and
    only if it is tied.
    """

    tensors: dict[str, RawTensor]
    permuted: bool

    @classmethod
    def open(cls, path: Path, config: ModelConfig) -> NativeWeights:
        """The tensors of a model directory or a GGUF file, left in the mapped file where possible.

        A directory that was converted from the GGUF file it holds is read from that, since the
        native engine computes with quantised weights as they were published.

        Raises:
            CheckpointError: as `load_weights`.
        """
        gguf = path if path.suffix == ".gguf" else _converted_from(path)
        if gguf is None:
            dense = load_weights(path, config, dtype=None)
            return cls({name: raw_tensor(tensor) for name, tensor in dense.items()}, False)
        found = {canonical_name(name): raw for name, raw in gguf_tensors(gguf).items()}
        found.pop(_ROPE_FACTORS, None)
        tied = config.tie_word_embeddings
        optional = {OUTPUT} if tied else set()
        shapes = {name: raw.shape for name, raw in found.items()}
        check_tensors(shapes, config.tensor_shapes(), optional, str(gguf))
        if tied:
            found.pop(OUTPUT, None)
        return cls(found, FAMILIES[config.model_type].gguf_permuted)

    def packable(self, name: str) -> RawTensor:
        """A matrix in a format that the engine packs; decoded where it has another."""
        tensor = self.tensors[name]
        if tensor.kind in FORMATS:
            return tensor
        return raw_tensor(torch.from_numpy(tensor.dequantised()))


def _converted_from(directory: Path) -> Path | None:
    """The GGUF file that a directory in the cache of models was made from."""
    files = list(directory.glob("*.gguf"))
    return files[0] if len(files) == 1 and (directory / MANIFEST).is_file() else None

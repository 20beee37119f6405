"""A tiny random Llama target and a tiny random head for it, in float32."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint, Eagle3Config
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.weights.config import ModelConfig

MAX_LEN = 128

CONFIG = ModelConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_layers=5,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rope_theta=10_000.0,
    rope_scaling=None,
    rms_norm_eps=1e-5,
    max_position_embeddings=MAX_LEN,
    tie_word_embeddings=True,
    eos_token_ids=(0,),
    bos_token_id=1,
)

HEAD = Eagle3Config(
    hidden_size=32,
    intermediate_size=40,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=61,
    draft_vocab_size=23,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tap_layers=(1, 2, 4),
    max_position_embeddings=MAX_LEN,
)


def weights(config: ModelConfig = CONFIG, seed: int = 0) -> dict[str, Tensor]:
    """Random tensors under Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in config.tensor_shapes().items()
        if not (config.tie_word_embeddings and name == "lm_head.weight")
    }


def target(config: ModelConfig = CONFIG, seed: int = 0) -> TorchTarget:
    return TorchTarget(Llama(weights(config, seed), config, torch.float32, MAX_LEN), MAX_LEN)


def head(seed: int = 0, **changes: object) -> Eagle3Checkpoint:
    """A random head; its draft ids map to every other target id."""
    config = replace(HEAD, **changes)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in config.shapes().items()
        if name not in ("d2t", "t2d", "embed_tokens.weight")
    }
    ids = torch.arange(config.draft_vocab_size) * 2 + 3
    return Eagle3Checkpoint(config, tensors, ids)


def drafter(on: TorchTarget, checkpoint: Eagle3Checkpoint | None = None) -> Eagle3Drafter:
    return Eagle3Drafter(
        checkpoint or head(),
        on.model.embedding,
        on.limits.num_layers,
        MAX_LEN,
        torch.float32,
        on.model.output,
    )

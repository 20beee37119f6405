"""A tiny target and EAGLE-3 head on disk, as SGLang reads them.

The target nearly is a bigram model, and the head is made by hand to know the bigrams: it attends
to its own position and passes that token's embedding on. So drafts are often right, yet not always.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.torch_target import TorchTarget
from fakes import tiny
from fakes.tiny_engine import NumberTokenizer

CONTEXT = 1024
VOCAB = 320
EOS, BOS, PAD = 0, 1, 2
SPECIAL = {EOS: "<end>", BOS: "<start>", PAD: "<pad>"}
CONFIG = replace(
    tiny.CONFIG, vocab_size=VOCAB, max_position_embeddings=CONTEXT, tie_word_embeddings=False
)
#: How much the layers add to the bigrams; at 1 the drafts are never right.
LAYER_SCALE = 0.2
OUTPUT_SCALE = 1.5


def target_weights() -> dict[str, Tensor]:
    """Random, in float32, with weak layers."""
    weights = tiny.weights(CONFIG)
    for name, tensor in weights.items():
        if tensor.dim() == 1:
            weights[name] = torch.ones_like(tensor)
        elif "layers" in name:
            weights[name] = tensor * LAYER_SCALE
    weights["lm_head.weight"] *= OUTPUT_SCALE
    return weights


def head(weights: dict[str, Tensor]) -> Eagle3Checkpoint:
    """A head that drafts what the target's embedding and output alone would say.

    One token in sixteen is not in its vocabulary.
    """
    ids = torch.tensor([i for i in range(VOCAB) if i % 16 != 15])
    made = tiny.head(
        vocab_size=VOCAB,
        draft_vocab_size=len(ids),
        tap_layers=(1, 2, 4),
        max_position_embeddings=CONTEXT,
    )
    tensors = {name: torch.zeros_like(tensor) for name, tensor in made.tensors.items()}
    tensors |= {name: torch.ones_like(t) for name, t in tensors.items() if t.dim() == 1}
    config = made.config
    hidden, dim = config.hidden_size, config.head_dim
    group = config.num_heads // config.num_kv_heads
    assert hidden == config.num_kv_heads * dim, "a value must hold the whole embedding"
    embedding = torch.eye(hidden, 2 * hidden)  # of (embedding, hidden state), the first half
    queries = embedding.view(-1, dim, 2 * hidden).repeat_interleave(group, 0).flatten(0, 1)
    tensors[f"{LAYER}.self_attn.q_proj.weight"] = 3 * queries  # sharp: each attends to itself
    tensors[f"{LAYER}.self_attn.k_proj.weight"] = embedding
    # Less the hidden state, which the residual stream adds: what is left is the embedding.
    tensors[f"{LAYER}.self_attn.v_proj.weight"] = embedding - embedding.roll(hidden, 1)
    tensors[f"{LAYER}.self_attn.o_proj.weight"] = queries[:, :hidden].T / group
    tensors["lm_head.weight"] = weights["lm_head.weight"][ids].bfloat16().float()  # as on disk
    return Eagle3Checkpoint(config, tensors, ids)


def write_target(path: Path) -> Path:
    """A directory with the target and a tokenizer of bytes."""
    path.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": CONFIG.hidden_size,
        "intermediate_size": CONFIG.intermediate_size,
        "num_hidden_layers": CONFIG.num_layers,
        "num_attention_heads": CONFIG.num_heads,
        "num_key_value_heads": CONFIG.num_kv_heads,
        "head_dim": CONFIG.head_dim,
        "rope_theta": CONFIG.rope_theta,
        "rms_norm_eps": CONFIG.rms_norm_eps,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "eos_token_id": EOS,
        "bos_token_id": BOS,
        "pad_token_id": PAD,
        "torch_dtype": "float32",
    }
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(target_weights(), path / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(path)
    return path


def write_head(path: Path) -> Path:
    """A directory with the head of `write_target`'s model."""
    head(target_weights()).save(path)
    return path


def engine() -> Engine:
    """Our own engine with the tiny model."""
    weights = target_weights()
    target = TorchTarget(Llama(weights, CONFIG, torch.float32, CONTEXT), CONTEXT)
    drafter = Eagle3Drafter(
        head(weights),
        target.model.embedding,
        target.limits.num_layers,
        CONTEXT,
        torch.float32,
        target.model.output,
    )
    tokenizer: Any = NumberTokenizer(eos=(EOS,))
    return Engine(target, tokenizer, drafter, "tiny")


@cache
def greedy(prompt: tuple[int, ...], tokens: int) -> list[int]:
    """The target's own greedy answer, whatever tokens end a text."""
    options: dict[str, Any] = {"policy": "none", "temperature": 0.0, "ignore_eos": True}
    return engine().generate(list(prompt), max_tokens=tokens, **options).token_ids


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    """Random ids of ordinary tokens, 12 to 40 of them, after a beginning that all share."""
    rng = random.Random(seed)
    shared = [rng.randrange(len(SPECIAL), VOCAB) for _ in range(8)]
    return [
        shared + [rng.randrange(len(SPECIAL), VOCAB) for _ in range(rng.randrange(4, 32))]
        for _ in range(count)
    ]


def _write_tokenizer(path: Path) -> None:
    vocabulary = {text: i for i, text in SPECIAL.items()}
    for text in (*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("<{}>".format, range(VOCAB))):
        if len(vocabulary) < VOCAB:
            vocabulary[text] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL.values()))
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL[EOS],
        "bos_token": SPECIAL[BOS],
        "pad_token": SPECIAL[PAD],
        "model_max_length": CONTEXT,
        "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")

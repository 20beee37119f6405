"""A tiny model of each family, with the config that its publisher writes, in every file format.

The weights follow from the config and a seed alone, so that figures can be kept beside it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from adaptivespec.engine.weights.config import ModelConfig
from fakes.tiny_gguf import GGUF_NAMES, permute

Config = dict[str, Any]

#: The vocabulary is larger than the tokenizer's, as Qwen's is.
VOCAB, MAX_LEN = 288, 128
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]

_SIZES: Config = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_LEN,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 0,
}
#: Short enough a context that the scaling shows within it.
_LLAMA3_ROPE: Config = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
#: As transformers 4 writes them (torch_dtype, rope_theta, rope_scaling) and 5 (dtype,
#: rope_parameters).
CONFIGS: dict[str, Config] = {
    "llama-2": _SIZES
    | {
        "model_type": "llama",
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "rope_scaling": None,
        "attention_bias": False,
    },
    "llama-3.1": _SIZES
    | {
        "model_type": "llama",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "rope_theta": 500000.0,
        "rope_scaling": _LLAMA3_ROPE,
        "eos_token_id": [0, 2],
    },
    "llama-3.2": _SIZES
    | {
        "model_type": "llama",
        "head_dim": 16,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "rope_parameters": {"rope_theta": 500000.0, **_LLAMA3_ROPE, "factor": 32.0},
    },
    "deepseek-r1-distill-llama": _SIZES
    | {
        "model_type": "llama",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "rope_theta": 500000.0,
        "rope_scaling": _LLAMA3_ROPE,
        "mlp_bias": False,
        "pretraining_tp": 1,
    },
    "smollm2": _SIZES
    | {
        "model_type": "llama",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "rope_theta": 100000.0,
        "rope_interleaved": False,
    },
    "mistral": _SIZES
    | {
        "model_type": "mistral",
        "head_dim": 32,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "sliding_window": None,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
    },
    "qwen2": _SIZES
    | {
        "model_type": "qwen2",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "use_sliding_window": False,
        "sliding_window": 64,
        "max_window_layers": 2,
    },
    "qwen2.5": _SIZES
    | {
        "model_type": "qwen2",
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
        "use_sliding_window": False,
        "sliding_window": None,
        "layer_types": ["full_attention"] * 3,
    },
    "qwen3": _SIZES
    | {
        "model_type": "qwen3",
        "head_dim": 32,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": None,
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 3,
    },
}
FAMILIES = tuple(CONFIGS)
#: The architecture's name in GGUF.
GGUF = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def model_config(config: Config) -> ModelConfig:
    return ModelConfig.from_dict(config)


def weights(config: Config, seed: int = 0) -> dict[str, torch.Tensor]:
    """Tensors in float32 under Hugging Face names: gains around 1, biases, small matrices."""
    made = model_config(config)
    random = np.random.RandomState(seed)  # its numbers are promised never to change
    found = {}
    for name, shape in made.tensor_shapes().items():
        values = random.standard_normal(shape)
        if name.endswith("norm.weight"):
            values = 1 + 0.3 * values
        else:
            values *= 0.5 if name.endswith("bias") else 0.15
        if name != "lm_head.weight" or not made.tie_word_embeddings:
            found[name] = torch.from_numpy(values.astype(np.float32))
    return found


def write_dir(
    directory: Path,
    config: Config,
    tensors: dict[str, torch.Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
    shards: int = 1,
) -> Path:
    """A model directory as it comes from a hub, tokenizer included."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.to(dtype).contiguous()
        for name, tensor in (weights(config) if tensors is None else tensors).items()
    }
    (directory / "config.json").write_text(json.dumps(config))
    write_tokenizer(directory)
    if shards == 1:
        save_file(tensors, directory / "model.safetensors")
        return directory
    index = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[shard::shards]}
        index |= dict.fromkeys(part, name)
        save_file(part, directory / name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return directory


@cache
def _tokenizer() -> str:
    """A byte-level BPE with no merges: one token a byte, behind the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*SPECIALS, *alphabet])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIALS)
    return str(made.to_str())


def write_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").write_text(_tokenizer())
    config = {"eos_token": SPECIALS[0], "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face tensor name."""
    stem, _, end = name.rpartition(".")
    names = GGUF_NAMES | {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    if not stem.startswith("model.layers."):
        return f"{names[stem]}.{end}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{names[rest]}.{end}"


def write_gguf(
    path: Path,
    config: Config,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    pre: str = "qwen2",
) -> dict[str, torch.Tensor]:
    """A GGUF file of the model; returns its weights as the file has them, decoded."""
    made, arch = model_config(config), GGUF[config["model_type"]]
    writer = gguf.GGUFWriter(path, arch)
    for key, value in {
        "block_count": made.num_layers,
        "context_length": made.max_position_embeddings,
        "embedding_length": made.hidden_size,
        "feed_forward_length": made.intermediate_size,
        "attention.head_count": made.num_heads,
        "attention.head_count_kv": made.num_kv_heads,
        "attention.key_length": made.head_dim,
        "attention.value_length": made.head_dim,
    }.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", made.rms_norm_eps)
    writer.add_float32(f"{arch}.rope.freq_base", made.rope_theta)
    tokens = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens.append("ok")
    tokens += [f"[PAD{index}]" for index in range(len(tokens), made.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges(["o k"])
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_eos_token_id(0)
    decoded = {}
    for name, tensor in weights(config).items():
        rows = tensor.numpy()
        heads = {"q_proj": made.num_heads, "k_proj": made.num_kv_heads}
        count = next((n for part, n in heads.items() if f"{part}.weight" in name), 0)
        moved = permute(rows, count) if arch == "llama" and count else rows
        if rows.ndim == 1 or kind is gguf.GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name(name), moved)
            decoded[name] = tensor
            continue
        data = gguf.quants.quantize(moved, kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
        whole = np.asarray(gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind))
        decoded[name] = torch.from_numpy(whole.astype(np.float32).reshape(rows.shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded

"""The tokenizer inside a GGUF file, as the JSON files that Hugging Face's libraries read."""

from __future__ import annotations

from typing import Any

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.weights.gguf_file import GgufFile
from adaptivespec.engine.weights.gguf_sentencepiece import sentencepiece_parts

__all__ = ["PRE_TOKENIZERS", "tokenizer_files"]

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Token types of GGUF that are matched whole in text; all but the last are special."""

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Words, digits, punctuation, space; how many digits go together differs."""


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _split(digits: str) -> dict[str, Any]:
    pattern = {"Regex": _SPLIT % digits}
    return _sequence(
        {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False},
        _byte_level(use_regex=False),
    )


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


_DIGITS = _sequence({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True))
_LLAMA3 = _split(r"\p{N}{1,3}")
_QWEN2 = _split(r"\p{N}")
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "smollm": _DIGITS,
    "gpt2": _byte_level(use_regex=True),
    "gpt-2": _byte_level(use_regex=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
}
"""tokenizer.ggml.pre -> how text is cut before merging."""


def tokenizer_files(file: GgufFile) -> dict[str, dict[str, Any]]:
    """``tokenizer.json`` and ``tokenizer_config.json`` for ``file``, by name.

    Raises:
        CheckpointError: not a tokenizer this package can rebuild exactly, or inconsistent
            metadata.
    """
    model, pre = file.get("tokenizer.ggml.model"), file.get("tokenizer.ggml.pre", "gpt2")
    if model != "llama" and (model != "gpt2" or pre not in PRE_TOKENIZERS):
        raise CheckpointError(
            f"the tokenizer (model {model!r}, pre {pre!r}) cannot be rebuilt from GGUF metadata",
            field=str(file.path),
            remedy="Use the Hugging Face directory of this model. From GGUF: llama, and gpt2 with "
            f"pre {', '.join(PRE_TOKENIZERS)}",
        )
    tokens = file.get("tokenizer.ggml.tokens")
    if not tokens:
        raise CheckpointError("tokenizer.ggml.tokens is missing", field=str(file.path))
    types = file.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        raise CheckpointError(
            "tokenizer.ggml.tokens and .token_type do not match, or a token is there twice",
            field=str(file.path),
        )
    if model == "llama":
        parts = sentencepiece_parts(file, tokens, types)
    else:
        parts = _byte_level_parts(file, tokens, PRE_TOKENIZERS[pre])
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(index, tokens[index], kind)
            for index, kind in enumerate(types)
            if kind in (_CONTROL, _USER_DEFINED) or (kind == _UNKNOWN and model == "llama")
        ],
        "post_processor": None,
        **parts,
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": _config(file, tokens)}


def _byte_level_parts(
    file: GgufFile, tokens: list[str], pre_tokenizer: dict[str, Any]
) -> dict[str, Any]:
    """Normalizer, pre-tokenizer, decoder and model, by their keys in tokenizer.json."""
    merges = file.get("tokenizer.ggml.merges")
    if merges is None:
        raise CheckpointError("tokenizer.ggml.merges is missing", field=str(file.path))
    pairs = [merge.split(" ") for merge in merges]
    vocab = {token: index for index, token in enumerate(tokens)}
    broken = [
        merge
        for merge, pair in zip(merges, pairs, strict=True)
        if len(pair) != 2 or "".join(pair) not in vocab
    ]
    if broken:
        raise CheckpointError(
            f"{len(broken)} merges name no token, first {broken[0]!r}", field=str(file.path)
        )
    return {
        "normalizer": {"type": "NFC"} if pre_tokenizer is _QWEN2 else None,
        "pre_tokenizer": pre_tokenizer,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre_tokenizer is _LLAMA3,
            "vocab": vocab,
            "merges": pairs,
        },
    }


def _added(index: int, content: str, kind: int) -> dict[str, Any]:
    return {
        "id": index,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": kind != _USER_DEFINED,
    }


def _config(file: GgufFile, tokens: list[str]) -> dict[str, Any]:
    """Named special tokens, context length and chat template."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.get(f"{file.architecture}.context_length"),
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = file.get(f"tokenizer.ggml.{name}_token_id")
        if index is None:
            continue
        if not 0 <= index < len(tokens):
            raise CheckpointError(
                f"tokenizer.ggml.{name}_token_id {index} is not a token", field=str(file.path)
            )
        config[f"{key}_token"] = tokens[index]
    template = file.get("tokenizer.chat_template")
    if template:
        config["chat_template"] = template
    return config

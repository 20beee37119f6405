"""A SentencePiece BPE (Llama 2, Mistral) from a GGUF file, as parts of a tokenizer.json.

SentencePiece joins the two neighbours whose union has the highest score, the leftmost first (Kudo
and Richardson, 1808.06226). A list of merges in the order of those scores does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.weights.gguf_file import GgufFile

__all__ = ["sentencepiece_parts"]

_NORMAL = 1
_SPACE = "\u2581"


def sentencepiece_parts(file: GgufFile, tokens: list[str], types: Sequence[int]) -> dict[str, Any]:
    """Normalizer, pre-tokenizer, decoder and model, by their keys in tokenizer.json.

    Text outside the vocabulary becomes its bytes. As in the published tokenizer.json files, a space
    is put before the text and before what follows a special token, unless the file forbids it.

    Raises:
        CheckpointError: no scores, or not one for each token.
    """
    scores = file.get("tokenizer.ggml.scores")
    if not scores or len(scores) != len(tokens):
        raise CheckpointError(
            "tokenizer.ggml.scores is missing or does not match the tokens", field=str(file.path)
        )
    prefix = file.get("tokenizer.ggml.add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    unspaced = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    unknown = file.get("tokenizer.ggml.unknown_token_id", 0)
    return {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*([{"type": "Prepend", "prepend": _SPACE}] if prefix else []), spaces],
        },
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                unspaced,
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []),
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": tokens[unknown] if 0 <= unknown < len(tokens) else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": _merges(tokens, types, scores),
        },
    }


def _merges(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the best token first."""
    plain = {
        token: (-score, index)
        for index, (token, kind, score) in enumerate(zip(tokens, types, scores, strict=True))
        if kind == _NORMAL
    }
    ranked = sorted(plain, key=plain.__getitem__)
    return [
        (token[:cut], token[cut:])
        for token in ranked
        for cut in range(1, len(token))
        if token[:cut] in plain and token[cut:] in plain
    ]

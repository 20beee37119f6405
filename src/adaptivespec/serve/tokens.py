"""Log probabilities, as OpenAI's two endpoints write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptivespec.engine.result import TokenInfo
    from adaptivespec.engine.tokens import Tokenizer

__all__ = ["CompletionLogprobs", "chat_logprobs", "traced_tokens"]

#: What OpenAI writes for "practically never"; JSON has no minus infinity.
LOWEST = -9999.0


def chat_logprobs(tokens: Sequence[TokenInfo], tokenizer: Tokenizer) -> dict[str, Any]:
    """`logprobs` of a chat choice."""

    def entry(token: int, text: str, logprob: float | None) -> dict[str, Any]:
        return {
            "token": text,
            "logprob": _finite(logprob),
            "bytes": list(tokenizer.token_bytes(token)),
        }

    content = [
        {
            **entry(info.token_id, info.text, info.logprob),
            "top_logprobs": [
                entry(token, tokenizer.token_text(token), logprob)
                for token, logprob in info.top_logprobs
            ],
        }
        for info in tokens
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """`logprobs` of one choice of a completion, piece by piece.

    `text_offset` is the place in the answer, in characters, of the character that a token begins
    or goes on with.
    """

    def __init__(self, tokenizer: Tokenizer, top: int) -> None:
        self._tokenizer, self._top = tokenizer, top
        self._characters = 0

    def add(self, tokens: Sequence[TokenInfo]) -> dict[str, Any]:
        """Those of further tokens."""
        return {
            "tokens": [info.text for info in tokens],
            "token_logprobs": [_finite(info.logprob) for info in tokens],
            "top_logprobs": [self._tops(info) for info in tokens],
            "text_offset": [self._offset(info) for info in tokens],
        }

    def _tops(self, info: TokenInfo) -> dict[str, float]:
        """The likeliest tokens and the chosen one; of tokens that read alike the likeliest."""
        text = self._tokenizer.token_text
        found: dict[str, float] = {}
        for token, logprob in info.top_logprobs:
            found.setdefault(text(token), _finite(logprob))
        found.setdefault(info.text, _finite(info.logprob))
        return found

    def _offset(self, info: TokenInfo) -> int:
        content = self._tokenizer.token_bytes(info.token_id)
        goes_on = bool(content) and _continues(content[0])
        offset = max(self._characters - goes_on, 0)
        self._characters += sum(not _continues(byte) for byte in content)
        return offset


def traced_tokens(tokens: Sequence[TokenInfo]) -> list[dict[str, Any]]:
    """Tokens with how each came about."""
    return [
        {
            "id": info.token_id,
            "text": info.text,
            "kind": str(info.kind),
            "margin": info.margin,
            "logprob": None if info.logprob is None else _finite(info.logprob),
        }
        for info in tokens
    ]


def _continues(byte: int) -> bool:
    """Whether a byte of UTF-8 belongs to the character before it."""
    return byte & 0xC0 == 0x80


def _finite(logprob: float | None) -> float:
    return LOWEST if logprob is None else max(logprob, LOWEST)

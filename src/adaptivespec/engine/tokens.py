"""Text to token ids and back, and the chat template of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptivespec.core.errors import CheckpointError, ConfigError, PromptError
from adaptivespec.core.vocabulary import is_digits, structural_ids, think_pair
from adaptivespec.engine.weights.chat_template import find_template, render
from adaptivespec.engine.weights.jsonfile import read_json

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Tokenizer"]

_NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
    "sep_token",
    "cls_token",
    "mask_token",
)

_BYTE_FALLBACK = re.compile("<0x([0-9A-Fa-f]{2})>")


def _byte_level() -> dict[str, int]:
    """What byte-level tokenizers write in place of bytes: those that print as themselves, the
    others as the characters from 256 on (GPT-2's table).
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_LEVEL = _byte_level()


class Tokenizer:
    """The tokenizer of a model. Immutable; safe to share between threads.

    Attributes:
        vocab_size: number of ids, added tokens included.
        eos_token_ids: ids that end an answer, from the tokenizer's and the model's configs.
        special_ids: ids that are structure rather than text: all tokens flagged special, the named
            ones (bos, eos, pad ...), and added tokens written like tags (think and tool markers).
        chat_template: the template's source, or None.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        config: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        self._backend = backend
        self._named = _named_tokens(config or {})
        self.chat_template = chat_template
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        named = {key: backend.token_to_id(text) for key, text in self._named.items()}
        eos = [named.get("eos_token"), *eos_token_ids]
        self.eos_token_ids: tuple[int, ...] = tuple(
            dict.fromkeys(token for token in eos if token is not None)
        )
        self.special_ids: frozenset[int] = structural_ids(
            backend.get_added_tokens_decoder(), [*named.values(), *self.eos_token_ids]
        )

    @classmethod
    def from_dir(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a model directory (tokenizer.json and configs) or of a GGUF file.

        Raises:
            CheckpointError: tokenizer.json is absent or damaged, a config is malformed, or the GGUF
                file's tokenizer is of a kind that cannot be rebuilt.
        """
        path = Path(path)
        if path.suffix == ".gguf":
            return cls.from_gguf(path)
        file = path / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(
                "no tokenizer.json",
                field=str(path),
                remedy="Save one with a fast tokenizer's save_pretrained; SentencePiece-only "
                "models are not supported",
            )
        config = read_json(path / "tokenizer_config.json", missing_ok=True)
        eos: list[int] = []
        for name in ("config.json", "generation_config.json"):
            value = read_json(path / name, missing_ok=True).get("eos_token_id")
            eos += [
                token
                for token in (value if isinstance(value, list) else [value])
                if isinstance(token, int)
            ]
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot be read ({error})", field=str(file)) from error
        return cls(_backend(text, str(file)), config, find_template(path, config), eos)

    @classmethod
    def from_gguf(cls, path: str | Path) -> Tokenizer:
        """The tokenizer inside a GGUF file. Raises as :meth:`from_dir`."""
        from adaptivespec.engine.weights.gguf_file import GgufFile
        from adaptivespec.engine.weights.gguf_tokenizer import tokenizer_files

        files = tokenizer_files(GgufFile.open(path))
        config = files["tokenizer_config.json"]
        return cls(
            _backend(json.dumps(files["tokenizer.json"]), str(path)),
            config,
            config.get("chat_template"),
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; no bos or other token is added.

        Text that spells a special token ("<|im_end|>") becomes that token, as in Hugging Face's
        tokenizers, in a chat message too: callers who pass on text they do not trust may want to
        refuse it first (:meth:`special_in`).
        """
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise PromptError(
                "the text is not a string of whole Unicode characters",
                field="prompt",
                remedy="Decode it as UTF-8 first, and leave out lone surrogates",
            ) from error
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are no whole character become U+FFFD, unknown ids nothing."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def special_in(self, text: str) -> list[str]:
        """The special tokens that ``text`` spells out, in order."""
        return [self.token_text(token) for token in self.encode(text) if token in self.special_ids]

    def token_id(self, text: str) -> int | None:
        """The id of the token written ``text`` in the vocabulary, or None."""
        index: int | None = self._backend.token_to_id(text)
        return index

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The id of every token as it is written, added ones included."""
        found: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return found

    def token_text(self, token_id: int) -> str:
        """What one token reads as on its own, special tokens included."""
        return self.decode([token_id], skip_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, also where they are a part of a character."""
        text = self.token_text(token_id)
        if "\ufffd" not in text:
            return text.encode()
        piece = self._backend.id_to_token(token_id) or ""
        if byte := _BYTE_FALLBACK.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        if all(character in _BYTE_LEVEL for character in piece):
            return bytes(_BYTE_LEVEL[character] for character in piece)
        return text.encode()

    @cached_property
    def digit_ids(self) -> frozenset[int]:
        """Ids whose text is digits only, apart from spaces around them."""
        texts = (self.decode([index]) for index in range(self.vocab_size))
        return frozenset(index for index, text in enumerate(texts) if is_digits(text))

    @property
    def think_ids(self) -> tuple[int, int] | None:
        """The ids of <think> and </think>, or None for a model without them."""
        return think_pair(self.token_id)

    @property
    def has_chat_template(self) -> bool:
        """Whether :meth:`apply_chat_template` can work."""
        return self.chat_template is not None

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt text of a conversation.

        Args:
            messages: [{"role": ..., "content": ...}, ...], strings, at least one.
            add_generation_prompt: end with the opening of the assistant's turn.
            variables: further variables of the template.

        Raises:
            ConfigError(field="messages"): malformed messages, or the template refuses them.
            ConfigError(field="chat_template"): the model has none.
        """
        if self.chat_template is None:
            raise ConfigError(
                "the model has no chat template",
                field="chat_template",
                remedy="Pass a raw prompt, or add chat_template.jinja beside the model",
            )
        given = {"tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
        return render(self.chat_template, messages, **(self._named | given | variables))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """Token ids of :meth:`render_chat`; the template itself writes the special tokens."""
        return self.encode(self.render_chat(messages, add_generation_prompt, **variables))


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token and so on; a config writes each as a string or as an object with its "content"."""
    named = {}
    for key in _NAMED:
        value = config.get(key)
        value = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(value, str):
            named[key] = value
    return named


def _backend(text: str, where: str) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str(text)
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(
            f"not a readable tokenizer ({error})", field=where, remedy="Download the file again"
        ) from error
    backend.no_truncation()
    backend.no_padding()
    return backend

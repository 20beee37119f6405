"""What the margin rule needs to know of the target's tokens, read from SGLang's tokenizer.

That is a Hugging Face tokenizer or something shaped like one, and None on a server that was started
with ``--skip-tokenizer-init``. All of it is constant for a server: ask once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.vocabulary import AddedToken, is_digits, structural_ids, think_pair

if TYPE_CHECKING:
    from adaptivespec.verify.margin import MarginOptions

__all__ = ["check_tokenizer", "digit_ids", "protected_ids", "think_ids"]


def protected_ids(tokenizer: Any, eos_ids: Iterable[int]) -> frozenset[int]:
    """Ids never promoted and never overridden: whatever is structure rather than text.

    Args:
        tokenizer: its special and tag-like tokens count, and the stop ids SGLang attached to it.
        eos_ids: the model's own; all that is known without a tokenizer.
    """
    named = [
        *eos_ids,
        getattr(tokenizer, "eos_token_id", None),
        *(getattr(tokenizer, "all_special_ids", None) or ()),
        *(getattr(tokenizer, "additional_stop_token_ids", None) or ()),
    ]
    return structural_ids(_added_tokens(tokenizer), named)


def digit_ids(tokenizer: Any, vocab_size: int) -> frozenset[int] | None:
    """Ids below ``vocab_size`` whose text is digits only; None, not known, without a tokenizer.

    It decodes every id, so ask only when digits matter.
    """
    if tokenizer is None:
        return None
    # A model may have more rows than its tokenizer has tokens.
    known = len(tokenizer) if hasattr(tokenizer, "__len__") else tokenizer.vocab_size
    texts = (
        tokenizer.decode([index], skip_special_tokens=True)
        for index in range(min(vocab_size, known))
    )
    return frozenset(index for index, text in enumerate(texts) if is_digits(text))


def think_ids(tokenizer: Any) -> tuple[int, int] | None:
    """The ids of <think> and </think>; None when the tokenizer has no such tokens."""
    lookup = getattr(tokenizer, "convert_tokens_to_ids", None)
    if lookup is None:
        return None

    def token_id(text: str) -> int | None:
        index: int | None = lookup(text)  # of an unknown text: None, or the unknown token
        known = index is not None and tokenizer.convert_ids_to_tokens(index) == text
        return index if known else None

    return think_pair(token_id)


def check_tokenizer(options: MarginOptions, tokenizer: Any, field: str) -> None:
    """Refuse options about tokens that the tokenizer cannot name.

    Args:
        options: a server's or a request's.
        field: what the options belong to, for the error: ConfigError(field="FIELD.think_only").
    """
    if options.protect_digits and tokenizer is None:
        raise ConfigError(
            "needs a tokenizer, to know which tokens are digits",
            field=f"{field}.protect_digits",
            remedy="Turn it off, or start the server without --skip-tokenizer-init",
        )
    if options.think_only and options.think_ids is None and think_ids(tokenizer) is None:
        raise ConfigError(
            "needs thinking tokens, and the tokenizer has no <think> and </think>",
            field=f"{field}.think_only",
            remedy="Turn it off, or give their ids in the rule, as think_ids=(5,6)",
        )


def _added_tokens(tokenizer: Any) -> Mapping[int, AddedToken]:
    """id -> added token; empty for tokenizers without that list (Mistral's own, tiktoken's)."""
    try:
        added: Mapping[int, AddedToken] = tokenizer.added_tokens_decoder
    except (AttributeError, NotImplementedError):
        return {}
    return added

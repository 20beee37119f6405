"""The tiny target and head behind an engine, with a tokenizer that writes ids as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.engine.engine import Engine
from fakes import targets, tiny
from fakes.scripted import COSTS, LetterTokenizer


class NumberTokenizer:
    """Token i reads as the number `i % modulus`; texts are numbers, or words as long as their id.

    Many ids end a text, so that answers of a random model are short.
    """

    special_ids: frozenset[int] = frozenset()
    digit_ids: frozenset[int] = frozenset()
    think_ids = None
    has_chat_template = False
    vocab_size = tiny.CONFIG.vocab_size

    def __init__(self, eos: Sequence[int] = (0,), modulus: int = vocab_size) -> None:
        self.eos_token_ids, self.modulus = tuple(eos), modulus

    def encode(self, text: str) -> list[int]:
        words = text.split()
        return [(int(w) if w.isdecimal() else len(w)) % self.vocab_size for w in words]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(f"{i % self.modulus} " for i in ids)

    def token_text(self, token: int) -> str:
        return self.decode([token])


def engine(eos: Sequence[int] = (0,), modulus: int = tiny.CONFIG.vocab_size) -> Engine:
    target = tiny.target()
    tokenizer: Any = NumberTokenizer(eos, modulus)
    made = Engine(target, tokenizer, tiny.drafter(target), "tiny")
    made._costs = COSTS
    return made


def native(eos: Sequence[int] = (0,)) -> Engine:
    """The same on the native engine; the test is skipped where there is none."""
    target = targets.native("A8")
    head = tiny.head()
    drafter = Eagle3Drafter(head, target.embedding, 5, tiny.MAX_LEN, torch.float32, target.output)
    tokenizer: Any = NumberTokenizer(eos)
    made = Engine(target, tokenizer, drafter, "tiny")
    made._costs = COSTS
    return made


class EndlessTokenizer(LetterTokenizer):
    """Ids of the tiny model; none of them ends the text."""

    eos_token_ids = ()
    special_ids: frozenset[int] = frozenset()
    vocab_size = tiny.CONFIG.vocab_size

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(chr(200 + i) for i in ids)

    def token_text(self, token: int) -> str:
        return chr(200 + token)


def endless() -> Engine:
    """An engine whose texts end at max_tokens alone."""
    target = tiny.target()
    tokenizer: Any = EndlessTokenizer()
    made = Engine(target, tokenizer, tiny.drafter(target), "tiny")
    made._costs = COSTS
    return made

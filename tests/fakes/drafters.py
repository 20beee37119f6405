"""Every drafter beside the tiny target, behind an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from adaptivespec.draft.base import Drafter
from adaptivespec.draft.graft import GraftDrafter
from adaptivespec.draft.ngram import NgramDrafter
from adaptivespec.draft.small_lm import SmallLMDrafter
from adaptivespec.engine.engine import Engine
from fakes import tiny
from fakes.scripted import COSTS
from fakes.tiny_engine import NumberTokenizer

VOCAB = tiny.CONFIG.vocab_size
#: No taps, as drafters that read no feature of the target get them.
NO_TAPS = torch.empty(0, 0)


def ngram() -> NgramDrafter:
    return NgramDrafter(VOCAB)


def small_lm(seed: int = 0) -> SmallLMDrafter:
    """The target's twin for seed 0, a stranger for others."""
    return SmallLMDrafter(tiny.target(seed=seed), VOCAB)


MAKE: dict[str, Callable[[Any], Drafter[Any]]] = {
    "ngram": lambda target: ngram(),
    "twin": lambda target: small_lm(),
    "stranger": lambda target: small_lm(1),
    "graft": lambda target: GraftDrafter(tiny.drafter(target), ngram()),
    "small+ngram": lambda target: GraftDrafter(small_lm(), ngram()),
}


def engine(name: str) -> Engine:
    """The tiny target with that drafter; its name is the one that random heads are for."""
    target = tiny.target()
    tokenizer: Any = NumberTokenizer((0, 17, 23))
    made = Engine(target, tokenizer, MAKE[name](target), "none")
    made._costs = COSTS
    return made


def state_of(drafter: Drafter[Any], tokens: list[int]) -> Any:
    """A state that has read a prompt; its last token is the root."""
    state = drafter.new_state(4)
    drafter.begin(state, tokens[0])
    drafter.observe(state, tokens[1:], NO_TAPS)
    return state

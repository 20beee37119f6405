"""How likely a target finds given text: log probabilities of continuations, token by token.

Nothing is drafted and no rule takes part: the scores are the target's own, whatever an engine
would generate with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adaptivespec.core.errors import ContextLengthError, NumericalError, PromptError
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.target import Target

__all__ = ["Scorer", "Scores", "token_logprobs"]

#: Rows of one pass: as many as are no quicker apart, few enough to bound the logits in memory.
ROWS = 64
INITIAL_ROWS = 256


@dataclass(frozen=True)
class Scores:
    """Of a continuation, one entry for each of its tokens.

    Attributes:
        logprobs: ln p(token | prompt, continuation before it), in nats.
        greedy: whether the token is the target's likeliest; of several that are equally likely the
            first in the vocabulary is.
    """

    logprobs: list[float]
    greedy: list[bool]

    @property
    def total(self) -> float:
        """ln p of the whole continuation; 0 for an empty one."""
        return sum(self.logprobs)

    @property
    def all_greedy(self) -> bool:
        """Whether greedy decoding would write exactly this."""
        return all(self.greedy)


class Scorer:
    """Scores one continuation after another, keeping the rows that the next one shares.

    Args:
        target: of either backend.
        rows: tokens of one pass, at most.
    """

    def __init__(self, target: Target[Any], rows: int = ROWS) -> None:
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        self._target, self._rows = target, rows
        self._cache = target.new_cache(min(INITIAL_ROWS, target.limits.max_model_len))
        self._held: list[int] = []

    def score(self, prompt_ids: Sequence[int], continuation_ids: Sequence[int]) -> Scores:
        """The scores of a continuation.

        The cache ends up holding the prompt without its last token, so that another continuation
        of the same prompt costs no more than its own tokens.

        Raises:
            PromptError: the prompt is empty, or an id is not in the vocabulary.
            ContextLengthError: both together, without the last token, exceed the context.
            NumericalError: logits hold NaN or +inf, or a row is all -inf.
        """
        prompt, continuation = list(prompt_ids), list(continuation_ids)
        self._check(prompt, continuation)
        if not continuation:
            return Scores([], [])
        start = len(prompt) - 1
        try:
            self._hold(prompt[:start])
            scores = self._run([prompt[-1], *continuation[:-1]], continuation)
        except BaseException:
            self._target.truncate(self._cache, 0)
            self._held.clear()
            raise
        self._target.truncate(self._cache, start)
        return scores

    def _check(self, prompt: list[int], continuation: list[int]) -> None:
        limits = self._target.limits
        if not prompt:
            raise PromptError("is empty", field="prompt", remedy="Begin it with the bos token")
        for token in (*prompt, *continuation):
            if not 0 <= token < limits.vocab_size:
                raise PromptError(
                    f"token id {token!r} is not in [0, {limits.vocab_size})", field="prompt"
                )
        size = len(prompt) + len(continuation) - 1
        if continuation and size > limits.max_model_len:
            raise ContextLengthError(
                f"{len(prompt)} tokens with a continuation of {len(continuation)} take {size} "
                f"places, and the context has {limits.max_model_len}",
                field="prompt",
                remedy="Shorten it, or raise max_model_len up to the model's own limit",
            )

    def _hold(self, tokens: list[int]) -> None:
        """Have the cache hold exactly `tokens`."""
        shared = 0
        for held, wanted in zip(self._held, tokens, strict=False):
            if held != wanted:
                break
            shared += 1
        self._target.truncate(self._cache, shared)
        del self._held[shared:]
        if fresh := tokens[shared:]:
            self._target.prefill(self._cache, fresh)
            self._held += fresh

    @torch.inference_mode()
    def _run(self, inputs: list[int], wanted: list[int]) -> Scores:
        """Chains of `inputs`, whose rows predict `wanted`; each is committed for the next."""
        logprobs: list[float] = []
        greedy: list[bool] = []
        for at in range(0, len(inputs), self._rows):
            part = inputs[at : at + self._rows]
            tree = DraftTree.chain(part, device=self._target.device)
            logits = self._target.verify(self._cache, tree).logits.float()
            laws = logits.log_softmax(-1)
            if bool(laws.isnan().any()):
                raise NumericalError("are not finite", field="logits")
            tokens = torch.tensor(wanted[at : at + len(part)], device=logits.device)[:, None]
            logprobs += laws.gather(-1, tokens)[:, 0].tolist()
            greedy += (logits.argmax(-1) == tokens[:, 0]).tolist()
            if at + self._rows < len(inputs):
                self._target.commit(self._cache, range(len(part)))
        return Scores(logprobs, greedy)


def token_logprobs(
    target: Target[Any], prompt_ids: Sequence[int], continuation_ids: Sequence[int]
) -> Scores:
    """The scores of one continuation; errors as in ``Scorer.score``."""
    return Scorer(target).score(prompt_ids, continuation_ids)

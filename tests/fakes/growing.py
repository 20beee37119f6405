"""A scripted target, and a drafter that grows any plan's tree from a noisy copy of its logits."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.draft.growth import Growth
from adaptivespec.engine.engine import Engine
from adaptivespec.policy.base import TreePlan
from fakes.scripted import VOCAB, LetterTokenizer, Prefix, ScriptedDrafter, ScriptedTarget


class GrowingDrafter(ScriptedDrafter):
    """Its law after a prefix is the softmax of the target's logits plus noise."""

    def __init__(self, seed: int, noise: float) -> None:
        super().__init__(lambda prefix: ())
        self.seed, self.noise = seed, noise

    def confidence(self, state: list[int]) -> float:
        return float(self._logq(tuple(state)).amax().exp())

    def draft(
        self,
        state: list[int],
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        growth = Growth(state[-1], plan)
        paths: list[Prefix] = [tuple(state)]
        while not growth.stopped:
            logq = torch.stack([self._logq(path) for path in paths])
            values, tokens = logq.topk(plan.topk, -1)
            source = growth.expand(tokens, values)
            pairs = zip(source.tolist(), growth.frontier_tokens.tolist(), strict=True)
            paths = [(*paths[row], token) for row, token in pairs]
        return growth.draft()

    def _logq(self, prefix: Prefix) -> Tensor:
        z = torch.tensor(logits(self.seed, prefix[-2:]))
        noise = torch.tensor(_random(f"{self.seed} drafter {prefix[-3:]}"))
        return (z + self.noise * noise).log_softmax(-1)


def logits(seed: int, last: Prefix) -> list[float]:
    """A target that looks at the last two tokens; 0, the end, is rare."""
    row = [3 * value for value in _random(f"{seed} target {last}")]
    row[0] -= 4
    return row


@lru_cache(maxsize=65536)
def _random(key: str) -> list[float]:
    rng = random.Random(key)
    return [rng.gauss(0, 1) for _ in range(VOCAB)]


def engine(seed: int, noise: float = 1.5) -> Engine:
    tokenizer: Any = LetterTokenizer()
    target = ScriptedTarget(lambda prefix: logits(seed, prefix[-2:]))
    return Engine(target, tokenizer, GrowingDrafter(seed, noise), "growing")

"""Doubles for the decode loop: a target that is a function, a drafter that is a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.target import Pass, PrefillProgress, Target, TargetLimits
from adaptivespec.policy.base import TreePlan
from adaptivespec.policy.costs import CostProfile

VOCAB = 16
#: What engines of tests know of their machine, so that none of them measures it.
COSTS = CostProfile("test", ((0, ((1, 0.010), (64, 0.030))),), ((1, 0.001),), 0.001)
EOS = 0
LETTERS = "\0abcdefghijklmno"

Prefix = tuple[int, ...]
Logits = Callable[[Prefix], Sequence[float]]
#: Nodes below the root as (token, index of the parent in this list, -1 = the root).
Nodes = Sequence[tuple[int, int]]


@dataclass
class ScriptedCache:
    tokens: list[int] = field(default_factory=list)
    tree: DraftTree | None = None


class ScriptedTarget(Target[ScriptedCache]):
    """Logits are `logits(prefix)`; the cache is the prefix."""

    def __init__(self, logits: Logits, max_model_len: int = 10_000) -> None:
        self.logits = logits
        self.limits = TargetLimits(VOCAB, 1, 1, max_model_len)
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self.passes = 0

    def new_cache(self, capacity: int) -> ScriptedCache:
        return ScriptedCache()

    def length(self, cache: ScriptedCache) -> int:
        return len(cache.tokens)

    def prefill(
        self,
        cache: ScriptedCache,
        tokens: Sequence[int],
        tap_layers: Sequence[int] = (),
        progress: PrefillProgress | None = None,
    ) -> Pass:
        cache.tokens.extend(tokens)
        return self._pass([tuple(cache.tokens)])

    def verify(self, cache: ScriptedCache, tree: DraftTree, tap_layers: Sequence[int] = ()) -> Pass:
        tree.validate()
        self.passes += 1
        cache.tree = tree
        paths: list[Prefix] = []
        for token, parent in zip(tree.token.tolist(), tree.parent.tolist(), strict=True):
            above = tuple(cache.tokens) if parent < 0 else paths[parent]
            paths.append((*above, token))
        return self._pass(paths)

    def commit(self, cache: ScriptedCache, path: Sequence[int]) -> None:
        assert cache.tree is not None
        parents = cache.tree.parent.tolist()
        assert [parents[node] for node in path] == [-1, *path[:-1]], "not a path from the root"
        cache.tokens.extend(cache.tree.token[list(path)].tolist())
        cache.tree = None

    def truncate(self, cache: ScriptedCache, length: int) -> None:
        del cache.tokens[length:]

    def _pass(self, prefixes: Sequence[Prefix]) -> Pass:
        rows = torch.tensor([list(self.logits(prefix)) for prefix in prefixes])
        return Pass(rows, rows[:, :0])


class ScriptedDrafter(Drafter[list[int]]):
    """Drafts `nodes(prefix)`: the prefix ends with the root and lacks the first prompt token."""

    def __init__(self, nodes: Callable[[Prefix], Nodes], confidence: float = 0.5) -> None:
        self.nodes, self._confidence = nodes, confidence
        self.drafts = 0

    def new_state(self, capacity: int) -> list[int]:
        return []

    def length(self, state: list[int]) -> int:
        return len(state)

    def observe(self, state: list[int], tokens: Sequence[int], taps: Tensor) -> None:
        state.extend(tokens)

    def confidence(self, state: list[int]) -> float:
        return self._confidence

    def draft(
        self,
        state: list[int],
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        self.drafts += 1
        nodes = list(self.nodes(tuple(state)))
        depth = [0]
        for _, parent in nodes:
            depth.append(depth[parent + 1] + 1)
        keep = [i for i in range(len(nodes)) if depth[i + 1] <= plan.num_steps][
            : plan.num_draft_tokens - 1
        ]
        tokens = [state[-1], *(nodes[i][0] for i in keep)]
        new = {-1: 0} | {old: i + 1 for i, old in enumerate(keep)}
        parents = [-1, *(new[nodes[i][1]] for i in keep)]
        return Draft(DraftTree.from_parents(tokens, parents), num_candidates=len(nodes))

    def truncate(self, state: list[int], length: int) -> None:
        del state[length:]


class LetterTokenizer:
    """Token i reads as the i-th letter; 0 ends the text."""

    eos_token_ids = (EOS,)
    special_ids = frozenset({EOS})
    digit_ids: frozenset[int] = frozenset()
    think_ids = None
    has_chat_template = False
    vocab_size = VOCAB

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(c) for c in text]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(LETTERS[i] for i in ids if i != EOS or not skip_special_tokens)

    def token_text(self, token: int) -> str:
        return LETTERS[token]


def engine(logits: Logits, nodes: Callable[[Prefix], Nodes], **limits: Any) -> Engine:
    """An engine on scripted parts, ready to generate."""
    tokenizer: Any = LetterTokenizer()
    made = Engine(ScriptedTarget(logits, **limits), tokenizer, ScriptedDrafter(nodes), "scripted")
    made._costs = COSTS
    return made


def prefer(*tokens: int, base: float = 0.0, best: float = 8.0) -> list[float]:
    """Logits that rank `tokens` first, in that order, a nat apart."""
    row = [base] * VOCAB
    for rank, token in enumerate(tokens):
        row[token] = best - rank
    return row


def chain(*tokens: int) -> list[tuple[int, int]]:
    """Nodes of a chain."""
    return [(token, i - 1) for i, token in enumerate(tokens)]

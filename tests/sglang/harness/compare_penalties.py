"""Compares our penalties at every node of random trees with SGLang's own penalisers.

SGLang's are fed each node's path one token at a time, as plain decoding feeds them, and applied as
it applies them. Exits with an error where a logit differs in a single bit.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.integrations.sglang.penalties import (
    PenaltyCounts,
    PenaltyRows,
    apply,
    penalties_of,
)

VOCAB, NODES, BATCHES, SLOTS = 13, 7, 60, 8


def random_request(rng: random.Random) -> Any:
    """What SGLang's penalisers read of a request."""
    # Multiples of 1/4: SGLang adds the frequency penalty up, which then does not round.
    params = SimpleNamespace(
        frequency_penalty=rng.choice([0.0, 0.5, -0.75]),
        presence_penalty=rng.choice([0.0, 0.5, -1.0]),
        repetition_penalty=rng.choice([1.0, 1.3, 0.7]),
        min_new_tokens=rng.choice([0, 3, 6]),
        stop_token_ids=rng.choice([None, {2}, {2, 7}]),
    )
    tokenizer = SimpleNamespace(
        additional_stop_token_ids=rng.choice([None, {9}]), eos_token_id=rng.choice([None, 4])
    )
    eos_ids = rng.choice([None, {4}, {4, 5}])
    return SimpleNamespace(sampling_params=params, eos_token_ids=eos_ids, tokenizer=tokenizer)


def random_tree(rng: random.Random) -> DraftTree:
    tokens, parents = [rng.randrange(VOCAB)], [-1]
    while len(tokens) < NODES:
        parent, token = rng.randrange(len(tokens)), rng.randrange(5)
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    return DraftTree.from_parents(tokens, parents)


def path_tokens(tree: DraftTree, node: int) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.insert(0, int(tree.token[node]))
        node = int(tree.parent[node])
    return path


class Batch:
    """What SGLang's penalisers read of a batch."""

    def __init__(self, request: Any) -> None:
        self.reqs, self.device = [request], "cpu"


def plain_decoding(request: Any, output: list[int], logits: Tensor) -> Tensor:
    """Logits [V] of the position after ``output``, as SGLang's sampler sees them."""
    batch = Batch(request)
    kinds = ("Frequency", "MinNewTokens", "Presence", "Repetition")
    penalizers = {getattr(penaltylib, f"Batched{kind}Penalizer") for kind in kinds}
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(VOCAB, batch, penalizers)
    for token in output:
        orchestrator.cumulate_output_tokens(torch.tensor([token]))
    one = torch.ones(1, 1)
    info = SamplingBatchInfo(
        temperatures=one,
        top_ps=one,
        top_ks=one,
        min_ps=one,
        is_all_greedy=True,
        is_any_greedy=True,
        need_top_p_sampling=False,
        need_top_k_sampling=False,
        need_min_p_sampling=False,
        vocab_size=VOCAB,
        penalizer_orchestrator=orchestrator,
        device="cpu",
    )
    penalised = logits.unsqueeze(0).clone()
    info.copy_for_forward().apply_logits_bias(penalised)
    return penalised[0]


def check(rng: random.Random, dtype: torch.dtype) -> None:
    """One batch."""
    requests = [random_request(rng) for _ in range(rng.randint(1, 3))]
    outputs = [[rng.randrange(VOCAB) for _ in range(rng.randrange(6))] for _ in requests]
    trees = [random_tree(rng) for _ in requests]
    logits = (3 * torch.randn(len(requests), NODES, VOCAB)).to(dtype)
    counts = PenaltyCounts(SLOTS, VOCAB, "cpu")
    penalties = [penalties_of(request) for request in requests]
    slots = rng.sample(range(1, SLOTS), len(requests))
    for slot, own, output in zip(slots, penalties, outputs, strict=True):
        counts.admit(slot, own, output)
    got = logits.flatten(0, 1).clone()
    apply(
        got,
        DraftTree.pad_stack(trees),
        PenaltyRows.of(penalties, VOCAB, "cpu"),
        counts,
        torch.tensor(slots),
        torch.tensor([len(output) + 1 for output in outputs]),
    )
    for row, (request, output, tree) in enumerate(zip(requests, outputs, trees, strict=True)):
        for node in range(NODES):
            want = plain_decoding(request, output + path_tokens(tree, node), logits[row, node])
            found = got[row * NODES + node]
            assert torch.equal(found, want), (request, output, tree, node, found, want)


def main() -> None:
    rng = random.Random(0)
    torch.manual_seed(0)
    for number in range(BATCHES):
        check(rng, torch.bfloat16 if number % 2 else torch.float32)


if __name__ == "__main__":
    main()

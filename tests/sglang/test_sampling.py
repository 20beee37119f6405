"""Temperature above 0: the target's own law, and seeds."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from harness import tiny_models
from harness.scenarios import DRAWS, LAW, SEEDED

pytestmark = pytest.mark.runs("tiny sampled")


def test_a_seed_repeats_whatever_the_company(runs):
    """From the second token on: the first is drawn by SGLang's own sampler."""
    together, mixed = runs["tiny sampled"]["seeded"], runs["tiny sampled"]["in company"][-SEEDED:]
    for number in range(SEEDED):
        (alone,) = runs["tiny sampled"][f"alone {number}"]
        assert together[number].tokens == alone.tokens
        assert mixed[number].tokens == alone.tokens


def test_seeds_differ(runs):
    answers = [runs["tiny sampled"][f"alone {number}"][0] for number in range(SEEDED)]
    assert len({tuple(answer.tokens) for answer in answers}) == SEEDED


def test_the_second_token_follows_the_targets_law(runs, tmp_path):
    """Total variation to the exact law, within what so many draws leave to chance."""
    folder = tiny_models.write_target(tmp_path / "target")
    exact = second_token_law(folder, tiny_models.prompts(1)[0], **LAW)
    drawn = Counter(answer.tokens[1] for answer in runs["tiny sampled"]["law"])
    assert sum(drawn.values()) == DRAWS
    assert set(drawn) <= set(exact)
    distance = sum(abs(drawn[token] / DRAWS - p) for token, p in exact.items()) / 2
    expected = sum(math.sqrt(p * (1 - p) / (2 * math.pi * DRAWS)) for p in exact.values())
    # One draw moves the distance by 1 / DRAWS at most: beyond this by chance once in a million.
    assert distance < expected + math.sqrt(math.log(1e6) / (2 * DRAWS))


def second_token_law(folder, prompt, temperature, top_k):
    """token -> probability of the second token, by transformers, over all first tokens."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder).float()

    def law(rows):
        logits = model(torch.tensor(rows)).logits[:, -1] / temperature
        kept = logits.topk(top_k)
        return kept.indices.tolist(), kept.values.softmax(-1).tolist()

    with torch.inference_mode():
        (first,), (chance,) = law([prompt])
        second, given = law([[*prompt, token] for token in first])
    exact: Counter[int] = Counter()
    for weight, tokens, chances in zip(chance, second, given, strict=True):
        for token, p in zip(tokens, chances, strict=True):
            exact[token] += weight * p
    return exact

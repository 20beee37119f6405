"""Prompt lookup and grafting beside the embedded model, on a text to be copied."""

from __future__ import annotations

from typing import Any

import pytest

from adaptivespec import Engine
from adaptivespec.draft.graft import GraftDrafter
from adaptivespec.draft.ngram import NgramDrafter
from adaptivespec.draft.small_lm import SmallLMDrafter

pytestmark = pytest.mark.network

PROMPT = 'Repeat this JSON exactly:\n{"name": "Ada", "born": 1815, "tags": ["maths", "notes"]}'
OPTIONS: dict[str, Any] = {"policy": "chain:5", "max_tokens": 40}


def test_a_copy_takes_fewer_steps(model_cache: str | None) -> None:
    engine = Engine.from_pretrained(cache_dir=model_cache)
    head, vocab = engine.drafter, engine.target.limits.vocab_size
    assert head is not None
    plain = engine.generate(PROMPT, policy="none", max_tokens=40)
    by_head = engine.generate(PROMPT, **OPTIONS)
    steps = by_head.statistics["num_spec_steps"]
    for drafter in (NgramDrafter(vocab), GraftDrafter(head, NgramDrafter(vocab))):
        engine.drafter = drafter
        result = engine.generate(PROMPT, **OPTIONS)
        assert result.token_ids == plain.token_ids
        assert result.statistics["num_spec_steps"] < steps


def test_a_model_drafts_for_itself(model_cache: str | None) -> None:
    engine = Engine.from_pretrained(cache_dir=model_cache)
    plain = engine.generate(PROMPT, policy="none", max_tokens=24)
    engine.drafter = SmallLMDrafter(engine.target, engine.target.limits.vocab_size)
    result = engine.generate(PROMPT, **OPTIONS | {"max_tokens": 24})
    assert result.token_ids == plain.token_ids
    statistics = result.statistics
    assert statistics["num_accepted_draft_tokens"] >= 0.9 * statistics["num_draft_tokens"]

"""Stock SGLang on this harness: its own EAGLE-3 yields what it yields without speculation."""

from __future__ import annotations

import pytest

from harness import models
from harness.compare import assert_same
from harness.scenarios import TOKENS

pytestmark = pytest.mark.network


@pytest.mark.runs("plain")
def test_plain_decoding_answers_every_request(runs):
    answers = runs["plain"]["questions"]
    assert len(answers) == len(models.prompts())
    for answer in answers:
        assert len(answer.tokens) == TOKENS or answer.finish == "stop"
        assert "spec_verify_ct" not in answer.meta
        # The reported log probabilities are those of greedy decoding.
        assert answer.logprobs == [best[0] for best, _ in answer.top_logprobs]


@pytest.mark.runs("plain", "stock tree")
def test_trees_of_eagle3_equal_plain_decoding(runs):
    assert_same(runs["stock tree"]["questions"], runs["plain"]["questions"])


@pytest.mark.runs("plain", "stock chain")
def test_chains_of_eagle3_equal_plain_decoding(runs):
    assert_same(runs["stock chain"]["questions"], runs["plain"]["questions"])


@pytest.mark.runs("stock tree", "stock chain")
def test_the_shipped_head_loads_and_drafts_well(runs):
    for name, least in (("stock tree", 2.2), ("stock chain", 1.8)):
        answers = runs[name]["questions"]
        rounds = sum(answer.rounds for answer in answers)
        accepted = sum(answer.accepted for answer in answers)
        assert (accepted + rounds) / rounds > least


@pytest.mark.runs("plain", "stock tree", "stock chain")
def test_the_cache_is_free_when_the_engine_is_idle(runs):
    assert all(runs[name].flushed for name in ("plain", "stock tree", "stock chain"))

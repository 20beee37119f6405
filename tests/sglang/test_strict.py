"""With a strict rule the plugin changes nothing but the shape of trees."""

from __future__ import annotations

import math

import pytest

from harness.compare import assert_same, difference, shortened
from harness.scenarios import CHAIN, TREE


@pytest.mark.network
@pytest.mark.parametrize("shape", ["tree", "chain"])
@pytest.mark.runs("tree", "chain", "stock tree", "stock chain", "plain")
class TestOneTripleOnTheRealModel:
    def test_equals_plain_decoding(self, runs, shape):
        assert_same(runs[shape]["questions"], runs["plain"]["questions"])

    def test_equals_stock_eagle3_round_by_round(self, runs, shape):
        ours, stock = runs[shape]["questions"], runs[f"stock {shape}"]["questions"]
        assert_same(ours, stock)
        assert [a.accepted_histogram for a in ours] == [a.accepted_histogram for a in stock]

    def test_every_round_drafts_it(self, runs, shape):
        assert runs[shape].triples == {TREE if shape == "tree" else CHAIN}

    def test_is_reported_lossless(self, runs, shape):
        for answer in runs[shape]["questions"]:
            assert answer.own["lossless"] is True
            assert answer.own["num_promoted_tokens"] == 0
            assert answer.own["promotions"] == []


@pytest.mark.runs("tiny tree", "tiny plain")
class TestTheTinyModel:
    def test_equals_plain_decoding(self, runs):
        assert_same(runs["tiny tree"]["prompts"], runs["tiny plain"]["prompts"])

    def test_log_probabilities_are_the_targets(self, runs):
        pairs = zip(runs["tiny tree"]["prompts"], runs["tiny plain"]["prompts"], strict=True)
        for ours, plain in pairs:
            for one, other in zip(ours.logprobs, plain.logprobs, strict=True):
                assert math.isclose(one, other, abs_tol=1e-3)

    def test_max_new_tokens_is_exact_within_a_run(self, runs):
        answers = runs["tiny tree"]["lengths"]
        assert [len(answer.tokens) for answer in answers] == list(range(1, 10))
        assert_same(answers, runs["tiny plain"]["lengths"])

    def test_a_stop_token_cuts_the_run_that_holds_it(self, runs):
        """Of its first tokens each in turn ends the text; the last rounds end at any depth."""
        answers = runs["tiny tree"]["stops"]
        assert_same(answers, runs["tiny plain"]["stops"])
        assert {answer.finish for answer in answers} == {"stop"}

    @pytest.mark.parametrize(
        ("number", "what"),
        [*enumerate(("frequency", "presence", "repetition", "min_new_tokens"))],
    )
    def test_penalties_are_those_of_plain_decoding(self, runs, number, what):
        """Stock EAGLE3 penalises all nodes of a tree alike."""
        ours, plain = runs["tiny tree"]["penalties"], runs["tiny plain"]["penalties"]
        assert_same(ours[number::4], plain[number::4])
        free = runs["tiny plain"]["prompts"][0]
        assert difference(plain[number].tokens, shortened(free, len(plain[number].tokens)))

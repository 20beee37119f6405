"""`rule_config`: the rule of a certificate where it holds, strict where it does not."""

from __future__ import annotations

import pytest

from adaptivespec.policy import make_policy
from harness.compare import assert_promotions_are_what_the_logprobs_show, assert_same
from harness.scenarios import CHAIN, CHAIN_POLICY


@pytest.mark.runs("tiny certified", "tiny plain")
class TestItHolds:
    def test_its_rule_and_its_policy_serve(self, runs):
        assert runs["tiny certified"].triples == {CHAIN}
        answers = runs["tiny certified"]["prompts"]
        assert sum(answer.own["num_promoted_tokens"] for answer in answers) > 0
        for answer in answers:
            assert answer.own["rule"] == "margin:kappa=0.05"
            assert_promotions_are_what_the_logprobs_show(answer, 0.05)

    def test_another_temperature_is_strict(self, runs):
        for answer in runs["tiny certified"]["sampled"]:
            assert (answer.own["lossless"], answer.own["num_promoted_tokens"]) == (True, 0)

    def test_a_request_may_bring_its_own(self, runs):
        for answer in runs["tiny certified"]["own"]:
            assert answer.own["rule"] == "margin:kappa=0.5"

    def test_the_log_says_how_it_was_compared(self, runs):
        log = runs["tiny certified"].log
        assert "model compared by digest" in log
        assert "head compared by digest" in log
        assert "does not hold" not in log


@pytest.mark.runs("tiny uncertified", "tiny plain")
class TestItDoesNotHold:
    def test_strict_serves(self, runs):
        answers = runs["tiny uncertified"]["prompts"]
        assert all(answer.own["lossless"] for answer in answers)
        assert_same(answers, runs["tiny plain"]["prompts"])

    def test_the_log_names_the_difference_and_the_remedy(self, runs):
        log = runs["tiny uncertified"].log
        certified = make_policy(CHAIN_POLICY).label
        assert f"policy is dcs, the certificate's {certified}" in log
        assert "adaptivespec calibrate" in log

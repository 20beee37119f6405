"""The margin rule: longer runs, every promotion reported, and each within its kappa."""

from __future__ import annotations

import pytest

from harness.compare import assert_promotions_are_what_the_logprobs_show
from harness.scenarios import KAPPAS

KAPPA = 0.2


def accept_length(answers):
    """Tokens a round commits, over all answers."""
    rounds = sum(answer.rounds for answer in answers)
    return (sum(answer.accepted for answer in answers) + rounds) / rounds


def positions(answer):
    """Where the promoted tokens are."""
    return [entry["position"] for entry in answer.own["promotions"]]


@pytest.mark.network
@pytest.mark.parametrize("shape", ["tree", "chain"])
@pytest.mark.runs("tree", "chain")
class TestTheRealModel:
    def test_runs_are_longer_than_with_the_strict_rule(self, runs, shape):
        strict, margin = runs[shape]["questions"], runs[shape]["margin"]
        assert accept_length(margin) > accept_length(strict) + 0.2

    def test_promotions_are_reported_and_within_kappa(self, runs, shape):
        answers = runs[shape]["margin"]
        assert sum(answer.own["num_promoted_tokens"] for answer in answers) > 4
        for answer in answers:
            assert_promotions_are_what_the_logprobs_show(answer, KAPPA)

    def test_is_reported_lossy(self, runs, shape):
        assert not any(answer.own["lossless"] for answer in runs[shape]["margin"])


@pytest.mark.runs("tiny tree")
class TestEachRequestItsOwnKappa:
    def test_together_as_alone(self, runs):
        for kappa, together in zip(KAPPAS, runs["tiny tree"]["kappas"], strict=True):
            (alone,) = runs["tiny tree"][f"kappa {kappa}"]
            assert together.tokens == alone.tokens
            assert positions(together) == positions(alone)
            assert together.accepted_histogram == alone.accepted_histogram

    def test_promotions_are_within_it(self, runs):
        for kappa, answer in zip(KAPPAS, runs["tiny tree"]["kappas"], strict=True):
            assert answer.own["lossless"] is (kappa == 1)
            assert (answer.own["num_promoted_tokens"] > 0) is (kappa < 1)
            assert_promotions_are_what_the_logprobs_show(answer, kappa)

    def test_a_grammar_is_obeyed(self, runs):
        """At a kappa that promotes nearly anything that is legal."""
        import regex

        from harness.stress import REGEX

        answers = runs["tiny tree"]["grammar"]
        assert sum(answer.own["num_promoted_tokens"] for answer in answers) > 0
        for answer in answers:
            assert regex.fullmatch(REGEX, answer.text, partial=answer.finish == "length")

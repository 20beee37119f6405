"""Another triple from round to round, while requests come and go."""

from __future__ import annotations

import pytest

from harness.compare import (
    assert_promotions_are_what_the_logprobs_show,
    assert_same,
    shortened,
)
from harness.scenarios import TOKENS


@pytest.mark.network
@pytest.mark.runs("dcs", "plain")
class TestDcsOnTheRealModel:
    def test_several_triples_are_used(self, runs):
        assert len(runs["dcs"].triples) >= 3

    def test_outputs_are_those_of_plain_decoding(self, runs):
        first, second, aborted, third, fourth = runs["dcs"]["joining"]
        plain = runs["plain"]["questions"]
        half = shortened(plain[2], TOKENS // 2)
        assert_same([first, second, third, fourth], [plain[0], plain[1], half, plain[3]])
        assert_same([aborted], [shortened(plain[3], len(aborted.tokens))])

    def test_an_aborted_request_ends_and_the_others_go_on(self, runs):
        answers = runs["dcs"]["joining"]
        assert [answer.finish == "abort" for answer in answers] == [
            False,
            False,
            True,
            False,
            False,
        ]
        assert 12 <= len(answers[2].tokens) < TOKENS

    def test_the_trace_names_the_requests_of_every_round(self, runs):
        trace = runs["dcs"].trace
        assert [line["round"] for line in trace] == list(range(len(trace)))
        sizes = [len(line["requests"]) for line in trace]
        assert min(sizes) == 1
        assert max(sizes) > 2
        assert all(len(line["accepted"]) == len(line["requests"]) for line in trace)
        assert any("aborted" in line["requests"] for line in trace)
        assert "aborted" not in trace[-1]["requests"]

    def test_the_cache_is_free_in_the_end(self, runs):
        assert runs["dcs"].flushed


@pytest.mark.slow
@pytest.mark.runs("tiny overlapped", "tiny plain")
class TestOverlapScheduling:
    def test_the_host_ran_ahead(self, runs):
        assert runs["tiny overlapped"].info[0]["disable_overlap_schedule"] is False

    def test_several_triples_are_used(self, runs):
        assert len(runs["tiny overlapped"].triples) >= 3

    @pytest.mark.parametrize("job", ["prompts", "penalties"])
    def test_outputs_are_those_of_plain_decoding(self, runs, job):
        assert_same(runs["tiny overlapped"][job], runs["tiny plain"][job])

    def test_promotions_are_reported_at_their_positions(self, runs):
        answers = runs["tiny overlapped"]["margin"]
        assert sum(answer.own["num_promoted_tokens"] for answer in answers) > 4
        for answer in answers:
            assert_promotions_are_what_the_logprobs_show(answer, 0.2)


@pytest.mark.slow
@pytest.mark.runs("tiny paged", "tiny plain")
class TestPagesAndChunks:
    def test_pages_and_chunks_are_in_force(self, runs):
        info = runs["tiny paged"].info[0]
        assert (info["page_size"], info["chunked_prefill_size"]) == (16, 16)

    def test_several_chains_are_used(self, runs):
        assert len(runs["tiny paged"].triples) >= 2
        assert {topk for _, topk, _ in runs["tiny paged"].triples} == {1}

    @pytest.mark.parametrize("job", ["prompts", "penalties"])
    def test_outputs_are_those_of_plain_decoding(self, runs, job):
        assert_same(runs["tiny paged"][job], runs["tiny plain"][job])

    def test_promotions_happen(self, runs):
        answers = runs["tiny paged"]["margin"]
        assert sum(answer.own["num_promoted_tokens"] for answer in answers) > 0

    def test_the_cache_is_free_in_the_end(self, runs):
        assert runs["tiny paged"].flushed


@pytest.mark.slow
@pytest.mark.runs("tiny parallel", "tiny plain", "tiny tree")
class TestTwoRanks:
    def test_both_ranks_choose_the_same_triples(self, runs):
        """Else a collective would have met another of a different shape, which raises."""
        assert runs["tiny parallel"].info[0]["tp_size"] == 2
        assert len(runs["tiny parallel"].triples) >= 3

    def test_outputs_are_those_of_plain_decoding(self, runs):
        assert_same(runs["tiny parallel"]["prompts"], runs["tiny plain"]["prompts"])

    def test_promotions_happen(self, runs):
        answers = runs["tiny parallel"]["margin"]
        assert sum(answer.own["num_promoted_tokens"] for answer in answers) > 0


@pytest.mark.runs("tiny attached", "tiny tree")
def test_in_eagle3s_place_the_plugin_answers_as_under_its_own_name(runs):
    attached, named = runs["tiny attached"]["prompts"], runs["tiny tree"]["prompts"]
    assert [answer.tokens for answer in attached] == [answer.tokens for answer in named]
    assert [answer.own for answer in attached] == [answer.own for answer in named]
    assert runs["tiny attached"].info[0]["speculative_algorithm"] == "EAGLE3"

"""Two hundred mixed requests through a small queue and a small cache."""

from __future__ import annotations

import math

import pytest

from harness import stress, tiny_models
from harness.compare import (
    assert_promotions_are_what_the_logprobs_show,
    assert_same,
    shortened,
)

pytestmark = [pytest.mark.slow, pytest.mark.runs("tiny stress", "tiny plain")]


@pytest.fixture(scope="module")
def answered(runs):
    """(number, its request's sampling parameters, its answer) of all."""
    asked = [request["sampling_params"] for request in stress.requests()]
    return list(zip(range(stress.COUNT), asked, runs["tiny stress"]["stress"], strict=True))


def test_each_ends_once_with_its_number_of_tokens(answered):
    for number, sampling, answer in answered:
        assert answer.error is None
        most = sampling["max_new_tokens"]
        assert answer.meta["completion_tokens"] == len(answer.tokens)
        if answer.finish == "length":
            assert len(answer.tokens) == most
        elif answer.finish == "stop":
            assert len(answer.tokens) <= most
        else:
            assert stress.aborted(number)


def test_strict_greedy_ones_equal_plain_decoding(runs, answered):
    references = iter(runs["tiny plain"]["stress"])
    for number, _, answer in answered:
        if stress.sort_of(number) in stress.STRICT:
            reference = next(references)
            if answer.finish == "abort":
                reference = shortened(reference, len(answer.tokens))
            assert_same([answer], [reference])


def test_the_queue_retractions_and_the_prefix_cache_were_used(runs, answered):
    metas = [answer.meta for *_, answer in answered]
    assert sum(meta.get("num_retractions", 0) for meta in metas) >= 5
    assert "KV cache pool is full. Retract requests" in runs["tiny stress"].log
    assert sum(meta.get("cached_tokens", 0) > 0 for meta in metas) >= 20
    assert max(len(line["requests"]) for line in runs["tiny stress"].trace) == 4
    assert len(runs["tiny stress"].triples) >= 3


def test_some_were_aborted(answered):
    assert sum(answer.finish == "abort" for *_, answer in answered) >= 3


def test_a_stop_id_is_the_last_token_and_stands_nowhere_else(answered):
    for _, sampling, answer in answered:
        ends = {tiny_models.EOS, *sampling.get("stop_token_ids", ())}
        assert not ends & set(answer.tokens[:-1])


def test_a_stop_string_ends_the_text(answered):
    matched = 0
    for _, sampling, answer in answered:
        assert not any(stop in answer.text for stop in sampling.get("stop", ()))
        matched += answer.meta["finish_reason"].get("matched") in sampling.get("stop", ())
    assert matched >= 3


def test_a_grammar_is_obeyed(answered):
    import regex

    for _, sampling, answer in answered:
        if "regex" in sampling:
            whole = answer.finish == "stop"
            assert regex.fullmatch(sampling["regex"], answer.text, partial=not whole)


def test_every_token_has_its_log_probability(answered):
    for *_, answer in answered:
        assert len(answer.logprobs) == len(answer.tokens)
        assert all(p <= 1e-4 and math.isfinite(p) for p in answer.logprobs)


def test_each_request_is_accounted_for(answered):
    for number, sampling, answer in answered:
        own = answer.meta.get("adaptivespec")
        if own is None:  # one token: no round was needed; or thrown back, and aborted in the queue
            assert len(answer.tokens) <= 1 or answer.finish == "abort"
            continue
        rule = (sampling.get("custom_params") or {}).get("adaptivespec")
        assert own["lossless"] is (rule is None), number
        assert own["num_promoted_tokens"] == len(own["promotions"])
        assert all(rule["kappa"] < entry["margin"] <= 1 for entry in own["promotions"])
        rounds, accepted = own["num_spec_steps"], own["num_accepted_draft_tokens"]
        # A token of each prefill, then each round's accepted drafts and its bonus, unless cut.
        prefills = 1 + answer.meta["num_retractions"]
        assert len(answer.tokens) - prefills - rounds <= accepted <= len(answer.tokens) - prefills


def test_greedy_promotions_are_reported_at_their_positions(answered):
    promoted = 0
    for number, sampling, answer in answered:
        if stress.sort_of(number) == "margin" and "adaptivespec" in answer.meta:
            chosen = sampling["custom_params"]["adaptivespec"]["kappa"]
            assert_promotions_are_what_the_logprobs_show(answer, chosen)
            promoted += answer.own["num_promoted_tokens"]
    assert promoted > 10


def test_the_engine_is_alive_and_its_cache_free(runs):
    assert runs["tiny stress"].flushed
    assert "memory leak" not in runs["tiny stress"].log

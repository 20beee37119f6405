"""The toy server passes; with any one fault it fails the case that is there to find it."""

from __future__ import annotations

import pytest

from adaptivespec.conform import Verdict, selected

#: Fault -> the case that has to find it.
FAULTS = {
    "overshoots": "ending.max-tokens",
    "new_bound_ignored": "ending.max-completion-tokens",
    "zero_is_one": "ending.max-tokens-zero",
    "text_after_eos": "ending.eos",
    "eos_mark": "ending.eos",
    "eos_counted_twice": "ending.eos-counted-once",
    "ignore_eos_ignored": "ending.ignore-eos",
    "min_tokens_ignored": "ending.min-tokens",
    "stale_cache": "ending.next-turn",
    "stops_token_by_token": "ending.stop-across-tokens",
    "stops_cut_at_tokens": "ending.stop-inside-token",
    "first_stop_only": "ending.stop-list",
    "stops_ascii_only": "ending.stop-multibyte",
    "stops_search_prompt": "ending.stop-in-prompt",
    "tokens_past_stop": "ending.stop-tokens",
    "stop_shown": "text.stop-held-back",
    "stream_loses_piece": "text.stream-equals-whole",
    "splits_characters": "text.utf8",
    "no_role": "text.role-first",
    "no_done": "text.stream-ends-once",
    "finish_twice": "text.stream-ends-once",
    "text_after_finish": "text.stream-ends-once",
    "no_id": "text.schema",
    "completion_stream_cut": "text.completions-stream",
    "stream_error": "text.openai-client",
    "total_wrong": "accounting.sums",
    "chunks_for_tokens": "accounting.stream-usage",
    "no_stream_usage": "accounting.stream-usage",
    "thinks_too_much": "accounting.sub-counts",
    "cached_not_counted": "accounting.prompt-tokens",
    "logprobs_missing_entry": "accounting.logprobs-count",
    "logprobs_ignored": "accounting.logprobs-count",
    "logprobs_of_neighbours": "accounting.logprobs-text",
    "stream_logprobs_repeat": "accounting.logprobs-stream",
    "top_logprobs_unsorted": "accounting.top-logprobs",
    "scores_for_logprobs": "accounting.top-logprobs",
    "rate_above_one": "accounting.speculation",
    "histogram_off": "accounting.speculation",
    "greedy_drifts": "sampling.greedy-repeats",
    "batch_disturbs": "sampling.greedy-concurrent",
    "seeds_ignored": "sampling.seeds-repeat",
    "one_seed": "sampling.seeds-differ",
    "seeds_shared": "sampling.seeds-concurrent",
    "temperature_ignored": "sampling.temperature",
    "n_ignored": "sampling.n",
    "n_stream_ignored": "sampling.n-stream",
    "top_k_ignored": "sampling.top-k",
    "top_p_ignored": "sampling.top-p",
    "min_p_ignored": "sampling.min-p",
    "frequency_ignored": "sampling.frequency-penalty",
    "penalties_count_drafts": "sampling.frequency-penalty",
    "presence_ignored": "sampling.presence-penalty",
    "bias_ignored": "sampling.logit-bias",
    "bias_first_token_only": "sampling.logit-bias",
    "no_bans": "sampling.logit-bias-bans",
    "wrong_rows": "speculation.own-prefix",
    "lossy_in_silence": "speculation.argmax",
    "lossless_in_whole_only": "speculation.says-lossless",
    "bad_json_500": "errors.bad-json",
    "types_500": "errors.wrong-types",
    "values_clamped": "errors.bad-values",
    "nameless_400": "errors.names-parameter",
    "no_error_body": "errors.body",
    "any_key": "errors.key",
    "any_model": "errors.unknown-model",
    "truncates": "errors.long-prompt",
    "unknown_500": "errors.unknown-parameter",
    "tools_ignored": "errors.tools",
    "format_ignored": "errors.response-format",
    "runs_on": "lifecycle.disconnect",
    "disconnects_leak": "lifecycle.disconnects",
    "runs_on_whole": "lifecycle.disconnect-whole",
    "prompts_padded": "lifecycle.prompt-list",
    "rows_mixed": "lifecycle.mixed",
    "waits_for_readers": "lifecycle.slow-reader",
    "half_blocks": "lifecycle.half-request",
    "unhealthy": "lifecycle.health",
    "any_size": "limits.body",
    "deep_500": "limits.deep-json",
    "four_stops": "limits.many-stops",
    "huge_n": "limits.huge-n",
}
SHORT_S = 1.0  # for servers that do not answer; those that do need no time
HONEST = {"errors.unknown-parameter", "errors.tools", "errors.response-format"}


def test_the_healthy_server_passes_or_refuses_by_name(outcomes):
    found = outcomes()
    verdicts = {name: outcome.verdict for name, outcome in found.items()}
    refused = {name for name, verdict in verdicts.items() if verdict is Verdict.refused}
    others = {name: found[name].detail for name in verdicts.keys() - refused
              if verdicts[name] is not Verdict.passed}  # fmt: skip
    assert others == {}
    assert refused == HONEST


@pytest.mark.parametrize(("fault", "case"), FAULTS.items(), ids=FAULTS)
def test_a_fault_is_found_by_the_case_that_is_meant_for_it(fault, case, outcomes):
    outcome = outcomes(fault, only=(case,), timeout=SHORT_S)[case]
    assert outcome.verdict is Verdict.failed, outcome.detail
    assert outcome.required
    assert outcome.came


def test_every_case_has_a_fault_that_it_finds():
    assert {case.id for case in selected()} == set(FAULTS.values())


def test_a_fault_of_one_kind_does_not_fail_the_cases_of_others(outcomes):
    """Usage that is wrong, errors without a body: the cases about text pass all the same."""
    found = outcomes("total_wrong", "no_error_body", "unhealthy", "top_k_ignored")
    failed = {name for name, outcome in found.items() if outcome.verdict is Verdict.failed}
    assert failed >= {"accounting.sums", "errors.body", "lifecycle.health", "sampling.top-k"}
    assert not {name for name in failed if name.startswith(("text.", "ending.", "limits."))}

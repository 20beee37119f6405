"""What Prometheus is told: names as vLLM's, numbers as the answers say themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from adaptivespec.core.verdict import Kind
from adaptivespec.engine import GenerationResult
from adaptivespec.serve.metrics import Watch
from fakes.serving import MODEL, Served, counting, serving


@pytest.fixture
def server():
    with serving(counting()) as served:
        yield served


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def complete(client: openai.OpenAI, **options: Any) -> Any:
    given = {"model": MODEL, "prompt": "a", "temperature": 0, "max_tokens": 20, **options}
    answer = client.completions.create(**given)
    if options.get("stream"):
        return list(answer)[-1]
    return answer


def families(served: Served) -> dict[str, Any]:
    text = served.app.state.metrics.text().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


COUNTERS = [
    "spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos", "request_success", "prompt_tokens",
    "generation_tokens", "promoted_tokens", "regret_nats", "prefix_cache_queries",
    "prefix_cache_hits",
]  # fmt: skip
HISTOGRAMS = [
    "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
    "spec_accept_length",
]  # fmt: skip
GAUGES = ["num_requests_running", "num_requests_waiting", "kv_tokens", "lossless", "info"]


def test_all_metrics_are_there_from_the_start(server):
    found = families(server)
    for kind, names in (("counter", COUNTERS), ("histogram", HISTOGRAMS), ("gauge", GAUGES)):
        for name in names:
            family = found[f"adaptivespec_{name}"]
            assert family.type == kind
            assert family.documentation.endswith("."), name
            assert family.samples, name


@pytest.mark.parametrize("stream", [False, True])
def test_counters_grow_by_what_the_answers_say(server, client, stream):
    options: dict[str, Any] = {}
    if stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
    lossy = {"rule": "margin", "kappa": 0.0}
    answers = [
        complete(client, extra_body=lossy, **options),
        complete(client, n=3, **options),
    ]
    figures = [answer.metrics["speculative_decoding"] for answer in answers]

    def total(name: str) -> float:
        return sum(figure[name] for figure in figures)

    metric = server.metric
    assert metric("spec_decode_num_drafts_total") == total("num_drafts")
    assert metric("spec_decode_num_draft_tokens_total") == total("num_draft_tokens")
    assert metric("spec_decode_num_accepted_tokens_total") == total("num_accepted_draft_tokens")
    assert metric("promoted_tokens_total") == total("num_promoted_tokens") > 0
    assert metric("regret_nats_total") == pytest.approx(total("regret_nats"))
    assert metric("generation_tokens_total") == sum(a.usage.completion_tokens for a in answers)
    assert metric("prompt_tokens_total") == 4
    for position in range(2):
        at = metric("spec_decode_num_accepted_tokens_per_pos_total", position=str(position))
        assert at == sum(sum(f["accepted_per_pos"][position : position + 1]) for f in figures)
    assert metric("spec_accept_length_count") == total("num_spec_steps")
    assert metric("spec_accept_length_sum") == total("num_committed_tokens")
    assert metric("request_success_total", finished_reason="length") == 4
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        assert metric(f"{name}_count") == 4


def test_latency_between_tokens_is_that_of_a_step_shared_by_its_tokens(server, client):
    complete(client)
    # One observation for each token after the first, which is the prompt's.
    assert server.metric("inter_token_latency_seconds_count") == 19
    whole = server.metric("e2e_request_latency_seconds_sum")
    first = server.metric("time_to_first_token_seconds_sum")
    assert server.metric("inter_token_latency_seconds_sum") <= whole - first + 1e-6


def test_tokens_that_nobody_took_are_counted_too(server):
    """A client that left: its last steps were made, and their chunks are never read."""
    result = GenerationResult("strict", "chain", True, prompt_tokens=3)
    ticket: Any = SimpleNamespace(job=SimpleNamespace(result=result), cached_tokens=0)
    watch = Watch(server.app.state.metrics, ticket, arrived=0.0)
    result.completion_tokens = 3
    result.stats.count([Kind.EXACT, Kind.PROMOTED, Kind.BONUS], num_verified=4, regret=0.5)
    watch.end()
    watch.end()
    assert server.metric("generation_tokens_total") == 3
    assert server.metric("spec_decode_num_accepted_tokens_total") == 2
    assert server.metric("spec_decode_num_accepted_tokens_per_pos_total", position="1") == 1
    assert server.metric("regret_nats_total") == 0.5
    assert server.metric("request_success_total", finished_reason="cancelled") == 1


def test_how_answers_end_is_counted(server, client):
    complete(client, stop="d")
    complete(client, max_tokens=3)
    assert server.metric("request_success_total", finished_reason="stop") == 1
    assert server.metric("request_success_total", finished_reason="length") == 1
    assert server.metric("request_success_total", finished_reason="cancelled") == 0


def test_the_cache_is_counted(server, client):
    prompt = "abcdefghij" * 3
    for _ in range(2):
        answer = complete(client, prompt=prompt)
    assert server.metric("prefix_cache_queries_total") == 60
    hits = server.metric("prefix_cache_hits_total")
    assert hits == answer.usage.prompt_tokens_details.cached_tokens
    assert 20 <= hits < 30
    assert server.metric("kv_tokens") >= 30


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temperature": -1}, "invalid_value"),
        ({"extra_body": {"x": 1}}, "unknown_parameter"),
        ({"model": "other"}, "model_not_found"),
        ({"max_tokens": 1000}, "context_length_exceeded"),
        ({"extra_body": {"guided_json": {}}}, "unsupported_parameter"),
    ],
)
def test_refusals_are_counted_by_reason(server, client, options, reason):
    with pytest.raises(openai.APIStatusError):
        complete(client, **options)
    assert server.metric("requests_rejected_total", reason=reason) == 1


def test_what_clients_send_never_becomes_a_label(server, client):
    def sizes() -> dict[str, int]:
        found = families(server).items()
        return {name: len(family.samples) for name, family in found if "rejected" not in name}

    before = sizes()
    for number in range(5):
        complete(client, prompt="a", user=f"user-{number}",
                 extra_body={"kappa": number / 10, "rule": "margin"})  # fmt: skip
        with pytest.raises(openai.APIStatusError):
            complete(client, extra_body={f"x{number}": 1})
    assert sizes() == before
    text = server.app.state.metrics.text().decode()
    assert "user-" not in text
    assert 'reason="unknown_parameter"} 5.0' in text


def test_defaults_are_told(server):
    info = families(server)["adaptivespec_info"].samples[0]
    assert info.labels.keys() == {"version", "model_name", "rule", "policy"}
    assert (info.labels["rule"], info.value) == ("strict", 1)
    assert server.metric("lossless") == 1


def test_two_servers_count_apart(server, client):
    complete(client)
    with serving(counting()) as other:
        assert other.metric("generation_tokens_total") == 0
        assert server.metric("generation_tokens_total") == 20

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from adaptivespec.integrations.sglang.metrics import Metrics, host_metrics
from adaptivespec.integrations.sglang.statistics import RequestStatistics

prometheus_client = pytest.importorskip("prometheus_client")


@pytest.fixture
def registry():
    return prometheus_client.CollectorRegistry()


def metrics(registry, lossless=False, labels=None):
    labels = {"model_name": "m"} if labels is None else labels
    rule = "strict" if lossless else "margin:kappa=0.2"
    return Metrics(labels, rule=rule, policy="dcs", lossless=lossless, registry=registry)


def value(registry, name, **labels):
    return registry.get_sample_value(f"adaptivespec_{name}", {"model_name": "m", **labels})


def grow(made, stats, tokens):
    """Report the summaries at each number of output tokens."""
    before, sent = {}, 0
    for num_tokens in tokens:
        after = stats.summary(num_tokens, promotions=False)
        made.advance(before, after, num_tokens - sent)
        before, sent = after, num_tokens


def request(regret=(0.5, -1.0, 0.25), lossless=False):
    stats = RequestStatistics(rule="r", policy="p", lossless=lossless)
    stats.add_round(1, 3, regret, (5, 4, 16))
    stats.add_round(5, 1, regret, (3, 1, 4))
    return stats


def test_counters_add_up_the_growth_of_all_requests(registry):
    made = metrics(registry)
    grow(made, request(), [1, 5, 7])
    grow(made, request(), [4])  # cut behind the third draft
    made.count_round((5, 4, 16))
    assert value(registry, "generation_tokens_total") == 11
    assert value(registry, "promoted_tokens_total") == 3 + 2
    assert value(registry, "regret_nats_total") == pytest.approx(1.25 + 0.75)
    assert value(registry, "accepted_draft_tokens_total") == 4 + 3
    assert value(registry, "draft_tokens_total") == 15 + 3 + 15
    assert value(registry, "verify_rounds_total") == 3


def test_nothing_is_counted_twice(registry):
    made = metrics(registry)
    grow(made, request(), [7])
    for _ in range(2):
        made.count_round((5, 4, 16))
        made.count_request(False)
    assert value(registry, "generation_tokens_total") == 7
    assert value(registry, "promoted_tokens_total") == 3


def test_batch_rounds_are_counted_by_triple(registry):
    made = metrics(registry)
    for triple in [(5, 4, 16), (3, 1, 4), (5, 4, 16)]:
        made.count_round(triple)
    shape = {"num_steps": "5", "topk": "4", "num_draft_tokens": "16"}
    assert value(registry, "rounds_total", **shape) == 2
    shape = {"num_steps": "3", "topk": "1", "num_draft_tokens": "4"}
    assert value(registry, "rounds_total", **shape) == 1


def test_requests_are_counted_by_losslessness_and_bring_the_sums_up_to_date(registry):
    made = metrics(registry)
    grow(made, request(regret=(), lossless=True), [7])
    made.count_request(True)
    made.count_request(False)
    made.count_request(True)
    assert value(registry, "requests_total", lossless="true") == 2
    assert value(registry, "requests_total", lossless="false") == 1
    assert value(registry, "accepted_draft_tokens_total") == 4


@pytest.mark.parametrize("lossless", [True, False])
def test_the_default_rule_is_shown(registry, lossless):
    metrics(registry, lossless)
    rule = "strict" if lossless else "margin:kappa=0.2"
    assert value(registry, "lossless") == int(lossless)
    assert value(registry, "info", rule=rule, policy="dcs") == 1


def test_counters_are_shown_before_the_first_request(registry):
    metrics(registry)
    assert value(registry, "promoted_tokens_total") == 0
    assert value(registry, "generation_tokens_total") == 0


def test_a_second_object_in_a_process_writes_to_the_same_metrics(registry):
    for made in (metrics(registry), metrics(registry)):
        grow(made, request(), [7])
        made.count_request(False)
    assert value(registry, "generation_tokens_total") == 14


WRITER = """
from adaptivespec.integrations.sglang.metrics import Metrics
made = Metrics({"model_name": "m"}, rule="r", policy="p", lossless=False)
made.count_round((5, 4, 16))
"""
READER = """
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def test_processes_add_up_where_the_server_reads(tmp_path):
    """As SGLang does it: the variable is set, schedulers write, the server's process reads."""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    for code in (WRITER, WRITER, READER):
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
        )
    lines = done.stdout.splitlines()
    labels = 'model_name="m",num_draft_tokens="16",num_steps="5",topk="4"'
    assert f"adaptivespec_rounds_total{{{labels}}} 2.0" in lines
    assert 'adaptivespec_lossless{model_name="m"} 0.0' in lines
    assert 'adaptivespec_info{model_name="m",policy="p",rule="r"} 1.0' in lines


@pytest.fixture
def host(monkeypatch):
    """The parts of SGLang's runtime context that name its metrics."""
    parts = {
        "get_observability": SimpleNamespace(enable_metrics=True, extra_metric_labels=None),
        "get_parallel": SimpleNamespace(attn_tp_rank=0, attn_cp_rank=0),
        "get_serving": SimpleNamespace(served_model_name="m"),
    }
    context = ModuleType("sglang.srt.runtime_context")
    for name, part in parts.items():
        setattr(context, name, lambda part=part: part)
    for name in ("sglang", "sglang.srt"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, context.__name__, context)
    return SimpleNamespace(**parts)


def of_host():
    return host_metrics(rule="strict", policy="dcs", lossless=True)


def test_there_are_none_when_the_hosts_metrics_are_off(host):
    host.get_observability.enable_metrics = False
    assert of_host() is None


@pytest.mark.parametrize("rank", ["attn_tp_rank", "attn_cp_rank"])
def test_only_the_first_rank_counts(host, rank):
    setattr(host.get_parallel, rank, 1)
    assert of_host() is None


def test_labels_are_the_hosts(host):
    host.get_observability.extra_metric_labels = {"cluster": "west"}
    assert of_host() is not None
    labels = {"model_name": "m", "cluster": "west"}
    sample = prometheus_client.REGISTRY.get_sample_value("adaptivespec_lossless", labels)
    assert sample == 1

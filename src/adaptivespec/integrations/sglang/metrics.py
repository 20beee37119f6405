"""Counters on SGLang's own /metrics, written by the scheduler process.

SGLang runs prometheus_client in multiprocess mode: each process writes under
PROMETHEUS_MULTIPROC_DIR, and the server adds the files up. The client chooses that mode when it is
first imported, and SGLang sets the variable after plugins are loaded, so it is imported late.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# Figure of a request's summary -> the counter that adds up its growth, and what that counts.
_SUMMED = {
    "num_promoted_tokens": (
        "promoted_tokens",
        "Committed drafts that were not the target's choice.",
    ),
    "regret_nats": ("regret_nats", "Sum of -ln(p / max p) over promoted tokens."),
    "num_accepted_draft_tokens": ("accepted_draft_tokens", "Committed drafts, exact and promoted."),
    "num_draft_tokens": ("draft_tokens", "Drafted nodes verified, roots not counted."),
    "num_spec_steps": ("verify_rounds", "Verify rounds of single requests."),
}


class Metrics:
    """The counters of one scheduler process, under one set of labels.

    Only committed tokens count. Sums are kept in Python and written once per batch round and at
    the end of a request: a write costs more than the sum, and a batch has many requests.

    Args:
        labels: on every metric, such as model_name.
        rule, policy: labels of the server's defaults.
        lossless: whether the server's default rule guarantees the target's own output.
        registry: None for prometheus_client's own. In one registry the metrics are created once,
            however many objects write to them.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        *,
        rule: str,
        policy: str,
        lossless: bool,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._labels = dict(labels)
        self._families = _families(tuple(labels), registry)
        # Labelled here, so that they are shown from the start, at 0.
        self._tokens = self._families.tokens.labels(**labels)
        self._summed = {
            figure: counter.labels(**labels) for figure, counter in self._families.summed.items()
        }
        self._unwritten_tokens = 0
        self._unwritten = dict.fromkeys(self._summed, 0.0)
        self._families.lossless.labels(**labels).set(lossless)
        self._families.info.labels(**labels, rule=rule, policy=policy).set(1)

    def advance(self, before: Mapping[str, Any], after: Mapping[str, Any], num_tokens: int) -> None:
        """Count what a request's summary grew by.

        Args:
            before, after: summaries of ``RequestStatistics``; ``before`` is empty the first time.
            num_tokens: output tokens sent from one to the other.
        """
        for figure in self._unwritten:
            self._unwritten[figure] += after[figure] - before.get(figure, 0)
        self._unwritten_tokens += num_tokens

    def count_round(self, triple: tuple[int, int, int]) -> None:
        """Count one verify round of a batch that drafted (num_steps, topk, num_draft_tokens)."""
        num_steps, topk, num_draft_tokens = map(str, triple)
        self._families.rounds.labels(
            **self._labels, num_steps=num_steps, topk=topk, num_draft_tokens=num_draft_tokens
        ).inc()
        self._write()

    def count_request(self, lossless: bool) -> None:
        """Count one finished request."""
        self._families.requests.labels(**self._labels, lossless=str(lossless).lower()).inc()
        self._write()

    def _write(self) -> None:
        for figure, amount in self._unwritten.items():
            if amount:
                self._summed[figure].inc(amount)
                self._unwritten[figure] = 0.0
        self._tokens.inc(self._unwritten_tokens)
        self._unwritten_tokens = 0


def host_metrics(*, rule: str, policy: str, lossless: bool) -> Metrics | None:
    """The metrics of this scheduler process, under the labels of SGLang's own.

    None when SGLang's metrics are off, and on every rank of a replica but the first: all ranks see
    the same requests. Data-parallel replicas add up.
    """
    from sglang.srt.runtime_context import get_observability, get_parallel, get_serving

    options, rank = get_observability(), get_parallel()
    if not options.enable_metrics or rank.attn_tp_rank or rank.attn_cp_rank:
        return None
    labels = {"model_name": get_serving().served_model_name, **(options.extra_metric_labels or {})}
    return Metrics(labels, rule=rule, policy=policy, lossless=lossless)


class _Families:
    """The metrics without values for their labels."""

    def __init__(self, labels: tuple[str, ...], registry: CollectorRegistry | None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge

        registry = registry or REGISTRY

        def counter(name: str, text: str, *own: str) -> Counter:
            return Counter(f"adaptivespec_{name}_total", text, (*labels, *own), registry=registry)

        def gauge(name: str, text: str, *own: str) -> Gauge:
            # As all of SGLang's: every process holds the same value, and the newest is shown.
            return Gauge(
                f"adaptivespec_{name}",
                text,
                (*labels, *own),
                registry=registry,
                multiprocess_mode="mostrecent",
            )

        self.summed = {figure: counter(*named) for figure, named in _SUMMED.items()}
        self.tokens = counter("generation_tokens", "Output tokens.")
        self.rounds = counter(
            "rounds",
            "Verify rounds of whole batches, by the triple they drafted.",
            "num_steps",
            "topk",
            "num_draft_tokens",
        )
        self.requests = counter(
            "requests",
            "Finished requests, by whether their rule guarantees the target's own output.",
            "lossless",
        )
        self.lossless = gauge(
            "lossless",
            "1 if the server's default rule guarantees the target's own output, else 0.",
        )
        self.info = gauge(
            "info", "Always 1; labels name the server's default rule and policy.", "rule", "policy"
        )


_families = cache(_Families)  # prometheus_client refuses to create a metric twice

"""Prometheus metrics of one server: vLLM's under our prefix, and what speculation adds.

A registry for each app. Counters grow while a request is answered, by what its result gained, so
that they are exact for requests that were cancelled too.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from adaptivespec import __version__

if TYPE_CHECKING:
    from adaptivespec.engine.jobs import Job
    from adaptivespec.engine.result import Chunk
    from adaptivespec.serve.service import Service, Ticket

__all__ = ["CONTENT_TYPE", "Metrics", "Watch"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
#: Positions of a draft that are counted apart; deeper ones are not counted by position.
_POSITIONS = 16
#: Figure of Statistics -> counter, whether vLLM has it, and what it counts.
_SUMS = {
    "num_drafts": ("spec_decode_num_drafts", True, "Steps with drafts."),
    "num_draft_tokens": ("spec_decode_num_draft_tokens", True, "Drafted nodes verified."),
    "num_accepted_draft_tokens": (
        "spec_decode_num_accepted_tokens",
        True,
        "Drafts committed, exact and promoted.",
    ),
    "num_promoted_tokens": (
        "promoted_tokens",
        False,
        "Drafts committed in place of the target's own choice.",
    ),
    "regret_nats": ("regret_nats", False, "Sum of -ln(p / max p) over promoted tokens."),
}


class Metrics:
    """The metrics of one app.

    Args:
        service: for the gauges.
        model: the label model_name, on what vLLM has under this label.
        rule, policy, lossless: of the server's defaults.
    """

    def __init__(
        self, service: Service, model: str, *, rule: str, policy: str, lossless: bool
    ) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._sums = {
            figure: self._counter(name, text, of_model)
            for figure, (name, of_model, text) in _SUMS.items()
        }
        name = "spec_decode_num_accepted_tokens_per_pos"
        positions = Counter(
            f"adaptivespec_{name}",
            f"Drafts committed, by their depth, 0 the first; of the first {_POSITIONS}.",
            ("model_name", "position"),
            registry=self.registry,
        )
        self._positions = [positions.labels(model, str(i)) for i in range(_POSITIONS)]
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens, of every answer.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens of answers.")
        self.cache_queries = self._counter(
            "prefix_cache_queries", "Prompt tokens that were looked for in the cache."
        )
        self.cache_hits = self._counter("prefix_cache_hits", "Prompt tokens found in the cache.")
        self._finished = Counter(
            "adaptivespec_request_success",
            "Answers by how they ended; cancelled: the client left, or the server ended.",
            ("model_name", "finished_reason"),
            registry=self.registry,
        )
        for reason in ("stop", "length", "cancelled"):
            self._finished.labels(model, reason)
        self._rejected = Counter(
            "adaptivespec_requests_rejected",
            "Requests answered with an error, by its kind.",
            ("reason",),
            registry=self.registry,
        )
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From request to first token.", _FIRST_TOKEN
        )
        self.between = self._histogram(
            "inter_token_latency_seconds",
            "Time since the last step over the tokens of this one, once for each of them.",
            _BETWEEN,
        )
        self.whole = self._histogram(
            "e2e_request_latency_seconds", "From request to the end of an answer.", _WHOLE
        )
        self.accept_length = Histogram(
            "adaptivespec_spec_accept_length",
            "Tokens committed by a step.",
            buckets=_LENGTHS,
            registry=self.registry,
        )
        self._gauge("num_requests_running", "Sequences that are answered now.", service, "running")
        self._gauge("num_requests_waiting", "Sequences in the queue.", service, "waiting")
        self._gauge(
            "kv_tokens", "Tokens held in the caches of all slots.", service, "kv_tokens", False
        )
        self._gauge(
            "engine_steps", "Decode passes so far, which sequences share.", service, "steps", False
        )
        Gauge(
            "adaptivespec_lossless",
            "1 if the server's default rule guarantees the target's own output, else 0.",
            registry=self.registry,
        ).set(lossless)
        Gauge(
            "adaptivespec_info",
            "Always 1; labels name version and defaults.",
            ("version", "model_name", "rule", "policy"),
            registry=self.registry,
        ).labels(__version__, model, rule, policy).set(1)

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return bytes(generate_latest(self.registry))

    def rejected(self, reason: str) -> None:
        """Count a request that was answered with an error; `reason` is one of a few."""
        self._rejected.labels(reason).inc()

    def finished(self, reason: str) -> None:
        """Count an answer."""
        self._finished.labels(self._model, reason).inc()

    def gained(self, figure: str, amount: float) -> None:
        """Add to the counter of a figure of Statistics."""
        self._sums[figure].inc(amount)

    def accepted_at(self, position: int, amount: float) -> None:
        """Add to the drafts accepted at a depth, 0 the first."""
        if position < _POSITIONS:
            self._positions[position].inc(amount)

    def _counter(self, name: str, text: str, of_model: bool = True) -> Any:
        labels = ("model_name",) if of_model else ()
        counter = Counter(f"adaptivespec_{name}", text, labels, registry=self.registry)
        return counter.labels(self._model) if of_model else counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Any:
        made = Histogram(
            f"adaptivespec_{name}", text, ("model_name",), buckets=buckets, registry=self.registry
        )
        return made.labels(self._model)

    def _gauge(
        self, name: str, text: str, service: Service, attribute: str, of_model: bool = True
    ) -> None:
        labels = ("model_name",) if of_model else ()
        gauge = Gauge(f"adaptivespec_{name}", text, labels, registry=self.registry)
        shown = gauge.labels(self._model) if of_model else gauge
        shown.set_function(lambda: getattr(service, attribute))


class Watch:
    """Measures one answer: call `chunk` with each piece of it and `end` once."""

    def __init__(self, metrics: Metrics, ticket: Ticket, arrived: float) -> None:
        self._metrics, self._ticket = metrics, ticket
        self._arrived, self._last = arrived, 0.0
        self._known: dict[str, float] = dict.fromkeys(_SUMS, 0)
        self._tokens = 0
        self._at: list[int] = []
        self._ended = False
        metrics.prompt_tokens.inc(ticket.job.result.prompt_tokens)

    def chunk(self, chunk: Chunk) -> None:
        """A piece arrived."""
        metrics, now = self._metrics, perf_counter()
        if not self._last:
            metrics.first_token.observe(now - self._arrived)
            metrics.cache_queries.inc(self._job.result.prompt_tokens)
            metrics.cache_hits.inc(self._ticket.cached_tokens)
        elif chunk.tokens:
            each = (now - self._last) / len(chunk.tokens)
            for _ in chunk.tokens:
                metrics.between.observe(each)
        self._last = now
        if chunk.step is not None:
            metrics.accept_length.observe(chunk.step.committed)
        self._count()

    def end(self) -> None:
        """The answer is over, whatever ended it; further calls do nothing."""
        if self._ended:
            return
        self._ended = True
        self._count()
        self._metrics.finished(self._job.result.finish_reason)
        self._metrics.whole.observe(perf_counter() - self._arrived)

    @property
    def _job(self) -> Job:
        return self._ticket.job

    def _count(self) -> None:
        """Add what the result gained since the last time."""
        result, metrics = self._job.result, self._metrics
        tokens = result.completion_tokens
        if tokens > self._tokens:
            metrics.generation_tokens.inc(tokens - self._tokens)
            self._tokens = tokens
        for figure, known in self._known.items():
            value = getattr(result.stats, figure)
            if value > known:
                metrics.gained(figure, value - known)
                self._known[figure] = value
        at = list(result.stats.accepted_per_pos)
        self._at += [0] * (len(at) - len(self._at))
        for position, value in enumerate(at):
            if value > self._at[position]:
                metrics.accepted_at(position, value - self._at[position])
        self._at = at

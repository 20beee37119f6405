"""SGLang's EAGLE worker with a triple chosen for every round, and the margin rule in its verify.

A round: read the drafter's confidence, let the policy choose a triple, switch to its state, and let
SGLang draft, verify and extend as ever. The verifier rewrites the target's tokens in between. What
came of the round reaches the host with SGLang's own results, one round later under overlap.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sglang.srt.runtime_context import get_parallel, get_schedule, get_spec
from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2

from adaptivespec.integrations.sglang.algorithm import read_config, served_config, server_policy
from adaptivespec.integrations.sglang.config import margin_options
from adaptivespec.integrations.sglang.metrics import host_metrics
from adaptivespec.integrations.sglang.policies import Triple
from adaptivespec.integrations.sglang.reporting import send_statistics
from adaptivespec.integrations.sglang.requests import Requests, Vocabulary
from adaptivespec.integrations.sglang.signals import Confidence
from adaptivespec.integrations.sglang.states import (
    apply_state,
    build_states,
    current_triple,
    topk_override,
)
from adaptivespec.integrations.sglang.trace import Trace
from adaptivespec.integrations.sglang.transfer import HostCopy
from adaptivespec.integrations.sglang.verify import Verifier
from adaptivespec.verify.margin import MarginRule

_SWEEP_EVERY = 64  # rounds between two looks for requests that are over


@dataclass(frozen=True)
class _Round:
    """A round under way: its results are not on the host yet."""

    requests: list[Any]
    triple: Triple
    confidence: Sequence[float] | None
    record: HostCopy | None


class AdaptiveDraftWorker(EagleDraftWorker):  # type: ignore[misc]
    """The drafter. It hands on ``carried_topk`` candidates, of which a round takes its own topk."""

    # With topk 1 SGLang reports the probability of a draft as 1.0, so at least two are carried.
    carried_topk = 2
    topk: int

    def draft(self, batch: Any, **kwargs: Any) -> Any:
        """As SGLang's, on the first topk of the candidates carried."""
        info = batch.spec_info
        info.topk_p = info.topk_p[:, : self.topk].contiguous()
        info.topk_index = info.topk_index[:, : self.topk].contiguous()
        return super().draft(batch, **kwargs)

    def _draft_extend_for_prefill(self, *args: Any, **kwargs: Any) -> Any:
        with self._carrying():
            return super()._draft_extend_for_prefill(*args, **kwargs)

    def _draft_extend_for_decode(self, *args: Any, **kwargs: Any) -> Any:
        with self._carrying():
            return super()._draft_extend_for_decode(*args, **kwargs)

    @contextlib.contextmanager
    def _carrying(self) -> Iterator[None]:
        topk, self.topk = self.topk, self.carried_topk
        try:
            yield
        finally:
            self.topk = topk


class AdaptiveSpecWorker(EAGLEWorkerV2):  # type: ignore[misc]
    """The worker of ADAPTIVESPEC; SGLang's scheduler drives it as it drives EAGLE3's."""

    # Set while a state is built: the topk that it is for.
    capture_topk: int | None = None

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
        with _drafter_class(AdaptiveDraftWorker):
            super().__init__(server_args, *args, **kwargs)
        self.draft_worker.carried_topk = max(2, self.topk)
        parallel, spec = get_parallel(), get_spec()
        served = served_config(read_config(spec), server_args)
        self.config = served.config
        self._group = parallel.tp_group
        self._policy = server_policy(self.config, spec)
        mode = self.config.signal
        if mode == "auto":
            mode = "exact" if get_schedule().disable_overlap_schedule else "lag1"
        self._confidence = Confidence(mode, self._group)
        model = self.target_worker.model_runner.model_config
        vocabulary = Vocabulary(
            self.target_worker.tokenizer,
            sorted(model.hf_eos_token_id or ()),
            model.vocab_size,
            self.device,
        )
        self._requests = Requests(self.config, vocabulary, self._policy.label, served.temperature)
        rule = MarginRule(margin_options(self.config))
        self._metrics = host_metrics(
            rule=rule.label, policy=self._policy.label, lossless=rule.lossless
        )
        self._reporting = parallel.tp_rank == 0
        self._trace = Trace(self.config.trace if self._reporting else None)
        # Wall time differs between ranks, and ranks must decide alike.
        self._timing = self._group.world_size == 1
        self._rounds: deque[_Round] = deque()
        self._live: dict[str, Any] = {}
        self._round = 0
        self._last_result: float | None = None

    def init_cuda_graphs(self) -> None:
        """SGLang's own graphs, then those of every triple."""
        super().init_cuda_graphs()
        model = self.target_worker.model_runner.model_config
        self._verifier = Verifier(
            self._requests,
            self._group,
            num_slots=self.req_to_token_pool.req_to_token.shape[0],
            max_depth=self.speculative_num_steps,
            max_tokens=model.context_len,
            vocab_size=model.vocab_size,
            device=self.device,
        )
        self._states = build_states(
            self, self._policy.triples, self.config.max_batch, self.config.large_batch
        )

    @contextlib.contextmanager
    def _override_worker_state(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        with super()._override_worker_state(*args, **kwargs):
            topk = self.topk if self.capture_topk is None else self.capture_topk
            with topk_override(self, topk):
                yield

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """One prefill or one decode round of a batch."""
        requests = list(batch.reqs)
        names = [request.rid for request in requests]
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self._admit(requests)
            result = super().forward_batch_generation(batch, *args, **kwargs)
            if (drafted := result.next_draft_input) is not None:
                self._confidence.store(names, drafted.topk_p)
            return result
        confidence = self._choose(batch, requests, names)
        result = super().forward_batch_generation(batch, *args, **kwargs)
        self._confidence.store(names, result.next_draft_input.topk_p)
        record = self._verifier.take_record()
        self._rounds.append(_Round(requests, current_triple(self), confidence, record))
        return result

    def verify(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """SGLang's verify with the margin rule within."""
        with self._verifier.verifying():
            return super().verify(batch, *args, **kwargs)

    def on_verify_complete_cpu(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> None:
        """The oldest round under way has its results on the host."""
        if not self._rounds:
            return
        round_ = self._rounds.popleft()
        accepted = num_correct_drafts_per_req
        if len(accepted) != len(round_.requests):
            raise RuntimeError(
                f"SGLang reports {len(accepted)} requests for a round of {len(round_.requests)}"
            )
        names = [request.rid for request in round_.requests]
        self._policy.observe(names, round_.triple, accepted, round_.confidence, self._seconds())
        self._count(round_, accepted)
        self._trace.write(self._round, names, round_.triple, round_.confidence, accepted)
        self._round += 1
        if self._round % _SWEEP_EVERY == 0:
            self._sweep()

    def _admit(self, requests: Sequence[Any]) -> None:
        """Requests are about to be prefilled, for the first time or again."""
        self._last_result = None  # what follows is not the time of a decode round
        new = self._requests.prefilled(requests)
        self._policy.forget([request.rid for request in new])  # an id may be used again
        for request in new:
            self._live[request.rid] = request
            if self._reporting:
                send_statistics(request, self._requests.state(request).statistics, self._metrics)

    def _choose(
        self, batch: Any, requests: Sequence[Any], names: Sequence[str]
    ) -> Sequence[float] | None:
        """Switch to the triple of the coming round; what it was chosen by."""
        self._verifier.prepare(batch, requests)
        confidence = None
        if self._policy.needs_confidence:
            confidence = self._confidence.read(names, batch.spec_info.topk_p)
        triple = self._policy.choose(names, confidence)
        if triple != current_triple(self):
            apply_state(self, self._states[triple])
        return confidence

    def _count(self, round_: _Round, accepted: Sequence[int]) -> None:
        """Enter a round in the statistics of its requests that still go on."""
        regret = None if round_.record is None else round_.record.read()
        for index, request in enumerate(round_.requests):
            if not (request.is_retracted or request.finished()):
                self._requests.state(request).statistics.add_round(
                    len(request.output_ids),
                    accepted[index],
                    () if regret is None else regret[index],
                    round_.triple,
                )
        if self._metrics is not None:
            self._metrics.count_round(round_.triple)

    def _seconds(self) -> float | None:
        """Wall time since the last decode round's results, None after a prefill."""
        if not self._timing:
            return None
        last, self._last_result = self._last_result, time.perf_counter()
        return None if last is None else self._last_result - last

    def _sweep(self) -> None:
        over = [name for name, request in self._live.items() if request.finished()]
        for name in over:
            del self._live[name]
        self._policy.forget(over)


@contextlib.contextmanager
def _drafter_class(cls: type[Any]) -> Iterator[None]:
    """Within: ``EAGLEWorkerV2`` makes its drafter of this class, which it names in its module."""
    original, eagle_worker_v2.EagleDraftWorker = eagle_worker_v2.EagleDraftWorker, cls
    try:
        yield
    finally:
        eagle_worker_v2.EagleDraftWorker = original

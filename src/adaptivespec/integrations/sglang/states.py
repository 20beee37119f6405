"""One complete set of backends and graphs for every triple, built at start, switched in a moment.

SGLang's own adaptive mode (chains only) has the parts: ``build_adaptive_runtime_state`` and
``SpecRuntimeState``. What is added here is topk, and sharing: graphs of target verify and of
draft-extend are the same for all trees of equal depth and size, whatever their topk (chains have
their own), while those of drafting depend on the whole triple.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sglang.srt.runtime_context import get_context, get_exec
from sglang.srt.utils.common import get_available_gpu_memory

from adaptivespec.integrations.sglang.policies import Triple

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TripleState:
    """What a triple runs with.

    Attributes:
        triple: (num_steps, topk, num_draft_tokens).
        host: SGLang's ``SpecRuntimeState``.
        seconds, gigabytes: what building it took; memory of the device, 0 on a CPU.
    """

    triple: Triple
    host: Any
    seconds: float = 0.0
    gigabytes: float = 0.0


def current_triple(worker: Any) -> Triple:
    """The triple that the worker is set to."""
    return worker.speculative_num_steps, worker.topk, worker.speculative_num_draft_tokens


def build_states(
    worker: Any, triples: Sequence[Triple], max_batch: int, large_batch: Triple
) -> dict[Triple, TripleState]:
    """A state for each triple, the worker's present one included; logs what each took.

    Args:
        worker: AdaptiveSpecWorker after its own graphs were captured.
        triples: what the policy may choose.
        max_batch: graphs are captured for batches up to this size, which are all that draft them.
        large_batch: the triple of larger batches, captured for every size.
    """
    from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState

    draft, target = worker.draft_worker, worker.target_worker.model_runner
    base = current_triple(worker)
    host = SpecRuntimeState(
        speculative_num_steps=base[0],
        speculative_num_draft_tokens=base[2],
        draft_attn_backend=draft.draft_attn_backend,
        cuda_graph_runner=draft.cuda_graph_runner,
        target_attn_backend=target.attn_backend,
        target_graph_runner=target.decode_cuda_graph_runner,
        draft_extend_attn_backend=draft.draft_extend_attn_backend,
        cuda_graph_runner_for_draft_extend=draft.cuda_graph_runner_for_draft_extend,
    )
    states = {base: TripleState(base, host)}
    shared: dict[tuple[int, int, bool, bool], Any] = {}
    sizes = _graph_sizes(max_batch)
    for triple in triples:
        if triple in states:
            continue
        before, start = _free_gigabytes(worker), time.perf_counter()
        steps, topk, tokens = triple
        key = steps, tokens, topk == 1, triple == large_batch
        host = _build(worker, triple, None if triple == large_batch else sizes, shared.get(key))
        shared.setdefault(key, host)
        states[triple] = TripleState(
            triple, host, time.perf_counter() - start, before - _free_gigabytes(worker)
        )
    _log(states, base)
    return states


def apply_state(worker: Any, state: TripleState) -> None:
    """Switch the worker, its drafter and the target to a state. No device work, no log line.

    SGLang's published arguments stay at the largest triple, by which KV slots are reserved.
    """
    steps, topk, tokens = state.triple
    draft, target, host = worker.draft_worker, worker.target_worker.model_runner, state.host
    for owner in (worker, draft):
        owner.speculative_num_steps = steps
        owner.topk = topk
        owner.speculative_num_draft_tokens = tokens
    draft.draft_attn_backend = host.draft_attn_backend
    draft.draft_runner.draft_attn_backend = host.draft_attn_backend
    draft.cuda_graph_runner = host.cuda_graph_runner
    draft.draft_extend_attn_backend = host.draft_extend_attn_backend
    if host.draft_extend_attn_backend is not None:
        draft.draft_runner.attn_backend = host.draft_extend_attn_backend
    draft.cuda_graph_runner_for_draft_extend = host.cuda_graph_runner_for_draft_extend
    draft._rebuild_topk1_chain_buffers()
    target.attn_backend = host.target_attn_backend
    target.decode_cuda_graph_runner = host.target_graph_runner


@contextlib.contextmanager
def topk_override(worker: Any, topk: int) -> Iterator[None]:
    """Within: worker, drafter and SGLang's arguments have this topk. Backends read the latter."""
    draft, base = worker.draft_worker, worker.topk

    def set_to(value: int, source: str) -> None:
        worker.topk = draft.topk = value
        get_context().override(source, speculative_eagle_topk=value)

    set_to(topk, "adaptivespec.capture")
    draft._rebuild_topk1_chain_buffers()
    try:
        yield
    finally:
        set_to(base, "adaptivespec.restore")


def _build(worker: Any, triple: Triple, sizes: list[int] | None, like: Any | None) -> Any:
    """A host state; verify and draft-extend are those of ``like`` where they are the same."""
    steps, topk, tokens = triple
    worker.capture_topk = topk
    try:
        if like is None:
            return worker.build_adaptive_runtime_state(steps, tokens, cuda_graph_bs=sizes)
        draft = worker.draft_worker
        with worker._override_worker_state(steps, tokens, cuda_graph_bs=sizes):
            draft.init_attention_backend()
            draft.draft_extend_attn_backend = None  # so that only drafting is captured
            draft._capture_cuda_graphs()
            return replace(
                like,
                draft_attn_backend=draft.draft_attn_backend,
                cuda_graph_runner=draft.cuda_graph_runner,
            )
    finally:
        worker.capture_topk = None


def _graph_sizes(max_batch: int) -> list[int] | None:
    """Batch sizes to capture graphs for; None where graphs are off."""
    from sglang.srt.model_executor.cuda_graph_config import (
        Backend,
        Phase,
        check_cuda_graph_backend,
    )

    if check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
        return None
    captured: list[int] = list(get_exec().graph.cuda_graph_bs_decode or [])
    fitting = [size for size in captured if size <= max_batch]
    # A batch of max_batch needs a graph of at least its size.
    larger = [size for size in captured if size > max_batch]
    return fitting + larger[:1] if max_batch not in fitting else fitting


def _free_gigabytes(worker: Any) -> float:
    if worker.device == "cpu":
        return 0.0
    free: float = get_available_gpu_memory(worker.device, worker.gpu_id)
    return free


def _log(states: dict[Triple, TripleState], base: Triple) -> None:
    logger.info("AdaptiveSpec states (num_steps, topk, num_draft_tokens):")
    for triple, state in states.items():
        if triple == base:
            logger.info("  %-12s SGLang's own, the largest", triple)
        else:
            logger.info("  %-12s %6.2f s  %6.2f GB", triple, state.seconds, state.gigabytes)
    built = [state for triple, state in states.items() if triple != base]
    logger.info(
        "  %d states, %.2f s and %.2f GB beyond SGLang's own",
        len(states),
        sum(state.seconds for state in built),
        sum(state.gigabytes for state in built),
    )

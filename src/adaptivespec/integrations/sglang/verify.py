"""The margin rule within SGLang's verify step.

SGLang's ``eagle_sample`` turns logits into one target token a node and hands them to a walk that
follows the drafts they agree with. Both are functions of a module, wrapped here: before sampling,
penalties are applied along each node's path, and before the walk the target's tokens are replaced
by the rule's. KV slots, log-probabilities, grammars and stop conditions then follow as ever.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from sglang.srt.speculative import eagle_utils, eagle_worker_common
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.integrations.sglang.margin import Decision, Ledgers, decide
from adaptivespec.integrations.sglang.penalties import PenaltyCounts, apply
from adaptivespec.integrations.sglang.requests import BatchRows, Requests
from adaptivespec.integrations.sglang.sampling import law_of
from adaptivespec.integrations.sglang.transfer import HostCopy
from adaptivespec.integrations.sglang.trees import tree_of


@dataclass(frozen=True, eq=False)
class _Step:
    """A verify step under way.

    Attributes:
        logits: [B * N, V], SGLang's own tensor, which it goes on to mask and bias.
        tree: [B, N].
        position: i64[B], the output position that each root's row decides.
    """

    logits: Tensor
    tree: DraftTree
    position: Tensor


class Verifier:
    """Decides what SGLang's walk follows.

    Args:
        requests: of this scheduler.
        group: the tensor-parallel group; every rank follows rank 0's decision.
        num_slots: rows of the request pool.
        max_depth: most levels of a tree.
        max_tokens: most tokens of a request.
        vocab_size: V.
        device: where the logits are.
    """

    def __init__(
        self,
        requests: Requests,
        group: Any,
        *,
        num_slots: int,
        max_depth: int,
        max_tokens: int,
        vocab_size: int,
        device: str,
    ) -> None:
        self._requests = requests
        self._group = group if group.world_size > 1 else None
        self._ledgers = Ledgers(num_slots, max_depth, max_tokens, device)
        self._counts = PenaltyCounts(num_slots, vocab_size, device)
        self._rows: BatchRows | None = None
        self._slots: Tensor | None = None
        self._step: _Step | None = None
        self._record: HostCopy | None = None
        _install()

    def prepare(self, batch: Any, requests: Sequence[Any]) -> None:
        """A batch is about to draft: its parameters on the device, new requests in their slots."""
        self._rows = self._requests.rows(requests)
        self._slots = batch.req_pool_indices
        states = [self._requests.state(request) for request in requests]
        fresh = [index for index, state in enumerate(states) if state.prefilled is not None]
        if not fresh:
            return
        slots = batch.req_pool_indices_cpu[fresh].tolist()
        ledgers = []
        for index, slot in zip(fresh, slots, strict=True):
            state = states[index]
            prefilled, state.prefilled = state.prefilled or [], None
            self._counts.admit(slot, state.penalties, prefilled)
            ledgers.append(self._requests.ledger(requests[index], prefilled))
        self._ledgers.admit(slots, ledgers, [states[index].options for index in fresh])

    @contextlib.contextmanager
    def verifying(self) -> Iterator[None]:
        """Within: SGLang's functions go by this verifier."""
        global _current
        self._record = None
        _current = self
        try:
            yield
        finally:
            _current, self._step = None, None

    def take_record(self) -> HostCopy | None:
        """What the last round promoted: f32[B, D] as ``Decision.regret``; None = nothing."""
        record, self._record = self._record, None
        return record

    def sample(
        self, original: Callable[..., Any], verify_input: Any, batch: Any, output: Any, **rest: Any
    ) -> Any:
        """Around ``eagle_sample``, which in turn calls the walk."""
        rows, slots = self._of_batch()
        tokens = verify_input.retrieve_next_token.shape
        tree = tree_of(
            verify_input.draft_token.view(tokens),
            verify_input.retrieve_next_token,
            verify_input.retrieve_next_sibling,
            verify_input.positions,
            batch.seq_lens,
            verify_input.topk,
            verify_input.spec_steps,
        )
        position = batch.seq_lens - rows.prompt_lens + 1
        logits = output.next_token_logits
        apply(logits, tree, rows.penalties, self._counts, slots, position)
        self._step = _Step(logits, tree, position)
        # The greedy branch is the one that walks a token per node; SGLang's own penalties are off.
        info = batch.sampling_info
        batch.sampling_info = copy.copy(info)
        batch.sampling_info.is_all_greedy = True
        batch.sampling_info.acc_additive_penalties = None
        batch.sampling_info.acc_scaling_penalties = None
        try:
            return original(verify_input, batch, output, **rest)
        finally:
            batch.sampling_info = info

    def walk(self, original: Callable[..., Any], **arrays: Any) -> Any:
        """Around ``verify_tree_greedy_func``: the rule's tokens in place of the target's."""
        rows, slots = self._of_batch()
        decision = self._decide(arrays["target_predict"])
        if decision is not None:
            tokens = decision.tokens.contiguous()
            if self._group is not None:
                self._group.broadcast(tokens, src=0)
            arrays["target_predict"] = tokens
            if not rows.margin.lossless:
                self._record = HostCopy.of(decision.regret)
        result = original(**arrays)
        if rows.penalties.any:
            followed = result[1].long()
            drafted = arrays["candidates"].flatten()[followed.clamp_min(0)]
            self._counts.record(slots, drafted.masked_fill(followed < 0, -1))
        return result

    def _decide(self, argmax: Tensor) -> Decision | None:
        """None where the ``argmax`` i64[B, N], which SGLang has at hand, is it."""
        (rows, slots), step = self._of_batch(), self._step
        if step is None:
            raise RuntimeError("SGLang walked a tree that it did not sample")
        if rows.margin.lossless and not rows.sampling.any_sampled:
            return None
        logits = step.logits.view(*step.tree.token.shape, -1)
        law = law_of(logits, step.tree, rows.sampling, step.position, argmax)
        seed = rows.sampling.seed
        return decide(law, step.tree, rows.margin, self._ledgers, slots, step.position, seed)

    def _of_batch(self) -> tuple[BatchRows, Tensor]:
        if self._rows is None or self._slots is None:
            raise RuntimeError("SGLang verified a batch that it did not draft")
        return self._rows, self._slots


_current: Verifier | None = None
_installed = False


def _install() -> None:
    """Wrap SGLang's two functions, once in a process; without a verifier they are SGLang's own."""
    global _installed
    if _installed:
        return
    _installed = True
    sample, walk = eagle_utils.eagle_sample, eagle_utils.verify_tree_greedy_func

    @wraps(sample)
    def sampling(verify_input: Any, batch: Any, logits_output: Any, *args: Any, **kw: Any) -> Any:
        if _current is None or batch.forward_mode.is_idle():
            return sample(verify_input, batch, logits_output, *args, **kw)
        if args:  # SGLang passes the grammar mask by position
            kw["grammar_mask"], *more = args
            if more:
                raise RuntimeError(f"eagle_sample got {len(args) + 3} positional arguments")
        return _current.sample(sample, verify_input, batch, logits_output, **kw)

    @wraps(walk)
    def walking(**arrays: Any) -> Any:
        return walk(**arrays) if _current is None else _current.walk(walk, **arrays)

    # run_eagle_verify calls the one, eagle_sample the other, by the name in its own module.
    eagle_worker_common.eagle_sample = sampling
    eagle_utils.verify_tree_greedy_func = walking

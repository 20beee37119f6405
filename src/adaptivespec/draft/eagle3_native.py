"""The EAGLE-3 head in the native engine: a step's whole tree is grown in one call.

Rules that draw their drafts or read the drafter's features have them level by level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof, c_double, c_int32
from dataclasses import dataclass, field

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.base import Drafter, first_pending
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint, Eagle3Config
from adaptivespec.draft.growth import Growth
from adaptivespec.draft.offers import offers
from adaptivespec.native.drafting import (
    Grown,
    HeadConfig,
    HeadMatrix,
    HeadNorm,
    NativeDraft,
    NativeHead,
    Plan,
)
from adaptivespec.native.library import Mode, NativeModel
from adaptivespec.native.weights import raw_tensor
from adaptivespec.nn.rope import Rope
from adaptivespec.policy.acceptance import EDGES, first_bins
from adaptivespec.policy.base import TreePlan

_MATRICES = {
    "fc": HeadMatrix.FUSE,
    f"{LAYER}.self_attn.q_proj": HeadMatrix.QUERY,
    f"{LAYER}.self_attn.k_proj": HeadMatrix.KEY,
    f"{LAYER}.self_attn.v_proj": HeadMatrix.VALUE,
    f"{LAYER}.self_attn.o_proj": HeadMatrix.ATTENTION_OUTPUT,
    f"{LAYER}.mlp.gate_proj": HeadMatrix.GATE,
    f"{LAYER}.mlp.up_proj": HeadMatrix.UP,
    f"{LAYER}.mlp.down_proj": HeadMatrix.DOWN,
    "lm_head": HeadMatrix.OUTPUT,
    "embed_tokens": HeadMatrix.EMBEDDING,
}
_NORMS = {
    f"{LAYER}.input_layernorm": HeadNorm.EMBEDDING,
    f"{LAYER}.hidden_norm": HeadNorm.FEATURE,
    f"{LAYER}.post_attention_layernorm": HeadNorm.FFN,
    "norm": HeadNorm.OUTPUT,
}


@dataclass
class NativeDraftState:
    """One sequence: the head's memory, what it has yet to read, and the root."""

    memory: NativeDraft
    tokens: list[int] = field(default_factory=list)  # pending, one per pending tap row
    taps: list[Tensor] = field(default_factory=list)  # pending f32[K, taps * H]
    root: int = -1
    confidence: float = 0.0  # of the last read; void while something is pending


def serves(config: Eagle3Config) -> bool:
    """Whether the native engine runs a head of these sizes, with these norms."""
    width = config.num_heads * config.head_dim
    return (
        not config.flags()
        and not config.tie_word_embeddings
        and config.head_dim % 16 == 0
        and config.head_dim <= 256
        and not any(n % 32 for n in (config.hidden_size, config.intermediate_size, width))
    )


class NativeEagle3Drafter(Drafter[NativeDraftState]):
    """Runs a checkpoint for a model of the native engine, which lends what the head does not bring.

    Args:
        checkpoint: the head; `serves` must hold of its config.
        model: the target, ready.
        num_layers: of the target, to place the taps.
        max_positions: length of the rotary tables.
        mode: of the head's own passes.
        threads: of every pass, the caller's included; a function is asked before each call.
        coarse: keep the head's matrices in 4 bits instead of 8: drafts a little worse and sooner.

    Raises:
        CheckpointError: the head was made for another target.
        NativeError: the engine refused the weights.
    """

    def __init__(
        self,
        checkpoint: Eagle3Checkpoint,
        model: NativeModel,
        num_layers: int,
        max_positions: int,
        mode: Mode = Mode.A8,
        threads: int | Callable[[], int] = 1,
        coarse: bool = False,
    ) -> None:
        c = checkpoint.config
        checkpoint.check_target(model.config.vocab, model.config.hidden)
        self.checkpoint, self.config, self.mode = checkpoint, c, mode
        self._threads = threads
        self.tap_layers = c.taps_for(num_layers)
        self.target_ids = checkpoint.target_ids
        self.head = NativeHead(
            model,
            HeadConfig(
                hidden=c.hidden_size,
                ffn=c.intermediate_size,
                heads=c.num_heads,
                kv_heads=c.num_kv_heads,
                head_dim=c.head_dim,
                draft_vocab=c.draft_vocab_size,
                taps=len(self.tap_layers),
                max_len=max_positions,
                rms_eps=c.rms_norm_eps,
            ),
        )
        half = c.head_dim // 2
        table = Rope(c.head_dim, c.rope_theta, max_positions, torch.float32, c.rope_scaling)
        self.head.rope(table.cos[:, :half].numpy(), table.sin[:, half:].numpy())
        for name, which in _MATRICES.items():
            tensor = checkpoint.tensors.get(f"{name}.weight")
            if tensor is not None:
                self.head.weight(which, raw_tensor(tensor), coarse)
        for name, norm in _NORMS.items():
            self.head.norm(norm, checkpoint.tensors[f"{name}.weight"].float().numpy())
        self.head.words(self.target_ids.to(torch.int32).numpy())
        self.head.ready()

    @property
    def threads(self) -> int:
        """Of the next pass."""
        return self._threads if isinstance(self._threads, int) else self._threads()

    def new_state(self, capacity: int) -> NativeDraftState:
        return NativeDraftState(NativeDraft(self.head, capacity, self.mode))

    def length(self, state: NativeDraftState) -> int:
        return state.memory.length + len(state.tokens)

    def observe(self, state: NativeDraftState, tokens: Sequence[int], taps: Tensor) -> None:
        if taps.shape[0] != len(tokens):
            raise ValueError("one row of taps per token is needed")
        state.tokens.extend(tokens)
        state.taps.append(taps)
        state.root = tokens[-1]

    def truncate(self, state: NativeDraftState, length: int) -> None:
        read = state.memory.length
        keep = max(length - read, 0)
        if keep < len(state.tokens):
            state.taps = [torch.cat(state.taps)[:keep]] if keep else []
            del state.tokens[keep:]
        state.memory.truncate(min(length, read))

    def copy(self, state: NativeDraftState, other: NativeDraftState, rows: int) -> bool:
        read = min(rows, other.memory.length)
        state.memory.copy(other.memory, read)
        state.tokens, state.taps = first_pending(other.tokens, other.taps, rows - read)
        return True

    def confidence(self, state: NativeDraftState) -> float:
        self._read(state)
        return state.confidence

    def draft(
        self,
        state: NativeDraftState,
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        self._read(state)
        if sampler is not None or keep_hidden:
            return self._by_levels(state, plan, sampler, keep_hidden)
        packed, held = pack_plan(plan)
        grown = state.memory.grow(packed, self.threads)
        del held  # its arrays lived until here
        return _draft_of(grown)

    def _read(self, state: NativeDraftState) -> None:
        """Run the pending rows."""
        if state.tokens:
            taps = state.taps[0] if len(state.taps) == 1 else torch.cat(state.taps)
            state.confidence = state.memory.read(state.tokens, taps.numpy(), self.threads)
            state.tokens.clear()
            state.taps.clear()

    def _by_levels(
        self, state: NativeDraftState, plan: TreePlan, sampler: Sampler | None, keep_hidden: bool
    ) -> Draft:
        """As `draft`, with the choice of nodes made here."""
        growth = Growth(state.root, plan, sampled=sampler is not None)
        if growth.stopped:
            return growth.draft()
        topk = min(plan.topk, self.config.draft_vocab_size)
        level = state.memory.level(topk, threads=self.threads)
        while True:
            tokens, logq = torch.from_numpy(level.words).long(), torch.from_numpy(level.logq)
            q = None
            if sampler is not None:
                logits = torch.from_numpy(level.logits)
                vocab = self.config.vocab_size
                tokens, logq, q = offers(logits, topk, self.target_ids, vocab, sampler)
            hidden = torch.from_numpy(level.features) if keep_hidden else None
            source = growth.expand(tokens, logq, hidden, q)
            if growth.stopped:
                return growth.draft()
            level = state.memory.level(
                topk,
                growth.frontier_tokens.to(torch.int32).numpy(),
                source.to(torch.int32).numpy(),
                self.threads,
            )


def _draft_of(grown: Grown) -> Draft:
    token, parent, depth, rank, logq, score = (
        torch.from_numpy(array)
        for array in (
            grown.token,
            grown.parent,
            grown.depth,
            grown.rank,
            grown.logq,
            grown.score,
        )
    )
    reason: dict[str, float | str] = {"stopped": grown.stopped}
    if grown.gain is not None and grown.price is not None:
        reason |= {"gain": grown.gain, "price": grown.price, "nodes": len(grown.token)}
    # Nodes come level by level, so the last one is among the deepest.
    tree = DraftTree(token, parent, depth, logq, max_depth=int(grown.depth[-1]))
    if tree.num_nodes == 1:
        return Draft(tree, num_candidates=grown.candidates, num_levels=grown.levels, reason=reason)
    return Draft(tree, rank, score, grown.candidates, grown.levels, reason)


def pack_plan(plan: TreePlan) -> tuple[Plan, list[object]]:
    """`plan` in C, and the arrays that must live as long."""
    keep, stop = plan.keep, plan.stop
    packed = Plan(
        num_steps=plan.num_steps,
        topk=plan.topk,
        num_draft_tokens=plan.num_draft_tokens,
        width=plan.width,
        keep_relative=keep.relative,
        keep_absolute=keep.absolute,
        keep_drop=keep.drop,
        keep_first=keep.first,
        min_confidence=stop.min_confidence,
        min_path=stop.min_path,
        min_gain=-1.0 if stop.min_gain is None else stop.min_gain,
        full=stop.full,
    )
    held: list[object] = []

    def address(array: object) -> int:
        held.append(array)
        return addressof(array)  # type: ignore[arg-type]

    def doubles(values: Sequence[float]) -> int:
        return address((c_double * len(values))(*values))

    def integers(values: Sequence[int]) -> int:
        return address((c_int32 * len(values))(*values))

    if plan.prices:
        packed.price_count = len(plan.prices)
        packed.price_sizes = integers([size for size, _ in plan.prices])
        packed.prices = doubles([price for _, price in plan.prices])
    if stop.lookahead is not None:
        follow, price = stop.lookahead.follow, stop.lookahead.price
        packed.follow_count, packed.follow = len(follow), doubles(follow)
        packed.ahead_count, packed.ahead_prices = len(price), doubles(price)
    if plan.acceptance is not None and plan.num_steps > 0:
        acceptance = plan.acceptance
        base, slope = acceptance.base.contiguous(), acceptance.slope.contiguous()
        bins = first_bins(plan.num_steps, plan.topk)
        held += [base, slope, bins]
        packed.bin_count, packed.edge_count = base.numel(), EDGES.numel()
        packed.base, packed.slope = base.data_ptr(), slope.data_ptr()
        packed.edges, packed.first_bin = EDGES.data_ptr(), bins.data_ptr()
        packed.shift = acceptance.shift
        packed.lift_count, packed.lift = len(acceptance.lift), doubles(acceptance.lift)
    if plan.positions:
        place = {node: i for i, node in enumerate(plan.positions)}
        packed.position_count = len(plan.positions)
        packed.parents = integers([place.get(node[:-1], -1) for node in plan.positions])
        packed.ranks = integers([node[-1] for node in plan.positions])
    return packed, held

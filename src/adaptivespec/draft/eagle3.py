"""The EAGLE-3 head as a drafter (Li et al., 2503.01840), one level of the tree per pass.

One decoder layer reads, for each position, the embedding of the *next* token and a feature of the
target: three tapped layers through `fc` for committed positions, its own output for drafted ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.errors import CheckpointError
from adaptivespec.core.sampling import Sampler
from adaptivespec.draft.base import Drafter, first_pending
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint
from adaptivespec.draft.growth import Growth
from adaptivespec.draft.offers import offers
from adaptivespec.nn.attention import additive_mask, attend, pieces
from adaptivespec.nn.kv import KVCache, Rows
from adaptivespec.nn.linear import Linear
from adaptivespec.nn.norm import RMSNorm, fold_gain
from adaptivespec.nn.rope import Rope, rotate
from adaptivespec.policy.base import TreePlan

#: Rows read in one pass when a long prompt is pending, to bound the mask.
CHUNK_ROWS = 512


@dataclass
class Eagle3State:
    """One sequence: the head's cache, what it has yet to read, and its view of the root."""

    cache: KVCache
    tokens: list[int] = field(default_factory=list)  # pending, one per pending tap row
    taps: list[Tensor] = field(default_factory=list)  # pending [K, taps * H]
    root: int = -1
    #: Feature `[1, H]` of the last committed position and logits `f32[1, draft vocab]` after the
    #: root; None while something is pending.
    view: tuple[Tensor, Tensor] | None = None


@dataclass
class Drafted:
    """The levels of a tree that the head has run, behind the committed rows.

    `seen bool[width, columns]`: what the rows of the last level see. A drafted row sees the
    committed rows, its drafted ancestors and itself; there is a column for each drafted row.
    """

    seen: Tensor
    rows: int = 0
    levels: int = 0


class Eagle3Drafter(Drafter[Eagle3State]):
    """Runs a checkpoint for a target.

    Args:
        checkpoint: the head.
        embedding: the target's token embedding `[vocab, H]`, used unless the head brings its own.
        lm_head: the target's unfolded output rows `[vocab, H]`, for heads that borrow them.
        num_layers: of the target, to place the taps.
        max_positions: length of the rotary tables.

    Raises:
        CheckpointError: the head was made for another target.
    """

    def __init__(
        self,
        checkpoint: Eagle3Checkpoint,
        embedding: Tensor,
        num_layers: int,
        max_positions: int,
        dtype: torch.dtype,
        lm_head: Tensor | None = None,
    ) -> None:
        c = checkpoint.config
        checkpoint.check_target(*embedding.shape)
        self.checkpoint, self.config = checkpoint, c
        self.dtype, self.device = dtype, embedding.device
        self.tap_layers = c.taps_for(num_layers)
        self.groups = c.num_heads // c.num_kv_heads

        def w(name: str) -> Tensor:
            return checkpoint.tensors[f"{name}.weight"].to(self.device)

        def own_or(name: str, borrowed: Tensor | None) -> Tensor:
            tensor = checkpoint.tensors.get(f"{name}.weight", borrowed)
            if tensor is None:
                raise CheckpointError(
                    f"the head has no {name}.weight and the target lends none", field="draft_model"
                )
            return tensor.to(self.device)

        def gain(name: str, used: bool = True) -> Tensor:
            return w(name) if used else torch.ones(c.hidden_size, device=self.device)

        self.embedding = own_or("embed_tokens", embedding).to(dtype)
        fc = w("fc")
        if c.norm_before_fc:
            fc = fold_gain(fc, w("input_norm"))
        if c.fc_norm:
            fc = fold_gain(fc, torch.cat([w(f"fc_norm.{i}") for i in range(c.num_taps)]))
        self.fc = Linear(fc.to(dtype))
        qkv = torch.cat([w(f"{LAYER}.self_attn.{name}_proj") for name in "qkv"])
        feature_gain = w(f"{LAYER}.hidden_norm")
        first = gain(f"{LAYER}.input_layernorm", c.use_input_layernorm_in_first_layer)
        gains = torch.cat([first, feature_gain])
        self.feature_gain = feature_gain.to(dtype)
        self.qkv = Linear(fold_gain(qkv, gains).to(dtype))
        self.o = Linear(w(f"{LAYER}.self_attn.o_proj").to(dtype))
        gate_up = torch.cat([w(f"{LAYER}.mlp.gate_proj"), w(f"{LAYER}.mlp.up_proj")])
        gate_up = fold_gain(gate_up, w(f"{LAYER}.post_attention_layernorm"))
        self.gate_up = Linear(gate_up.to(dtype))
        self.down = Linear(w(f"{LAYER}.mlp.down_proj").to(dtype))
        last = gain("norm", c.use_last_layernorm)
        borrowed = self.embedding if c.tie_word_embeddings else lm_head
        self.lm_head = Linear(fold_gain(own_or("lm_head", borrowed), last).to(dtype))
        self.output_gain = last.to(dtype)
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps, self.device)
        self.norm_taps = RMSNorm(c.num_taps * c.hidden_size, c.rms_norm_eps, self.device)
        self.rope = Rope(
            c.head_dim, c.rope_theta, max_positions, dtype, c.rope_scaling, self.device
        )
        self.target_ids = checkpoint.target_ids.to(self.device)

    def new_state(self, capacity: int) -> Eagle3State:
        c = self.config
        cache = KVCache(1, c.num_kv_heads, c.head_dim, capacity, self.dtype, self.device)
        return Eagle3State(cache)

    def length(self, state: Eagle3State) -> int:
        return state.cache.length + len(state.tokens)

    def observe(self, state: Eagle3State, tokens: Sequence[int], taps: Tensor) -> None:
        if taps.shape[0] != len(tokens):
            raise ValueError("one row of taps per token is needed")
        state.tokens.extend(tokens)
        state.taps.append(taps)
        state.root = tokens[-1]
        state.view = None

    def truncate(self, state: Eagle3State, length: int) -> None:
        keep = max(length - state.cache.length, 0)
        if keep < len(state.tokens):
            taps = torch.cat(state.taps)[:keep]
            state.taps = [taps] if keep else []
            del state.tokens[keep:]
        state.cache.truncate(length)
        state.view = None

    def copy(self, state: Eagle3State, other: Eagle3State, rows: int) -> bool:
        read = min(rows, other.cache.length)
        state.cache.copy(other.cache, read)
        state.tokens, state.taps = first_pending(other.tokens, other.taps, rows - read)
        state.view = None
        return True

    def confidence(self, state: Eagle3State) -> float:
        _, logits = self._read(state)
        return float((logits.amax(-1) - logits.logsumexp(-1)).exp())

    @torch.inference_mode()
    def draft(
        self,
        state: Eagle3State,
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        growth = Growth(state.root, plan, self.device, sampled=sampler is not None)
        if growth.stopped:
            return growth.draft()
        vocab = self.config.vocab_size
        hidden, logits = self._read(state)
        drafted = self._nothing_drafted(state.cache)
        while True:
            tokens, logq, q = offers(logits, plan.topk, self.target_ids, vocab, sampler)
            source = growth.expand(tokens, logq, hidden if keep_hidden else None, q)
            if growth.stopped:
                return growth.draft()
            hidden, logits = self._level(
                state.cache, drafted, source, hidden.index_select(0, source), growth.frontier_tokens
            )

    def _nothing_drafted(self, cache: KVCache) -> Drafted:
        return Drafted(torch.zeros(1, 0, dtype=torch.bool, device=self.device))

    def _level(
        self, cache: KVCache, drafted: Drafted, source: Tensor, hidden: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One more level: its features `[width, H]` and logits `f32[width, draft vocab]`.

        Args:
            drafted: the levels before it, to which this one is added.
            source: i64[width], the parents' rows in the level before.
            hidden: [width, H], the parents' features.
            tokens: i64[width], of the nodes themselves.
        """
        width = tokens.shape[0]
        own = torch.eye(width, dtype=torch.bool, device=self.device)
        drafted.seen = torch.cat((drafted.seen.index_select(0, source), own), 1)
        place, position = cache.behind(drafted.rows), cache.length + drafted.levels
        drafted.rows += width
        drafted.levels += 1
        cache.reserve(cache.length + drafted.rows)
        mask = None  # the one row of a chain sees every row before it
        if drafted.rows > drafted.levels:
            mask = additive_mask(drafted.seen, cache.length, self.groups, self.dtype)
        positions = torch.full((width,), position, device=self.device)
        hidden = self._pass(self._fed_back(hidden), tokens, positions, place, mask)
        return hidden, self._logits(hidden)

    @torch.inference_mode()
    def _read(self, state: Eagle3State) -> tuple[Tensor, Tensor]:
        """Run the pending rows; the feature of the last one and the logits after the root."""
        if state.view is None:
            taps = torch.cat(state.taps).to(self.dtype)
            tokens = torch.tensor(state.tokens, device=self.device)
            state.view = self._read_rows(state.cache, taps, tokens)
            state.tokens.clear()
            state.taps.clear()
        return state.view

    def _read_rows(self, cache: KVCache, taps: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Read and commit rows of `taps [K, taps * H]` and `tokens i64[K]`; `_read`'s answer."""
        features = self.fc(self._normed_taps(taps))
        cache.reserve(cache.length + tokens.shape[0])
        runs = pieces(tokens, cache.length, CHUNK_ROWS)
        for feature, (piece, positions, visible) in zip(
            features.split(CHUNK_ROWS), runs, strict=True
        ):
            mask = None
            if piece.shape[0] > 1:
                mask = additive_mask(visible, cache.length, self.groups, self.dtype)
            hidden = self._pass(feature, piece, positions, cache.behind(), mask)
            cache.commit(range(piece.shape[0]))
        return hidden[-1:], self._logits(hidden[-1:])

    def _pass(
        self,
        feature: Tensor,
        tokens: Tensor,
        positions: Tensor,
        place: Rows,
        mask: Tensor | None,
    ) -> Tensor:
        """The decoder layer over rows `feature [R, H]`, `tokens [R]`; keys go to `place`."""
        c = self.config
        rows = tokens.shape[0]
        q_end, k_end = c.num_heads, c.num_heads + c.num_kv_heads
        embedded = F.embedding(tokens, self.embedding)
        normed = self.norm(feature)
        if c.use_input_layernorm_in_first_layer:
            embedded = self.norm(embedded)
        x = torch.cat((embedded, normed), -1)  # [R, 2H]
        qkv = self.qkv(x).view(rows, k_end + c.num_kv_heads, c.head_dim)
        qk = rotate(qkv[:, :k_end], *self.rope.at(positions))
        k, v = place.store(0, qk[:, q_end:], qkv[:, k_end:])
        residual = normed * self.feature_gain if c.norm_before_residual else feature
        x = residual + self.o(attend(qk[:, :q_end], k, v, mask))
        gate, up = self.gate_up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def _logits(self, hidden: Tensor) -> Tensor:
        if self.config.use_last_layernorm:
            hidden = self.norm(hidden)
        return self.lm_head(hidden).float()

    def _normed_taps(self, taps: Tensor) -> Tensor:
        """Taps `[R, taps * H]` as `fc` takes them; the gains are in its weight."""
        if self.config.norm_before_fc:
            return self.norm_taps(taps)
        if self.config.fc_norm:
            return self.norm(taps.unflatten(-1, (self.config.num_taps, -1))).flatten(-2)
        return taps

    def _fed_back(self, hidden: Tensor) -> Tensor:
        """The layer's own output `[R, H]` in the place of a feature of the target."""
        return self.norm(hidden) * self.output_gain if self.config.norm_output else hidden

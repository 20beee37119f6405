"""The native backend of the target interface: passes run in C++, bit for bit repeatable.

A row's logits depend on its token, its position and the rows it sees, and on nothing else, so a
node of a tree has exactly the logits that plain decoding would give it. That is also what allows a
tree that is too wide for one pass to run in several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.model.native_weights import EMBEDDING, OUTPUT, NativeWeights
from adaptivespec.engine.target import Pass, Target, TargetLimits
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.native.library import (
    MAX_ROWS,
    MAX_THREADS,
    Matrix,
    Mode,
    NativeCache,
    NativeConfig,
    NativeModel,
    Norm,
)
from adaptivespec.native.weights import gguf_row_order
from adaptivespec.nn.rope import Rope

_MATRICES = {
    "self_attn.q_proj": Matrix.QUERY,
    "self_attn.k_proj": Matrix.KEY,
    "self_attn.v_proj": Matrix.VALUE,
    "self_attn.o_proj": Matrix.ATTENTION_OUTPUT,
    "mlp.gate_proj": Matrix.GATE,
    "mlp.up_proj": Matrix.UP,
    "mlp.down_proj": Matrix.DOWN,
}
_NORMS = {"input_layernorm": Norm.ATTENTION, "post_attention_layernorm": Norm.FFN}

Ints = npt.NDArray[np.int32]


@dataclass
class NativeSequence:
    """A cache, and the tokens of the last verified tree where that ran in several passes."""

    rows: NativeCache
    wide: Ints | None = None


def native_config(config: ModelConfig, max_model_len: int) -> NativeConfig:
    """The sizes as the native engine takes them.

    Raises:
        ConfigError: it does not serve such a model; lists all that is in the way.
    """
    width = config.num_heads * config.head_dim
    problems = [
        *(
            f"{name} = {value} is no multiple of 32"
            for name, value in (
                ("hidden_size", config.hidden_size),
                ("intermediate_size", config.intermediate_size),
                ("num_attention_heads * head_dim", width),
            )
            if value % 32
        ),
        *([f"head_dim = {config.head_dim} is no multiple of 16"] if config.head_dim % 16 else []),
        *([f"head_dim = {config.head_dim} is above 256"] if config.head_dim > 256 else []),
    ]
    if problems:
        raise ConfigError(
            f"native does not serve this model: {'; '.join(problems)}",
            field="backend",
            remedy="Use backend torch",
        )
    return NativeConfig(
        layers=config.num_layers,
        hidden=config.hidden_size,
        ffn=config.intermediate_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab_size,
        max_len=max_model_len,
        rms_eps=config.rms_norm_eps,
        tied=config.tie_word_embeddings,
    )


class NativeTarget(Target[NativeSequence]):
    """A model packed for the native engine, with one cache per sequence.

    Args:
        weights: of the model.
        config: its sizes and constants.
        max_model_len: longest sequence in tokens.
        mode: A8, or A16 for activations that are practically float32.
        threads: of every pass, the caller's included.

    Raises:
        ConfigError: a model that the native engine does not serve, or too many threads.
        NativeError: the engine refused the weights, or there is no engine.
    """

    # Passes are so quick that trees drafted by a torch drafter cost more than they save.
    default_policy = "none"

    def __init__(
        self,
        weights: NativeWeights,
        config: ModelConfig,
        max_model_len: int,
        mode: Mode = Mode.A8,
        threads: int = 1,
    ) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise ConfigError(f"must lie in [1, {MAX_THREADS}], got {threads}", field="threads")
        self.config, self.mode, self.threads = config, mode, threads
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self.limits = TargetLimits(
            config.vocab_size, config.hidden_size, config.num_layers, max_model_len
        )
        self.model = NativeModel(native_config(config, max_model_len))
        self._fill(weights)
        self.model.ready()
        self._lent = {n: weights.tensors[n] for n in (EMBEDDING, OUTPUT) if n in weights.tensors}

    @property
    def precision(self) -> str:
        return self.mode.name

    @property
    def embedding(self) -> Tensor:
        """The token embedding `f32[vocab, hidden]`, decoded anew: for a drafter to borrow."""
        return torch.from_numpy(self._lent[EMBEDDING].dequantised())

    @property
    def output(self) -> Tensor:
        """The output layer `f32[vocab, hidden]` without the final norm's gain, decoded anew."""
        return torch.from_numpy(self._lent.get(OUTPUT, self._lent[EMBEDDING]).dequantised())

    def new_cache(self, capacity: int) -> NativeSequence:
        return NativeSequence(self.model.new_cache(capacity))

    def length(self, cache: NativeSequence) -> int:
        return cache.rows.length

    def prefill(
        self, cache: NativeSequence, tokens: Sequence[int], tap_layers: Sequence[int] = ()
    ) -> Pass:
        if not tokens:
            raise ValueError("a prefill needs at least one token")
        ids = np.array(tokens, dtype=np.int32)
        cache.wide = None
        taps = []
        for start in range(0, len(ids), MAX_ROWS):
            chunk = ids[start : start + MAX_ROWS]
            asked = [len(chunk) - 1] if start + MAX_ROWS >= len(ids) else []
            logits, tap, hidden = self._forward(cache, chunk, None, tap_layers, asked)
            cache.rows.commit(range(len(chunk)))
            taps.append(tap)
        return Pass(logits, torch.cat(taps), hidden)

    def verify(
        self, cache: NativeSequence, tree: DraftTree, tap_layers: Sequence[int] = ()
    ) -> Pass:
        tokens = tree.token.to(torch.int32).numpy()
        parents = tree.parent.to(torch.int32).numpy()
        if len(tokens) > MAX_ROWS:
            return self._verify_wide(cache, tokens, parents, tap_layers)
        cache.wide = None
        return Pass(*self._forward(cache, tokens, parents, tap_layers, None))

    def commit(self, cache: NativeSequence, path: Sequence[int]) -> None:
        if cache.wide is None:
            cache.rows.commit(path)
            return
        # The rows of the path may have run in different passes: run them together.
        tokens, cache.wide = cache.wide[list(path)], None
        self._append(cache, tokens)

    def truncate(self, cache: NativeSequence, length: int) -> None:
        cache.wide = None
        cache.rows.truncate(min(length, cache.rows.length))

    def _verify_wide(
        self, cache: NativeSequence, tokens: Ints, parents: Ints, tap_layers: Sequence[int]
    ) -> Pass:
        """As `verify`, in several passes that leave no row behind."""
        cache.wide = tokens
        length, limits = cache.rows.length, self.limits
        logits = torch.empty(len(tokens), limits.vocab_size)
        taps = torch.empty(len(tokens), len(tap_layers) * limits.hidden_size)
        hidden = torch.empty(len(tokens), limits.hidden_size)
        for nodes, new in _parts(parents):
            above = max(len(nodes) - MAX_ROWS, 0)
            rest = nodes[above:]
            place = {node: row for row, node in enumerate(rest)}
            links = np.array([place.get(int(parents[node]), -1) for node in rest], dtype=np.int32)
            rows = [place[node] for node in new]
            try:
                # Too deep for one pass: the upper rows are committed for the moment.
                self._append(cache, tokens[nodes[:above]])
                out = self._forward(cache, tokens[rest], links, tap_layers, rows)
            finally:
                cache.rows.truncate(length)
            logits[new], taps[new], hidden[new] = out[0], out[1][rows], out[2]
        return Pass(logits, taps, hidden)

    def _append(self, cache: NativeSequence, tokens: Ints) -> None:
        """Run a chain and commit it."""
        for start in range(0, len(tokens), MAX_ROWS):
            chunk = tokens[start : start + MAX_ROWS]
            self._forward(cache, chunk, None, (), [])
            cache.rows.commit(range(len(chunk)))

    def _forward(
        self,
        cache: NativeSequence,
        tokens: Ints,
        parents: Ints | None,
        tap_layers: Sequence[int],
        asked: Sequence[int] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits, taps, hidden = cache.rows.forward(
            tokens,
            parents,
            mode=self.mode,
            threads=self.threads,
            tap_layers=tap_layers,
            asked=asked,
        )
        return torch.from_numpy(logits), torch.from_numpy(taps), torch.from_numpy(hidden)

    def _fill(self, weights: NativeWeights) -> None:
        """Hand over every weight."""
        c, model = self.config, self.model
        half, length = c.head_dim // 2, self.limits.max_model_len
        table = Rope(c.head_dim, c.rope_theta, length, torch.float32, c.rope_scaling)
        # The table's sine has the sign of the rotated half; the engine subtracts by itself.
        model.rope(table.cos[:, :half].numpy(), table.sin[:, half:].numpy())
        orders = {}
        if weights.permuted:
            orders = {
                Matrix.QUERY: gguf_row_order(c.num_heads, c.head_dim),
                Matrix.KEY: gguf_row_order(c.num_kv_heads, c.head_dim),
            }

        def matrix(layer: int, which: Matrix, name: str) -> None:
            model.weight(layer, which, weights.packable(name), orders.get(which))

        def norm(layer: int, which: Norm, name: str) -> None:
            model.norm(layer, which, weights.tensors[name].dequantised())

        matrix(0, Matrix.EMBEDDING, EMBEDDING)
        if not c.tie_word_embeddings:
            matrix(0, Matrix.OUTPUT, OUTPUT)
        for layer in range(c.num_layers):
            for name, which in _MATRICES.items():
                matrix(layer, which, f"model.layers.{layer}.{name}.weight")
            for name, gain in _NORMS.items():
                norm(layer, gain, f"model.layers.{layer}.{name}.weight")
        norm(0, Norm.OUTPUT, "model.norm.weight")


def _parts(parents: Ints) -> Iterator[tuple[list[int], list[int]]]:
    """Cover a tree by ancestor-closed lists of nodes, ascending, of at most MAX_ROWS each.

    Yields each list with those of its nodes that no earlier one had. Only a list that is one
    node's lineage may be longer.
    """
    held: set[int] = set()
    new: list[int] = []
    for node in range(len(parents)):
        lineage, up = {node}, int(parents[node])
        while up >= 0:
            lineage.add(up)
            up = int(parents[up])
        if new and len(held | lineage) > MAX_ROWS:
            yield sorted(held), new
            held, new = set(), []
        held |= lineage
        new.append(node)
    if new:
        yield sorted(held), new

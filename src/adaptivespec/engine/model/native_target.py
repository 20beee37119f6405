"""The native backend of the target interface: passes run in C++, bit for bit repeatable.

A row's logits depend on its token, its position and the rows it sees, and on nothing else, so a
node of a tree has exactly the logits that plain decoding would give it. That is also what allows a
tree that is too wide for one pass to run in several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError, NumericalError
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Verdict
from adaptivespec.engine.model.native_model import native_model
from adaptivespec.engine.model.native_passes import groups, parts
from adaptivespec.engine.model.native_threads import Threads
from adaptivespec.engine.model.native_weights import EMBEDDING, OUTPUT, NativeWeights
from adaptivespec.engine.target import Pass, PrefillProgress, Target, TargetLimits
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.native.choosing import follow
from adaptivespec.native.library import (
    MAX_ROWS,
    MAX_THREADS,
    Library,
    Mode,
    NativeCache,
    Rows,
)
from adaptivespec.verify.base import NodeTest

#: Rows of one pass of a prefill: more do not make it quicker.
PREFILL_ROWS = 64
Ints = npt.NDArray[np.int32]


@dataclass
class NativeSequence:
    """A cache, and the tokens of the last verified tree where that ran in several passes."""

    rows: NativeCache
    wide: Ints | None = None


class NativeTarget(Target[NativeSequence]):
    """A model packed for the native engine, with one cache per sequence.

    Args:
        weights: of the model.
        config: its sizes and constants.
        max_model_len: longest sequence in tokens.
        mode: A8, or A16 for activations that are practically float32.
        threads: of every pass, the caller's included; "auto" takes torch's number, and one alone
            while the CPU is too busy for more. Results do not depend on it.
        library: None for the one of this processor.

    Raises:
        ConfigError: a model that the native engine does not serve, or too many threads.
        NativeError: the engine refused the weights, or there is no engine.
    """

    backend = "native"
    # Against passes as quick as these every drafted node has its price.
    default_policy = "thrift"

    def __init__(
        self,
        weights: NativeWeights,
        config: ModelConfig,
        max_model_len: int,
        mode: Mode = Mode.A8,
        threads: int | Literal["auto"] = 1,
        library: Library | None = None,
    ) -> None:
        if threads != "auto" and not 1 <= threads <= MAX_THREADS:
            raise ConfigError(f"must lie in [1, {MAX_THREADS}], got {threads}", field="threads")
        self.config, self.mode = config, mode
        self.threads = Threads.auto() if threads == "auto" else Threads(threads)
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self.limits = TargetLimits(
            config.vocab_size, config.hidden_size, config.num_layers, max_model_len
        )
        self.model = native_model(weights, config, max_model_len, mode, library)
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
        self,
        cache: NativeSequence,
        tokens: Sequence[int],
        tap_layers: Sequence[int] = (),
        progress: PrefillProgress | None = None,
    ) -> Pass:
        if not tokens:
            raise ValueError("a prefill needs at least one token")
        ids = np.array(tokens, dtype=np.int32)
        cache.wide = None
        taps = []
        for start in range(0, len(ids), PREFILL_ROWS):
            chunk = ids[start : start + PREFILL_ROWS]
            asked = [len(chunk) - 1] if start + PREFILL_ROWS >= len(ids) else []
            batch = [Rows(cache.rows, chunk, None, asked)]
            logits, tap, hidden = self._run(batch, tap_layers)[0]
            cache.rows.commit(range(len(chunk)))
            taps.append(tap)
            if progress is not None:
                progress(start + len(chunk), len(ids))
        return Pass(logits, torch.cat(taps), hidden)

    def verify(
        self, cache: NativeSequence, tree: DraftTree, tap_layers: Sequence[int] = ()
    ) -> Pass:
        return self.verify_many([cache], [tree], tap_layers)[0]

    def verify_many(
        self,
        caches: Sequence[NativeSequence],
        trees: Sequence[DraftTree],
        tap_layers: Sequence[int] = (),
    ) -> list[Pass]:
        """`verify` of one tree per cache, no cache twice.

        Trees share walks over the weights, so eight sequences of one row each cost about as much as
        one of eight rows. Each gets, bit for bit, what it would get alone.

        Raises:
            NativeError: as `verify`; which of the trees have run is then not known, and none may be
                committed.
        """
        found: dict[int, Pass] = {}
        narrow: dict[int, Rows] = {}
        for at, (cache, tree) in enumerate(zip(caches, trees, strict=True)):
            tokens, parents = _int32(tree.token), _int32(tree.parent)
            cache.wide = None
            if len(tokens) > MAX_ROWS:
                found[at] = self._verify_wide(cache, tokens, parents, tap_layers)
            else:
                narrow[at] = Rows(cache.rows, tokens, parents)
        for group in groups({at: len(rows.tokens) for at, rows in narrow.items()}, MAX_ROWS):
            outputs = self._run([narrow[at] for at in group], tap_layers)
            found |= {at: Pass(*output) for at, output in zip(group, outputs, strict=True)}
        return [found[at] for at in range(len(found))]

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

    def copy(self, cache: NativeSequence, other: NativeSequence, rows: int) -> bool:
        cache.wide = None
        cache.rows.copy(other.rows, rows)
        return True

    @contextmanager
    def between_passes(self) -> Iterator[None]:
        """One torch thread: those it wakes go on spinning, and slow the next pass by half."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        threads, self.threads = self.threads, Threads(1)
        try:
            yield
        finally:
            self.threads = threads

    def follow(self, out: Pass, tree: DraftTree, test: NodeTest) -> Verdict:
        token = tree.token.numpy()
        walk = follow(
            self.model.library,
            token,
            tree.parent.numpy(),
            out.logits.numpy(),
            test.guarded.numpy(),
            test.limit,
            test.in_order,
        )
        if walk.fault is not None:
            raise NumericalError(
                f"are not finite at node {walk.fault}", node=walk.fault, field="logits"
            )
        path = walk.path
        return Verdict.of_path(
            path,
            drafted=token[path[1:]].tolist(),
            drops=walk.drops[1:],
            strict=walk.best,
            bonus=walk.best[-1],
            strict_drops=[0.0] * len(path),
            bonus_drop=0.0,
        )

    def _verify_wide(
        self, cache: NativeSequence, tokens: Ints, parents: Ints, tap_layers: Sequence[int]
    ) -> Pass:
        """As `verify`, in several passes that leave no row behind."""
        cache.wide = tokens
        length, limits = cache.rows.length, self.limits
        logits = torch.empty(len(tokens), limits.vocab_size)
        taps = torch.empty(len(tokens), len(tap_layers) * limits.hidden_size)
        hidden = torch.empty(len(tokens), limits.hidden_size)
        for nodes, new in parts(parents, MAX_ROWS):
            above = max(len(nodes) - MAX_ROWS, 0)
            rest = nodes[above:]
            place = {node: row for row, node in enumerate(rest)}
            links = np.array([place.get(int(parents[node]), -1) for node in rest], dtype=np.int32)
            rows = [place[node] for node in new]
            try:
                # Too deep for one pass: the upper rows are committed for the moment.
                self._append(cache, tokens[nodes[:above]])
                out = self._run([Rows(cache.rows, tokens[rest], links, rows)], tap_layers)[0]
            finally:
                cache.rows.truncate(length)
            logits[new], taps[new], hidden[new] = out[0], out[1][rows], out[2]
        return Pass(logits, taps, hidden)

    def _append(self, cache: NativeSequence, tokens: Ints) -> None:
        """Run a chain and commit it."""
        for start in range(0, len(tokens), PREFILL_ROWS):
            chunk = tokens[start : start + PREFILL_ROWS]
            self._run([Rows(cache.rows, chunk, None, [])], ())
            cache.rows.commit(range(len(chunk)))

    def _run(
        self, batch: Sequence[Rows], tap_layers: Sequence[int]
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """One pass over rows of several sequences: logits, taps, hidden of each."""
        threads = self.threads.now()
        outputs = self.model.forward(
            batch,
            mode=self.mode,
            threads=threads,
            tap_layers=tap_layers,
            stalled=lambda lost: self.threads.observe(threads, lost),
        )
        return [
            (torch.from_numpy(logits), torch.from_numpy(taps), torch.from_numpy(hidden))
            for logits, taps, hidden in outputs
        ]


def _int32(values: Tensor) -> Ints:
    return values.to(torch.int32).numpy()

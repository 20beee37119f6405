"""What the decode loop asks of a target model, whatever runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Verdict
from adaptivespec.verify.base import NodeTest

Cache = TypeVar("Cache")
PrefillProgress = Callable[[int, int], object]


@dataclass(frozen=True)
class TargetLimits:
    """Sizes a caller has to respect."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    max_model_len: int


@dataclass
class Pass:
    """What one pass of the target gives back.

    `logits [rows asked, vocab]` in the model's dtype; `taps [rows, len(tap_layers) * hidden]`, the
    residual stream entering the tapped layers (no columns when none is tapped); `hidden [rows
    asked, hidden]`, the stream leaving the last layer, before the final norm, where the target
    gives it.  Valid until the next pass over the same cache.
    """

    logits: Tensor
    taps: Tensor
    hidden: Tensor | None = None


class Target(ABC, Generic[Cache]):
    """A causal language model that verifies trees.

    A cache belongs to one sequence and is opaque to callers.  `prefill` commits its rows at once;
    `verify` writes tentative rows that `commit` keeps or drops.  The model itself keeps no state
    between calls, so several caches may take turns.
    """

    limits: TargetLimits
    dtype: torch.dtype
    device: torch.device
    backend: ClassVar[str] = "torch"
    #: The policy of requests that name none, where there is a drafter. One that looks at no clock
    #: and learns nothing from other requests, so that a request repeats.
    default_policy: ClassVar[str] = "dcs"

    @property
    def precision(self) -> str:
        """Name of what the target computes in: its dtype, unless the backend has its own names."""
        return str(self.dtype).removeprefix("torch.")

    @abstractmethod
    def new_cache(self, capacity: int) -> Cache:
        """A cache for one sequence with room for `capacity` rows; it grows when it must."""

    @abstractmethod
    def length(self, cache: Cache) -> int:
        """Number of committed rows."""

    @abstractmethod
    def prefill(
        self,
        cache: Cache,
        tokens: Sequence[int],
        tap_layers: Sequence[int] = (),
        progress: PrefillProgress | None = None,
    ) -> Pass:
        """Append `tokens`; logits `[1, vocab]` of the last one, taps of all of them.

        They run in several passes, each committed at once; `progress` is called after each with the
        number of tokens done and of all.
        """

    @abstractmethod
    def verify(self, cache: Cache, tree: DraftTree, tap_layers: Sequence[int] = ()) -> Pass:
        """Run every node of `tree` at position `length + depth`, each seeing its ancestors only.

        Logits `[N, vocab]` and taps of all nodes.  Nothing is committed.
        """

    def verify_many(
        self,
        caches: Sequence[Cache],
        trees: Sequence[DraftTree],
        tap_layers: Sequence[int] = (),
    ) -> list[Pass]:
        """`verify` of one tree per cache, no cache twice; together where the target can."""
        return [
            self.verify(cache, tree, tap_layers) for cache, tree in zip(caches, trees, strict=True)
        ]

    @abstractmethod
    def commit(self, cache: Cache, path: Sequence[int]) -> None:
        """Keep the rows of `path`, nodes of the last verified tree from the root; drop the rest."""

    @abstractmethod
    def truncate(self, cache: Cache, length: int) -> None:
        """Forget committed rows from `length` on."""

    def copy(self, cache: Cache, other: Cache, rows: int) -> bool:
        """Make `cache` hold the first `rows` rows of `other` in place of all it held.

        False, and nothing has happened, where the target cannot.
        """
        return False

    def between_passes(self) -> AbstractContextManager[object]:
        """Entered for what the host computes in torch between two passes."""
        return nullcontext()

    def one_thread(self) -> AbstractContextManager[object]:
        """Entered by a caller that runs passes from several threads of its own: each takes one."""
        return nullcontext()

    def follow(self, out: Pass, tree: DraftTree, test: NodeTest) -> Verdict | None:
        """Choose and follow at temperature 0 in one go; None where the target has no such thing.

        Raises:
            NumericalError: a row on the path is not finite; it names the node.
        """
        return None

"""What the decode loop asks of a drafter: begin, observe, look, draft."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import Sampler
from adaptivespec.policy.base import TreePlan

State = TypeVar("State")


class Drafter(ABC, Generic[State]):
    """Proposes trees.  A state belongs to one sequence; the drafter itself keeps none.

    Order of calls per sequence: `new_state`, `begin` for each prompt, then `observe` with what the
    target has committed, then per step `confidence` (when a policy wants it) and `draft`, then
    `observe` again.  Work is done when it is asked for: `observe` only notes what happened, so a
    run of steps that draft nothing costs nothing until the next draft.
    """

    #: Target layers whose incoming residual stream `observe` needs; empty when none.
    tap_layers: tuple[int, ...] = ()

    @abstractmethod
    def new_state(self, capacity: int) -> State:
        """State for one sequence with room for `capacity` positions; it grows when it must."""

    def begin(self, state: State, first: int) -> None:
        """Note a prompt's first token, which `observe` never says; before its first row."""

    @abstractmethod
    def length(self, state: State) -> int:
        """Number of rows observed."""

    @abstractmethod
    def observe(self, state: State, tokens: Sequence[int], taps: Tensor) -> None:
        """Note committed rows: `taps [K, taps * hidden]` of K rows and, for each, its next token.

        `tokens[i]` is the token that follows the row of `taps[i]`; the last one is the root of
        the next tree.
        """

    @abstractmethod
    def confidence(self, state: State) -> float:
        """Largest probability in the drafter's distribution for the token after the root."""

    @abstractmethod
    def draft(
        self,
        state: State,
        plan: TreePlan,
        sampler: Sampler | None = None,
        keep_hidden: bool = False,
    ) -> Draft:
        """Grow the tree that `plan` asks for under the last observed token.

        With `sampler` drafts are drawn from the drafter's law in place of its likeliest tokens, and
        the tree carries that law.  With `keep_hidden` it carries the drafter's features.
        """

    def copy(self, state: State, other: State, rows: int) -> bool:
        """Make `state` hold the first `rows` rows observed by `other` in place of all it held.

        False, and nothing has happened, where the drafter cannot.
        """
        return False

    @abstractmethod
    def truncate(self, state: State, length: int) -> None:
        """Forget what was observed from row `length` on."""


def first_pending(
    tokens: Sequence[int], taps: Sequence[Tensor], rows: int
) -> tuple[list[int], list[Tensor]]:
    """The first `rows` rows that wait to be read: their tokens and their taps, copied."""
    return list(tokens[:rows]), [torch.cat(list(taps))[:rows].clone()] if rows else []

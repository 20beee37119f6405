"""What requests promoted in earlier rounds, as far as their limits ask, on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptivespec.integrations.sglang.sampling import upload
from adaptivespec.verify.limits import Ledger
from adaptivespec.verify.margin import MarginOptions

__all__ = ["Ledgers"]


class Ledgers:
    """What ``verify.limits.Ledger`` holds for one request, for every slot, on the device.

    A step begins at the root, a token the host may not have seen yet. So every account ends before
    the newest token: that one cost nothing, and whether it opens or closes a thinking section is
    found when it is walked from.

    A regret window is read off running totals: the regret charged before each of the last output
    positions, in a ring by position. The difference of two totals is what was spent between them.

    Args:
        num_slots: slots are in [0, num_slots).
        max_depth: most levels of a tree.
        max_tokens: most output tokens of a request. A longer window is as good as one of these.
        device: where the arrays live.

    Attributes:
        exact_since: bool[slots], as in ``Ledger``.
        in_think: bool[slots], as in ``Ledger``, before the newest token.
        totals: f64[slots, W], nats; None until a request limits its regret.
    """

    def __init__(
        self, num_slots: int, max_depth: int, max_tokens: int, device: torch.device | str | None
    ) -> None:
        self.exact_since = torch.ones(num_slots, dtype=torch.bool, device=device)
        self.in_think = torch.zeros(num_slots, dtype=torch.bool, device=device)
        self.totals: Tensor | None = None
        self._max_depth = max_depth
        self._max_tokens = max_tokens

    def admit(
        self, slots: Sequence[int], ledgers: Sequence[Ledger], options: Sequence[MarginOptions]
    ) -> None:
        """Start the slots of new requests, and of requests that come back in another slot.

        Args:
            slots: distinct.
            ledgers: what happened so far, with or without the newest token; ``outputs``,
                ``charges``, ``exact_since`` and ``in_think`` are read.
            options: of each request.
        """
        device = self.exact_since.device
        index = upload(torch.tensor(slots), device)
        flags = torch.tensor([[one.exact_since, one.in_think] for one in ledgers])
        self.exact_since[index], self.in_think[index] = upload(flags, device).unbind(-1)
        self._reserve([one.regret_window for one in options if one.max_regret is not None])
        if self.totals is not None:
            rows = torch.zeros(len(slots), self.totals.shape[-1], dtype=torch.float64)
            for row, ledger in zip(rows, ledgers, strict=True):
                _running_totals(ledger, row)
            self.totals[index] = upload(rows, device)

    def spent_before(self, slots: Tensor, place: Tensor) -> Tensor:
        """f64[B, K]: nats charged before each output position ``place`` i64[B, K] so far."""
        totals = self._ring
        found = totals[slots.unsqueeze(-1), place.remainder(totals.shape[-1])]
        return found.masked_fill_(place <= 0, 0.0)  # what stands there is of a later position

    def charge(self, slots: Tensor, place: Tensor, spent: Tensor) -> None:
        """Set what ``spent_before`` gives: ``spent`` f64[B, K] at ``place`` i64[B, K]."""
        totals = self._ring
        totals[slots.unsqueeze(-1), place.remainder(totals.shape[-1])] = spent

    @property
    def _ring(self) -> Tensor:
        if self.totals is None:
            raise ValueError("no request that limits its regret was admitted")
        return self.totals

    def _reserve(self, windows: Sequence[int]) -> None:
        """Make the ring long enough for ``windows``."""
        if not windows:
            return
        length = min(max(windows), self._max_tokens) + self._max_depth + 1
        if self.totals is None:
            shape = (len(self.exact_since), length)
            self.totals = torch.zeros(shape, dtype=torch.float64, device=self.exact_since.device)
        elif self.totals.shape[-1] < length:
            # Repeated, a total stays where its position finds it, whatever that position is.
            self.totals = self.totals.repeat(1, -(-length // self.totals.shape[-1]))


def _running_totals(ledger: Ledger, row: Tensor) -> None:
    """Fill ``row`` f64[W] of a ring, which holds 0, up to the token after the recorded ones."""
    if not ledger.charges:
        return
    oldest = ledger.outputs + 1 - len(row)
    for place, regret in ledger.charges:
        if place >= oldest:
            row[place - oldest] = regret
    row.copy_(row.cumsum(-1).roll(oldest + 1))

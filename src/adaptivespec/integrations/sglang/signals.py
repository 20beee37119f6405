"""The drafter's confidence, brought to the host for the policy.

The value belongs to the coming round but is computed at the end of the one before, on the device.
Reading it there and then stalls a host that runs ahead (overlap scheduling), so two other modes do
with less:

* ``exact``: the coming round's own values; one wait for the device every round.
* ``lag1``: the values of one round earlier, copied while the device works on. They are waited for,
  never polled, so that a run repeats and all ranks agree.
* ``history``: none; the policy goes by acceptance alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from adaptivespec.integrations.sglang.transfer import HostCopy

Mode = Literal["exact", "lag1", "history"]


class Confidence:
    """Top-1 probabilities of the drafter at the root, by request.

    Args:
        mode: see the module.
        group: the tensor-parallel group; every rank goes by rank 0's values. None or a group of one
            broadcasts nothing.
    """

    def __init__(self, mode: Mode, group: Any | None = None) -> None:
        self.mode = mode
        self._group = group if group is not None and group.world_size > 1 else None
        self._copies: deque[tuple[Sequence[str], HostCopy]] = deque()
        self._known: dict[str, float] = {}

    def read(self, requests: Sequence[str], topk_p: Tensor) -> list[float] | None:
        """Values for the coming round, None in mode ``history``; NaN where none is known.

        Args:
            requests: ids, one for each row.
            topk_p: f32[B, K], the drafter's largest probabilities at the root, falling.
        """
        if self.mode == "history":
            return None
        if self.mode == "exact":
            return self._copy(topk_p).read()
        while len(self._copies) > 1:  # the newest may still be in the making
            names, copy = self._copies.popleft()
            self._known.update(zip(names, copy.read(), strict=True))
        self._known = {request: self._known.get(request, math.nan) for request in requests}
        return list(self._known.values())

    def store(self, requests: Sequence[str], topk_p: Tensor | None) -> None:
        """A prefill or a round has ended: start copying its values, for mode ``lag1``."""
        if self.mode == "lag1" and topk_p is not None and len(topk_p) == len(requests):
            self._copies.append((requests, self._copy(topk_p)))

    def _copy(self, topk_p: Tensor) -> HostCopy:
        values = topk_p[:, 0].float().contiguous()
        if self._group is not None:
            self._group.broadcast(values, src=0)
        return HostCopy.of(values)

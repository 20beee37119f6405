"""How many threads the native engine's passes run with. No result depends on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from adaptivespec.native.library import MAX_THREADS

#: A pass that loses more than this share of what further threads could bring is better run alone:
#: threads that wait for one another are slowed by whatever slows one of them.
LOST = 0.5
#: A pass counts a quarter, those before it the rest.
_WEIGHT = 0.25
#: Seconds with one thread before more are tried again; doubled after each trial that failed.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0


class Threads:
    """A fixed number of threads, or with `adaptive` one thread alone while the CPU is busy.

    Python threads may share it: what they overwrite of one another is one observation.
    """

    def __init__(
        self, most: int, adaptive: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most, self.adaptive = most, adaptive and most > 1
        self._clock = clock
        self._level, self._pause, self._resume = 0.0, _FIRST_PAUSE, 0.0

    @classmethod
    def auto(cls) -> Threads:
        """At most torch's number, and the CPUs this process may run on."""
        most = min(torch.get_num_threads(), len(os.sched_getaffinity(0)), MAX_THREADS)
        return cls(most, adaptive=True)

    def now(self) -> int:
        """For the next pass."""
        return 1 if self.adaptive and self._clock() < self._resume else self.most

    def observe(self, threads: int, stalled: float) -> None:
        """What a pass with `threads` threads lost, 0 to 1."""
        if not self.adaptive or threads == 1:
            return
        self._level += _WEIGHT * (stalled - self._level)
        if self._level > LOST:
            self._level = LOST  # one bad trial is enough to pause again
            self._resume = self._clock() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        elif self._level < LOST / 2:
            self._pause = _FIRST_PAUSE

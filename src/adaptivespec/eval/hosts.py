"""Who answers the jobs of a run: workers with a target each, or a server over the network."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

from adaptivespec.eval.arms import Arm
from adaptivespec.eval.targets.base import Answer, Ask
from adaptivespec.eval.targets.server import ServerTarget
from adaptivespec.eval.tasks.base import Item
from adaptivespec.eval.worker import Job, TargetSpec

__all__ = ["ServerHost"]

Finished = queue.Queue[tuple[Item, Answer] | BaseException | None]


class ServerHost:
    """A server that several requests may be under way at.

    Args:
        spec: of a ``ServerTarget``.
        concurrency: requests under way at once, at most.
        request_rate: mean arrivals per second; None sends as soon as there is room.
    """

    def __init__(
        self, spec: TargetSpec, concurrency: int, request_rate: float | None, seed: int
    ) -> None:
        self._target = cast(ServerTarget, spec.make())
        self._concurrency, self._rate, self._seed = concurrency, request_rate, seed
        self.about: str = self._target.about
        self.identity: Mapping[str, Any] = self._target.identity
        self.arms: list[Arm] = list(self._target.arms)

    def answers(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Answer]]:
        """(number of the job, its answer), as they finish; neighbours of one arm go together."""
        numbered = enumerate(jobs)
        for (arm, ask), group in groupby(numbered, key=lambda job: (job[1][0], job[1][2])):
            places = {item.key: (number, item) for number, (_, item, _) in group}
            finished: Finished = queue.Queue()
            work = partial(self._ask, arm, ask, [item for _, item in places.values()], finished)
            threading.Thread(target=work, daemon=True).start()
            while (result := finished.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                item, answer = result
                yield places[item.key][0], answer

    def _ask(self, arm: Arm, ask: Ask, items: Sequence[Item], finished: Finished) -> None:
        """Ask all items; answers, then None or what went wrong, go into the queue."""
        try:
            self._target.answer_many(
                arm,
                items,
                ask,
                concurrency=self._concurrency,
                request_rate=self._rate,
                seed=self._seed,
                on_answer=lambda item, answer: finished.put((item, answer)),
            )
            finished.put(None)
        except BaseException as error:
            finished.put(error)

    def close(self) -> None:
        """Close the connections."""
        self._target.close()

    def __enter__(self) -> ServerHost:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

"""One sequence on its way through the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from adaptivespec.engine.jobs import Job
from adaptivespec.engine.result import Chunk


class Ticket:
    """An asynchronous iterator of the chunks of one job; the last one brings its result.

    Belongs to the event loop it was made on, except for `cancel`.

    Attributes:
        job: what is answered.
        client: whose it is, for turns in the queue.
        cached_tokens: tokens of the prompt whose rows were there already; known with the first
            chunk.
        made: time of its arrival, on the monotonic clock.
        queued_s: seconds before a slot was free; known with the first chunk.
        loop: the event loop it belongs to.
        cancelled: whether `cancel` was called.
    """

    def __init__(self, job: Job, client: str, withdraw: Callable[[Ticket], None]) -> None:
        self.job, self.client = job, client
        self.cached_tokens = 0
        self.queued_s = 0.0
        self.cancelled = False
        self._withdraw = withdraw
        self.made = monotonic()
        self.loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> Ticket:
        return self

    async def __anext__(self) -> Chunk:
        """Raises the typed error that ended the sequence, where that was no finish of its own."""
        if self._ended:
            raise StopAsyncIteration
        item = await self._chunks.get()
        if isinstance(item, Exception):
            self._ended = True
            raise item
        self._ended = item.result is not None
        return item

    def cancel(self) -> None:
        """Nobody waits for it any more: it leaves the queue, or stops after the current step."""
        if not self.cancelled:
            self.cancelled = True
            self._withdraw(self)

    def admitted(self) -> None:
        """It has a slot."""
        self.queued_s = monotonic() - self.made

    def deliver(self, item: Chunk | Exception) -> None:
        """On the event loop: what the iterator gives next."""
        self._chunks.put_nowait(item)

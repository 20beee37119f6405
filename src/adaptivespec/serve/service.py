"""The engine's thread: takes requests from a bounded queue and decodes them together."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import Literal

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError
from adaptivespec.engine.batch import Batch, Member
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.jobs import Job
from adaptivespec.engine.load import DraftLoad
from adaptivespec.engine.result import Chunk
from adaptivespec.serve.queue import FairQueue
from adaptivespec.serve.slots import Slots
from adaptivespec.serve.ticket import Ticket

__all__ = [
    "AdaptToLoad",
    "DrainingError",
    "EngineFailedError",
    "QueueFullError",
    "Service",
    "Ticket",
]

AdaptToLoad = Literal["lossless", "all", "off"]
_log = logging.getLogger("adaptivespec.serve")


class QueueFullError(AdaptiveSpecError):
    """There is no room in the queue; `retry_after` is in seconds."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(f"{waiting} requests wait already", remedy=f"Try again in {retry_after} s")


class DrainingError(AdaptiveSpecError):
    """The server is shutting down."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down", remedy="Try another one")


class EngineFailedError(AdaptiveSpecError):
    """The engine's thread ended; its error is the cause."""

    def __init__(self) -> None:
        super().__init__("the engine has failed", remedy="Its log says why; start it again")


class Service:
    """Decodes what is submitted, several requests in one pass, and hands the chunks back.

    Args:
        engine: the model; nothing else may decode with it meanwhile.
        slots: sequences decoded together at most.
        queue: further ones that may wait.
        adapt_to_load: whether less is drafted when requests share a pass: "lossless" does so where
            a request's tokens do not depend on it, "all" everywhere, "off" nowhere.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        slots: int = 16,
        queue: int = 64,
        adapt_to_load: AdaptToLoad = "lossless",
    ) -> None:
        if slots < 1:
            raise ConfigError(f"must be at least 1, got {slots}", field="max_num_seqs")
        if queue < 0:
            raise ConfigError(f"must be at least 0, got {queue}", field="max_queue")
        self.engine, self.slots, self.queue = engine, slots, queue
        self.adapt_to_load = adapt_to_load
        self.failure: BaseException | None = None
        self.draining = False
        self._slots = Slots(engine, slots)
        self._batch = Batch(engine.target, neighbours=self._slots.sessions)
        self._tickets: dict[Member, Ticket] = {}
        self._waiting: FairQueue[Ticket] = FairQueue()
        self._withdrawn: list[Ticket] = []
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="adaptivespec-engine", daemon=True)
        self._idle: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._typical_s = 1.0

    def start(self) -> None:
        """Measure what there is to measure, and begin."""
        if self.adapt_to_load != "off" and self.engine.drafter is not None:
            costs = self.engine.costs()
            self._batch.load = DraftLoad(costs, every_rule=self.adapt_to_load == "all")
        self._thread.start()

    @property
    def running(self) -> int:
        """Sequences that have a slot."""
        return len(self._tickets)

    @property
    def waiting(self) -> int:
        """Sequences that have none yet."""
        return len(self._waiting)

    @property
    def kv_tokens(self) -> int:
        """Rows that the slots hold, those kept for later requests included."""
        return self._slots.tokens

    @property
    def steps(self) -> int:
        """Decode passes so far, each shared by all who decoded then."""
        return self._batch.passes

    def submit(self, jobs: Sequence[Job], client: str = "") -> list[Ticket]:
        """Take in all jobs or none. To be called on the event loop that reads the tickets.

        Raises:
            QueueFullError: there are not enough places.
            DrainingError: the server is shutting down.
            EngineFailedError: the engine's thread is dead.
        """
        tickets = [Ticket(job, client, self._withdraw) for job in jobs]
        with self._changed:
            if self.failure is not None:
                raise EngineFailedError from self.failure
            if self.draining or self._closed:
                raise DrainingError
            places = self.slots + self.queue - self.running - self.waiting
            if len(jobs) > places:
                raise QueueFullError(self.waiting, self._retry_after())
            for ticket in tickets:
                self._waiting.put(client, ticket)
            self._changed.notify()
        return tickets

    async def drain(self, timeout: float) -> bool:
        """Refuse what comes, and wait for what is here; False when some of it had to be cancelled.

        Whoever waits for a cancelled one gets a DrainingError.
        """
        with self._changed:
            self.draining = True
            idle = asyncio.Event()
            self._idle = asyncio.get_running_loop(), idle
            self._note_idle()
        try:
            await asyncio.wait_for(idle.wait(), timeout)
        except TimeoutError:
            with self._changed:
                left = [*self._tickets.values(), *self._waiting.drain()]
                self._withdrawn.extend(self._tickets.values())
                self._changed.notify()
            for ticket in left:
                ticket.deliver(DrainingError())
            return not left
        return True

    def close(self) -> None:
        """Stop after the current step, and wait for that."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _withdraw(self, ticket: Ticket) -> None:
        with self._changed:
            if self._waiting.remove(ticket.client, ticket):
                self._note_idle()
            else:
                self._withdrawn.append(ticket)
                self._changed.notify()

    def _retry_after(self) -> int:
        """Seconds until about half of those who wait now will have had their turn."""
        turns = (self.waiting / 2 + self.slots) / self.slots
        return max(1, min(60, math.ceil(turns * self._typical_s)))

    def _run(self) -> None:
        try:
            while self._admit():
                self._step()
        except BaseException as error:
            _log.exception("the engine has failed")
            with self._changed:
                self.failure = error
                left = [*self._tickets.values(), *self._waiting.drain()]
                self._tickets.clear()
                self._note_idle()
            self._hand_over([(ticket, EngineFailedError()) for ticket in left])

    def _admit(self) -> bool:
        """Let go of who left, take in who may come, and wait while there is nobody."""
        failed: list[tuple[Ticket, Chunk | Exception]] = []
        with self._changed:
            while True:
                self._release()
                while self._waiting and self._slots.free:
                    ticket = self._waiting.pop()
                    try:
                        self._enter(ticket)
                    except Exception as error:
                        failed.append((ticket, error))
                self._note_idle()
                if self._closed or self._tickets or failed:
                    break
                self._changed.wait()
        self._hand_over(failed)
        return not self._closed

    def _enter(self, ticket: Ticket) -> None:
        session = self._slots.take(ticket.job.request.prompt)
        try:
            member = self._batch.add(ticket.job, session)
        except BaseException:
            self._slots.give(session)
            raise
        self._tickets[member] = ticket
        ticket.admitted()

    def _release(self) -> None:
        """Take out those whom nobody waits for."""
        gone = set(self._withdrawn)
        self._withdrawn.clear()
        for member, ticket in list(self._tickets.items() if gone else ()):
            if ticket in gone:
                del self._tickets[member]
                self._batch.remove(member)
                self._slots.give(member.session)

    def _step(self) -> None:
        moved = self._batch.step()
        deliveries: list[tuple[Ticket, Chunk | Exception]] = []
        with self._changed:
            for member, chunk in moved:
                ticket = self._tickets[member]
                ticket.cached_tokens = member.decoder.cached_tokens
                if chunk is None or chunk.result is not None:
                    del self._tickets[member]
                    self._slots.give(member.session)
                    self._typical_s += 0.1 * (monotonic() - ticket.made - self._typical_s)
                item = chunk if member.error is None else member.error
                if item is not None:
                    deliveries.append((ticket, item))
            self._note_idle()
        self._hand_over(deliveries)

    def _hand_over(self, deliveries: Sequence[tuple[Ticket, Chunk | Exception]]) -> None:
        """To the event loops, one call for each: it is woken once per step, not per chunk."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Ticket, Chunk | Exception]]] = {}
        for ticket, item in deliveries:
            loops.setdefault(ticket.loop, []).append((ticket, item))
        for loop, items in loops.items():
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(_deliver, items)

    def _note_idle(self) -> None:
        if self._idle is not None and not self._tickets and not self._waiting:
            loop, event = self._idle
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)


def _deliver(items: Sequence[tuple[Ticket, Chunk | Exception]]) -> None:
    for ticket, item in items:
        ticket.deliver(item)

"""The engine's thread: order, bounds, cancelling, draining, failing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec import Engine
from adaptivespec.core.errors import ConfigError, NumericalError
from adaptivespec.engine.result import GenerationResult
from adaptivespec.serve.queue import FairQueue
from adaptivespec.serve.service import DrainingError, EngineFailedError, QueueFullError, Service
from adaptivespec.serve.slots import Slots
from adaptivespec.serve.ticket import Ticket
from fakes import scripted, tiny_engine

LONG = {"max_tokens": 100, "ignore_eos": True, "policy": "none"}


@asynccontextmanager
async def serving(engine: Engine, **options: Any) -> AsyncIterator[Service]:
    service = Service(engine, **options)
    service.start()
    try:
        yield service
    finally:
        service.close()


async def result_of(ticket: Ticket) -> GenerationResult:
    text = ""
    async for chunk in ticket:
        text += chunk.text
    assert text == ticket.job.result.text
    return ticket.job.result


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


class Gate:
    """Holds the engine's thread before each pass over trees until it is opened."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached = Event(), Event()
        verify = engine.target.verify_many

        def held(*arguments: Any) -> Any:
            self.reached.set()
            assert self.open.wait(30)
            return verify(*arguments)

        monkeypatch.setattr(engine.target, "verify_many", held)


def test_results_are_those_of_solo_runs_and_slots_come_back() -> None:
    engine = tiny_engine.endless()
    asked = [
        ([n, n + 1], {"max_tokens": 5 + n, "temperature": n % 2, "seed": n}) for n in range(12)
    ]
    alone = [engine.generate(prompt, **options).token_ids for prompt, options in asked]

    async def run() -> None:
        async with serving(engine, slots=3) as service:
            tickets = [service.submit([engine.job(p, **o)])[0] for p, o in asked]
            results = await asyncio.gather(*map(result_of, tickets))
            assert [r.token_ids for r in results] == alone
            assert (service.running, service.waiting) == (0, 0)
            assert service._slots.free == 3
            assert 0 < service.steps < sum(len(ids) for ids in alone)

    asyncio.run(run())


def test_what_does_not_fit_is_refused_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine.endless()
    gate = Gate(engine, monkeypatch)

    async def run() -> None:
        async with serving(engine, slots=2, queue=2) as service:
            job = lambda: engine.job([1], max_tokens=4)  # noqa: E731
            tickets = service.submit([job(), job(), job()])
            with pytest.raises(QueueFullError) as caught:
                service.submit([job(), job()])
            assert 1 <= caught.value.retry_after <= 60
            tickets += service.submit([job()])
            with pytest.raises(QueueFullError):
                service.submit([job()])
            gate.open.set()
            results = await asyncio.gather(*map(result_of, tickets))
            assert [r.finish_reason for r in results] == ["length"] * 4
            assert len(service.submit([job()])) == 1

    asyncio.run(run())


@pytest.mark.parametrize("point", ["running", "waiting"])
def test_who_is_cancelled_makes_room(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine.endless()
    gate = Gate(engine, monkeypatch)

    async def run() -> None:
        async with serving(engine, slots=1, queue=1) as service:
            first, second = service.submit([engine.job([1], **LONG), engine.job([2], **LONG)])
            await asyncio.to_thread(gate.reached.wait)
            assert (service.running, service.waiting) == (1, 1)
            gone, left = (first, second) if point == "running" else (second, first)
            gone.cancel()
            gone.cancel()
            gate.open.set()
            assert (await result_of(left)).completion_tokens == 100
            assert gone.job.result.completion_tokens < 100
            assert (service.running, service.waiting) == (0, 0)
            left.cancel()  # too late, and no harm
            third = service.submit([engine.job([3], max_tokens=2)])[0]
            assert (await result_of(third)).completion_tokens == 2

    asyncio.run(run())


def test_cancelling_everyone_over_and_over_leaks_nothing() -> None:
    engine = tiny_engine.endless()

    async def run() -> None:
        async with serving(engine, slots=3, queue=9) as service:
            for round in range(50):
                tickets = service.submit([engine.job([n, 2], **LONG) for n in range(6)])
                if round % 2:
                    await anext(tickets[0])
                for ticket in tickets:
                    ticket.cancel()
                await until(lambda: service.running + service.waiting == 0)
            assert service._slots.free == 3
            assert service._batch.members == []

    asyncio.run(run())


class TestDrain:
    def test_it_waits_for_all_and_takes_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = tiny_engine.endless()
        gate = Gate(engine, monkeypatch)

        async def run() -> None:
            async with serving(engine, slots=1) as service:
                tickets = service.submit([engine.job([n], max_tokens=9) for n in (1, 2)])
                drained = asyncio.create_task(service.drain(30))
                await until(lambda: service.draining)
                with pytest.raises(DrainingError):
                    service.submit([engine.job([3])])
                gate.open.set()
                assert await drained
                done = await asyncio.gather(*map(result_of, tickets))
                assert [r.completion_tokens for r in done] == [9, 9]

        asyncio.run(run())

    def test_whoever_takes_too_long_hears_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = tiny_engine.endless()
        gate = Gate(engine, monkeypatch)

        async def run() -> None:
            async with serving(engine, slots=1) as service:
                tickets = service.submit([engine.job([n], **LONG) for n in (1, 2)])
                await asyncio.to_thread(gate.reached.wait)
                assert not await service.drain(0.01)
                gate.open.set()
                for ticket in tickets:
                    with pytest.raises(DrainingError):
                        await result_of(ticket)
                await until(lambda: service.running == 0)

        asyncio.run(run())

    def test_an_idle_one_is_drained_at_once(self) -> None:
        async def run() -> None:
            async with serving(tiny_engine.endless()) as service:
                assert await service.drain(30)

        asyncio.run(run())


def test_an_error_of_one_reaches_its_reader_alone() -> None:
    def logits(prefix: tuple[int, ...]) -> list[float]:
        bad = prefix[0] == 9 and len(prefix) > 3
        return [float("nan")] * scripted.VOCAB if bad else scripted.prefer(4)

    engine = scripted.engine(logits, lambda prefix: [])

    async def run() -> None:
        async with serving(engine) as service:
            sick, well = service.submit([engine.job([n], max_tokens=9) for n in (9, 8)])
            with pytest.raises(NumericalError, match="NaN"):
                await result_of(sick)
            assert (await result_of(well)).completion_tokens == 9
            assert service.failure is None
            again = service.submit([engine.job([8], max_tokens=3)])[0]
            assert (await result_of(again)).completion_tokens == 3

    asyncio.run(run())


def test_a_dead_thread_is_told_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine.endless()
    gate = Gate(engine, monkeypatch)

    async def run() -> None:
        async with serving(engine, slots=1) as service:
            tickets = service.submit([engine.job([n], **LONG) for n in (1, 2)])
            await asyncio.to_thread(gate.reached.wait)

            def fail(*arguments: object) -> None:
                raise MemoryError

            monkeypatch.setattr(service._batch, "step", fail)
            gate.open.set()
            for ticket in tickets:
                with pytest.raises(EngineFailedError):
                    await result_of(ticket)
            assert isinstance(service.failure, MemoryError)
            with pytest.raises(EngineFailedError):
                service.submit([engine.job([3])])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "field"), [({"slots": 0}, "max_num_seqs"), ({"queue": -1}, "max_queue")]
)
def test_sizes_are_checked(options: dict[str, int], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Service(tiny_engine.endless(), **options)
    assert caught.value.field == field


class TestQueue:
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=20))
    def test_every_client_is_served_in_order_and_none_is_lost(self, items: Any) -> None:
        queue: FairQueue[tuple[str, int]] = FairQueue()
        for item in items:
            queue.put(item[0], item)
        assert len(queue) == len(items)
        served = [queue.pop() for _ in items]
        for client in "abc":
            assert [i for i in served if i[0] == client] == [i for i in items if i[0] == client]
        assert len(queue) == 0
        with pytest.raises(IndexError):
            queue.pop()

    def test_one_with_many_does_not_hold_up_one_with_few(self) -> None:
        queue: FairQueue[str] = FairQueue()
        for n in range(9):
            queue.put("greedy", f"g{n}")
        queue.put("modest", "m0")
        assert [queue.pop() for _ in range(3)] == ["g0", "m0", "g1"]

    def test_what_is_removed_does_not_come(self) -> None:
        queue: FairQueue[int] = FairQueue()
        queue.put("a", 1)
        queue.put("a", 2)
        assert queue.remove("a", 1)
        assert not queue.remove("a", 1)
        assert not queue.remove("b", 2)
        assert queue.drain() == [2]
        assert len(queue) == 0


class TestSlots:
    def test_the_next_turn_finds_its_rows(self) -> None:
        engine = tiny_engine.endless()
        slots = Slots(engine, 2)
        one, other = slots.take([1, 2, 3]), slots.take([7, 8])
        first = engine.generate([1, 2, 3], session=one, max_tokens=6)
        engine.generate([7, 8], session=other, max_tokens=6)
        slots.give(other)
        slots.give(one)
        turn = [1, 2, 3, *first.token_ids, 5]
        assert slots.take(turn) is one
        job = engine.job(turn, max_tokens=2)
        assert one.open(job.request.prompt, True) >= 3 + 4

    def test_a_shared_beginning_is_not_worth_a_whole_conversation(self) -> None:
        engine = tiny_engine.endless()
        slots = Slots(engine, 2)
        session = slots.take([1])
        engine.generate([1, 2, 3], session=session, max_tokens=30)
        slots.give(session)
        assert slots.take([1, 2, 9]) is not session
        assert slots.free == 1

    def test_who_was_idle_longest_goes_first(self) -> None:
        engine = tiny_engine.endless()
        slots = Slots(engine, 2)
        old, new = slots.take([1]), slots.take([2])
        for session, prompt in ((old, [1]), (new, [2])):
            engine.generate(prompt, session=session, max_tokens=9)
            slots.give(session)
        assert slots.tokens == sum(len(s.tokens) for s in (old, new))
        assert slots.take([3, 3]) is old
        assert slots.take([3, 3]) is new
        with pytest.raises(ValueError, match="taken"):
            slots.take([4])


def test_the_cached_part_of_a_prompt_is_told() -> None:
    engine = tiny_engine.endless()

    async def run() -> None:
        async with serving(engine) as service:
            first = service.submit([engine.job([1, 2, 3, 4], max_tokens=8)])[0]
            answer = await result_of(first)
            turn = [1, 2, 3, 4, *answer.token_ids, 9]
            second = service.submit([engine.job(turn, max_tokens=8)])[0]
            again = await result_of(second)
            assert first.cached_tokens == 0
            assert len(turn) > second.cached_tokens >= 4 + 5
            assert again.token_ids == engine.generate(turn, max_tokens=8).token_ids

    asyncio.run(run())

"""When the requests of a load test are sent, and by how many askers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import perf_counter
from typing import TypeVar

from adaptivespec.core.errors import ConfigError

__all__ = ["arrival_times", "send_all"]

Request = TypeVar("Request")


def arrival_times(count: int, rate: float | None, seed: int) -> list[float]:
    """Seconds from the start at which requests arrive: a Poisson process, the first one at once.

    Args:
        count: of requests.
        rate: requests per second; None has all of them arrive at the start.
        seed: of the gaps, which are exponential with mean 1 / rate.

    Raises:
        ConfigError: the rate is not above 0.
    """
    if rate is None:
        return [0.0] * count
    if not 0 < rate < float("inf"):
        raise ConfigError(f"must be above 0, got {rate}", field="request_rate")
    draws = random.Random(seed)  # noqa: S311  gaps between requests, no secrets
    times, now = [], 0.0
    for _ in range(count):
        times.append(now)
        now += draws.expovariate(rate)
    return times


async def send_all(
    requests: Sequence[Request],
    times: Sequence[float],
    concurrency: int | None,
    send: Callable[[Request], Awaitable[None]],
) -> None:
    """Await `send` of every request once, none before its time, `concurrency` at once at most.

    Requests that find all askers busy are sent late, in order. The first exception of `send` stops
    the others and is raised; so does cancellation.

    Raises:
        ConfigError: concurrency below 1.
    """
    if concurrency is not None and concurrency < 1:
        raise ConfigError(f"must be at least 1, got {concurrency}", field="concurrency")
    begin = perf_counter()
    waiting: Iterator[tuple[Request, float]] = zip(requests, times, strict=True)

    async def ask_on() -> None:
        for request, due in waiting:
            await asyncio.sleep(max(0.0, begin + due - perf_counter()))
            await send(request)

    askers = min(concurrency or len(requests), len(requests))
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(askers):
                group.create_task(ask_on())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None

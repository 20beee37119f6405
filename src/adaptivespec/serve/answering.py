"""ASGI responses that watch their client: who leaves is not decoded for."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from adaptivespec.serve.errors import ApiError, api_error, dumps
from adaptivespec.serve.metrics import Watch

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from adaptivespec.engine.result import Chunk
    from adaptivespec.serve.metrics import Metrics
    from adaptivespec.serve.responses import Writer
    from adaptivespec.serve.service import Ticket

__all__ = ["ABORT", "Streamed", "Whole"]

#: Key of the scope's extensions: closes the connection without waiting for who does not read.
ABORT = "adaptivespec.abort"
JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies would hold chunks back
]
_BACKLOG = 64  # chunks of several choices that wait to be written


class ClientGoneError(Exception):
    """The client left, or accepts nothing."""


class _Answer(Response, ABC):
    """Tickets that end with the response, whatever ends it."""

    def __init__(
        self, writer: Writer, tickets: Sequence[Ticket], metrics: Metrics, arrived: float
    ) -> None:
        super().__init__()
        self._writer, self._tickets, self._metrics = writer, tickets, metrics
        self._watches = [Watch(metrics, ticket, arrived) for ticket in tickets]
        self._done = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(ClientGoneError):
                await self._while_connected(receive, self._answer(scope, send))
        finally:
            for ticket, watch in zip(self._tickets, self._watches, strict=True):
                ticket.cancel()
                watch.end()

    @abstractmethod
    async def _answer(self, scope: Scope, send: Send) -> None:
        """Send the response."""

    async def _while_connected(self, receive: Receive, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; cancel it when the client leaves before it is done."""
        task = asyncio.create_task(work)
        gone = asyncio.create_task(_disconnect(receive))
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not self._done:
                raise ClientGoneError
            await task
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    def _observe(self, index: int, chunk: Chunk) -> None:
        watch = self._watches[index]
        watch.chunk(chunk)
        if chunk.result is not None:
            watch.end()


class Whole(_Answer):
    """One JSON object when everything is there."""

    async def _answer(self, scope: Scope, send: Send) -> None:
        chunks: list[list[Chunk]] = [[] for _ in self._tickets]
        headers = [JSON]
        status = 200
        try:
            async with aclosing(_merged(self._tickets)) as arriving:
                async for index, chunk in arriving:
                    chunks[index].append(chunk)
                    self._observe(index, chunk)
            body = dumps(self._writer.whole(chunks))
        except Exception as error:
            told = _told(error, self._metrics)
            body, status = dumps(told.body()), told.status
            headers += [(k.lower().encode(), v.encode()) for k, v in told.headers.items()]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        self._done = True
        await send({"type": "http.response.body", "body": body})


class Streamed(_Answer):
    """Server-sent events; `send_timeout` in seconds is for a client that accepts nothing."""

    def __init__(self, *arguments: Any, usage: bool, send_timeout: float) -> None:
        super().__init__(*arguments)
        self._usage, self._timeout = usage, send_timeout

    async def _answer(self, scope: Scope, send: Send) -> None:
        async def write(content: bytes, more: bool = True) -> None:
            try:
                async with asyncio.timeout(self._timeout):
                    await send({"type": "http.response.body", "body": content, "more_body": more})
            except TimeoutError:
                abort = scope.get("extensions", {}).get(ABORT)
                if abort is not None:
                    abort()
                raise ClientGoneError from None

        await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
        try:
            async with aclosing(_merged(self._tickets)) as arriving:
                async for index, chunk in arriving:
                    self._observe(index, chunk)
                    objects = self._writer.chunk(index, chunk)
                    if objects:
                        await write(b"".join(map(_event, objects)))
            end = _event(self._writer.last()) if self._usage else b""
            end += b"data: [DONE]\n\n"
        except ClientGoneError:
            raise
        except Exception as error:
            end = _event(_told(error, self._metrics).body())
        self._done = True
        await write(end, more=False)


async def _merged(tickets: Sequence[Ticket]) -> AsyncGenerator[tuple[int, Chunk], None]:
    """Chunks of all tickets as they come, each with the index of its ticket."""
    if len(tickets) == 1:
        async for chunk in tickets[0]:
            yield 0, chunk
        return
    arriving: asyncio.Queue[tuple[int, Chunk | Exception | None]] = asyncio.Queue(_BACKLOG)

    async def pump(index: int, ticket: Ticket) -> None:
        try:
            async for chunk in ticket:
                await arriving.put((index, chunk))
            await arriving.put((index, None))
        except Exception as error:
            await arriving.put((index, error))

    pumps = [asyncio.create_task(pump(i, ticket)) for i, ticket in enumerate(tickets)]
    try:
        left = len(tickets)
        while left:
            index, item = await arriving.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield index, item
    finally:
        for task in pumps:
            task.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(value: Any) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


def _told(error: Exception, metrics: Metrics) -> ApiError:
    told = api_error(error)
    metrics.rejected(told.code)
    return told

"""Running an app: the socket, signals, and an end that loses no answer."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from adaptivespec.core.errors import ConfigError
from adaptivespec.serve.answering import ABORT

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from adaptivespec.serve.service import Service

__all__ = ["Server", "bind"]

#: Seconds in which answers that are complete must have been taken, at the end.
_LAST_WORDS = 5
#: The engine's thread holds the interpreter for at most so long while answers wait to be written.
_SWITCH_S = 0.0005


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address; port 0 takes any that is free.

    Raises ConfigError: the address is in use, or none of this machine.
    """
    if not 0 <= port <= 65535:  # beyond, it would be cut to 16 bits
        raise ConfigError(f"must be in [0, 65535], got {port}", field="port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise _unusable(host, port, error) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _unusable(host, port, error) from None
    return bound


class Server:
    """One app at one socket, for the life of a process or of a test.

    On SIGTERM, SIGINT and `stop`, requests under way may end, within `drain_timeout` seconds; new
    ones get 503. What is left then is cancelled, and told so. A second signal does that at once.

    Args:
        bound: as `bind` makes it; `run` closes it.
        on_ready: called with the port when requests are accepted.
        on_drain: called when the end begins.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        bound: socket.socket,
        *,
        drain_timeout: float = 30.0,
        on_ready: Callable[[int], None] = lambda port: None,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        self.port: int = bound.getsockname()[1]
        self._bound = bound
        config = uvicorn.Config(
            _with_abort(app),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            timeout_graceful_shutdown=_LAST_WORDS,
        )

        async def drain() -> None:
            on_drain()
            await service.drain(drain_timeout)

        async def cut_short() -> None:
            await service.drain(0)

        self._uvicorn = _Uvicorn(config, lambda: on_ready(self.port), (drain, cut_short))

    def run(self) -> bool:
        """Serve until the end; False when a second signal cut it short.

        Raises ConfigError: somebody else listens there by now.
        """
        host = self._bound.getsockname()[0]
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            self._uvicorn.run([self._bound])
        except OSError as error:
            raise _unusable(host, self.port, error) from None
        finally:
            sys.setswitchinterval(before)
            self._bound.close()
        return self._uvicorn.signals < 2

    def stop(self) -> None:
        """Begin the end, from any thread."""
        self._uvicorn.handle_exit(signal.SIGTERM, None)


class _Uvicorn(uvicorn.Server):
    """uvicorn that does something at each signal before it closes connections.

    Args:
        on_ready: called when connections are accepted.
        endings: what the first signal starts, the second, ...; one more ends without ado.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None],
        endings: Sequence[Callable[[], Coroutine[Any, Any, None]]],
    ) -> None:
        super().__init__(config)
        self.signals = 0
        self._on_ready, self._endings = on_ready, endings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        if self.signals:
            self._end()
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The parent would raise the signal again in the end, and so give its exit code.
        self.signals += 1
        if self.signals > len(self._endings):
            self.should_exit = self.force_exit = True
        elif self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        reached = min(self.signals, len(self._endings))  # more may have come since it was scheduled
        self._ending = asyncio.ensure_future(self._then_exit(self._endings[reached - 1]))

    async def _then_exit(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await ending()
        self.should_exit = True


def _with_abort(app: ASGIApp) -> ASGIApp:
    """The app, with a way to cut off a client that reads nothing, where uvicorn offers one."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: Any = getattr(send, "__self__", None)
        transport = getattr(cycle, "transport", None)
        if transport is not None:
            extensions = scope.get("extensions") or {}
            scope = {**scope, "extensions": {**extensions, ABORT: transport.abort}}
        await app(scope, receive, send)

    return wrapped


def _unusable(host: str, port: int, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or str(error)
    where = f"cannot serve at {host} port {port}: {reason}"
    if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
        remedy = "Stop what listens there, or choose another with --port (0 takes any)"
        return ConfigError(where, field="port", remedy=remedy)
    remedy = "Use an address of this machine, such as 127.0.0.1 or 0.0.0.0"
    return ConfigError(where, field="host", remedy=remedy)

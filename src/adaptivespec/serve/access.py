"""Who may use the API: keys, and names under which a server of this machine may be reached."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING

from adaptivespec.serve.errors import ApiError, dumps

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from adaptivespec.serve.metrics import Metrics
    from adaptivespec.serve.settings import ServeSettings

__all__ = ["Access", "is_loopback"]


class Access:
    """ASGI middleware: 401 for /v1 without a key that is right, 403 for a foreign host name.

    A page of the web whose name is made to point at 127.0.0.1 could use a server there that has no
    key. Such requests bear the page's name as their host: without a key, only addresses and
    localhost are let in.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._keys = [key.encode() for key in settings.api_keys]
        self._check_host = settings.loopback and not settings.api_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
            return
        self._metrics.rejected(error.code)
        body = dumps(error.body())
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", str(len(body)).encode()))
        headers += [(name.lower().encode(), text.encode()) for name, text in error.headers.items()]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = dict(scope["headers"])
        if self._check_host and not _is_local_name(headers.get(b"host", b"")):
            return ApiError(
                403,
                "this server has no key and answers to localhost and to addresses only. "
                "Start it with --api-key to reach it under another name",
                code="host_not_allowed",
            )
        path: str = scope["path"]
        if not self._keys or not (path == "/v1" or path.startswith("/v1/")):
            return None
        given = headers.get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        right = [hmac.compare_digest(key.strip(), one) for one in self._keys]
        if scheme.lower() == b"bearer" and any(right):
            return None
        problem = "the API key is wrong" if given else "an API key is needed"
        return ApiError(
            401,
            f"{problem}. Send it with the header Authorization: Bearer KEY",
            code="invalid_api_key",
            kind="authentication_error",
            headers={"WWW-Authenticate": "Bearer"},
        )


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_local_name(host: bytes) -> bool:
    name = host.decode("latin-1").strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

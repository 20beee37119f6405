"""The body of a request: read within limits, and parsed strictly."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from starlette.requests import ClientDisconnect

from adaptivespec.serve.errors import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request

    from adaptivespec.serve.settings import ServeSettings

__all__ = ["parse", "read_body"]

_LARGEST = 2**63  # integers beyond it are no number that any field can mean


async def read_body(request: Request, settings: ServeSettings) -> dict[str, Any]:
    """The JSON object of a request.

    Raises ApiError: 415 for another type than JSON, 413 past the limit, with a length or without,
    408 when it takes too long to arrive, 400 when it is no sound JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            f"the body must be JSON, and its type is {kind[:80] or 'not given'}. "
            "Send it with the header Content-Type: application/json",
            code="unsupported_media_type",
        )
    return parse(await _read(request, settings))


async def _read(request: Request, settings: ServeSettings) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > settings.max_body_bytes:
        raise _too_large(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for piece in request.stream():
                body += piece
                if len(body) > settings.max_body_bytes:
                    raise _too_large(settings)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body did not arrive within {settings.body_timeout:g} s",
            code="request_timeout",
            headers={"Connection": "close"},
        ) from None
    except ClientDisconnect:  # nobody reads the answer
        raise ApiError(400, "the client left", code="client_gone") from None
    return bytes(body)


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object without NaN, infinities, repeated names and numbers beyond 64 bits."""
    try:
        value = json.loads(
            body,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_int=_integer,
            parse_float=_float,
        )
    except RecursionError:
        raise _bad_json("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _bad_json(f"it is not UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise _bad_json(str(error)) from None
    if not isinstance(value, dict):
        raise _bad_json("it must be an object, in braces")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = counts.most_common(1)[0][0]
        raise ValueError(f"{twice[:80]!r} is given twice in one object")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _integer(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) > _LARGEST:
        raise ValueError(f"the number {text[:24]} is too large")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:24]} is too large")
    return value


def _bad_json(problem: str) -> ApiError:
    return ApiError(400, f"the body is no valid JSON: {problem}", code="invalid_json")


def _too_large(settings: ServeSettings) -> ApiError:
    return ApiError(
        413,
        f"the body is larger than {settings.max_body_bytes} bytes. Send less, or start the server "
        "with a larger --max-body-bytes",
        code="request_too_large",
        headers={"Connection": "close"},
    )

"""Errors as OpenAI's API words them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from adaptivespec.core.errors import AdaptiveSpecError, ConfigError, ContextLengthError, PromptError
from adaptivespec.serve.service import DrainingError, EngineFailedError, QueueFullError

__all__ = ["ApiError", "api_error", "dumps", "refusal"]

log = logging.getLogger("adaptivespec.serve")

INVALID, SERVER = "invalid_request_error", "server_error"
#: Seconds after which a client may ask again while the server ends.
RETRY_AFTER_DRAIN = 30


class ApiError(Exception):
    """An answer that is an error.

    Args:
        message: what is wrong, what is legal, and what to do.
        code: short, for programs; one of a few.
        param: the request's field that it is about.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        kind: str = INVALID,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param
        self.code, self.kind, self.headers = code, kind, dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON object of the response, or of the event that ends a stream."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def refusal(param: str, problem: str, remedy: str = "", code: str = "invalid_value") -> ApiError:
    """400 for one field."""
    message = f"{param}: {problem}" + (f". {remedy}" if remedy else "")
    return ApiError(400, message, param=param, code=code)


def api_error(error: BaseException, names: Mapping[str, str] | None = None) -> ApiError:
    """What the client is told of an exception; what it cannot help is logged.

    Args:
        names: fields of our own errors -> fields of the request.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(
            429,
            str(error),
            code="queue_full",
            kind="rate_limit_error",
            headers={"Retry-After": str(error.retry_after)},
        )
    if isinstance(error, DrainingError):
        return ApiError(
            503,
            str(error),
            code="draining",
            kind=SERVER,
            headers={"Retry-After": str(RETRY_AFTER_DRAIN)},
        )
    if isinstance(error, EngineFailedError):
        return ApiError(503, str(error), code="engine_failed", kind=SERVER)
    if isinstance(error, (ConfigError, PromptError)):
        names = {"rule_options": "rule", "policy_options": "policy", **(names or {})}
        field = (error.field or "").partition("[")[0]
        head = field.partition(".")[0]
        param = names.get(field) or names.get(head, head) or None
        too_long = isinstance(error, ContextLengthError)
        place = f"{field}: " if field and field != param else f"{param}: " if param else ""
        remedy = f". {error.remedy}" if error.remedy else ""
        code = "context_length_exceeded" if too_long else "invalid_value"
        return ApiError(400, f"{place}{error.message}{remedy}", param=param, code=code)
    log.error("a request failed", exc_info=error)
    if isinstance(error, AdaptiveSpecError):
        return ApiError(500, str(error), code="generation_failed", kind=SERVER)
    return ApiError(
        500,
        "the server failed on this request; its log says more",
        code="internal_error",
        kind=SERVER,
    )


def dumps(value: Any) -> bytes:
    """JSON in UTF-8. Lone surrogates, which UTF-8 lacks, are written as JSON's escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")

"""The app: OpenAI's endpoints, health, metrics and the page, over one service."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from adaptivespec.policy import POLICIES
from adaptivespec.serve.access import Access
from adaptivespec.serve.answering import Streamed, Whole
from adaptivespec.serve.body import read_body
from adaptivespec.serve.errors import ApiError, api_error, dumps
from adaptivespec.serve.metrics import CONTENT_TYPE, Metrics
from adaptivespec.serve.page import render
from adaptivespec.serve.parameters import Kind, read_ask
from adaptivespec.serve.prepare import prepare
from adaptivespec.serve.responses import Writer
from adaptivespec.verify import RULES, make_rule

if TYPE_CHECKING:
    from adaptivespec.engine.result import GenerationResult
    from adaptivespec.serve.service import Service
    from adaptivespec.serve.settings import ServeSettings

__all__ = ["create_app"]

_READ = ["GET", "HEAD"]
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def create_app(service: Service, settings: ServeSettings) -> FastAPI:
    """The app of a service, which the caller starts after this, and closes.

    Raises ConfigError: rule and policy of the settings do not suit the model.
    """
    if service.engine.drafter is not None:
        service.engine.costs()  # some policies need them, and nothing can be measured under load
    server = _Server(service, settings)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.metrics = server.metrics
    app.add_api_route("/v1/chat/completions", server.chat, methods=["POST"])
    app.add_api_route("/v1/completions", server.completion, methods=["POST"])
    app.add_api_route("/v1/models", server.models, methods=_READ)
    app.add_api_route("/v1/models/{model:path}", server.model, methods=_READ)
    app.add_api_route("/health", server.health, methods=_READ)
    app.add_api_route("/metrics", server.metrics_page, methods=_READ)
    app.add_api_route("/", server.page, methods=_READ)
    app.add_exception_handler(ApiError, server.on_error)
    app.add_exception_handler(HTTPException, server.on_error)
    app.add_exception_handler(Exception, server.on_error)
    app.add_middleware(Access, settings=settings, metrics=server.metrics)
    return app


class _Server:
    """What the endpoints do."""

    def __init__(self, service: Service, settings: ServeSettings) -> None:
        most = min(settings.most_choices, service.slots + service.queue)
        self._service, self._settings = service, replace(settings, most_choices=most)
        self._engine = service.engine
        self._created = int(time.time())
        self._default = _default(service, settings)
        self.metrics = Metrics(
            service,
            settings.model,
            rule=self._default.rule,
            policy=self._default.policy,
            lossless=self._default.lossless,
        )

    async def chat(self, request: Request) -> Response:
        return await self._answer("chat", request)

    async def completion(self, request: Request) -> Response:
        return await self._answer("completion", request)

    async def models(self) -> Response:
        return _json({"object": "list", "data": [self._model()]})

    async def model(self, model: str) -> Response:
        if model != self._settings.model:
            raise ApiError(
                404,
                f"model: {model[:100]!r} is not served here. Use {self._settings.model!r}",
                param="model",
                code="model_not_found",
            )
        return _json(self._model())

    async def health(self) -> Response:
        service = self._service
        status = "failed" if service.failure else "draining" if service.draining else "ok"
        body = {"status": status, "running": service.running, "waiting": service.waiting}
        return _json(body, 200 if status == "ok" else 503)

    async def metrics_page(self) -> Response:
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def page(self) -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, **_PAGE_HEADERS}
        html = render(self._boot(), nonce=nonce)
        return Response(html, media_type="text/html; charset=utf-8", headers=headers)

    async def on_error(self, request: Request, error: Exception) -> Response:
        """Any exception as OpenAI's error body."""
        if isinstance(error, HTTPException):
            told = _routing_error(request, error)
        else:
            told = api_error(error)
        self.metrics.rejected(told.code)
        return _json(told.body(), told.status, told.headers)

    async def _answer(self, kind: Kind, request: Request) -> Response:
        arrived = perf_counter()
        body = await read_body(request, self._settings)
        ask = read_ask(kind, body)
        prepared = await asyncio.to_thread(prepare, self._engine, self._settings, ask)
        host = request.client.host if request.client else ""
        try:
            tickets = self._service.submit(prepared.jobs, ask.client or host)
        except Exception as error:
            raise api_error(error) from error
        writer = Writer(self._engine, self._settings.model, ask, tickets, prepared.prompts)
        if not ask.stream:
            return Whole(writer, tickets, self.metrics, arrived)
        return Streamed(
            writer,
            tickets,
            self.metrics,
            arrived,
            usage=ask.include_usage,
            send_timeout=self._settings.send_timeout,
        )

    def _model(self) -> dict[str, Any]:
        default = self._default
        return {
            "id": self._settings.model,
            "object": "model",
            "created": self._created,
            "owned_by": "adaptivespec",
            "max_model_len": self._engine.target.limits.max_model_len,
            "lossless": default.lossless,
            "rule": default.rule,
            "policy": default.policy,
        }

    def _boot(self) -> dict[str, Any]:
        """What the page needs to know of its server."""
        default = self._default
        return {
            "model": self._settings.model,
            "max_model_len": self._engine.target.limits.max_model_len,
            "rule": default.rule,
            "policy": default.policy,
            "kappa": getattr(make_rule(default.rule).options, "kappa", None),
            "lossless": default.lossless,
            "temperature": self._settings.temperature,
            "needs_key": bool(self._settings.api_keys),
            **_menus(),
        }


def _default(service: Service, settings: ServeSettings) -> GenerationResult:
    """Rule, policy and losslessness of requests that name nothing."""
    chosen = settings.speculation(settings.temperature)
    job = service.engine.job(
        [0],
        temperature=0.0,  # at which every rule is defined
        max_tokens=1,
        rule=chosen.rule,
        policy=chosen.policy,
        policy_options=chosen.policy_options,
    )
    return job.result


@cache
def _menus() -> dict[str, list[dict[str, Any]]]:
    """All rules and policies, for the page."""
    rules = [
        {
            "name": entry.name,
            "summary": entry.summary,
            "lossless": RULES.create(entry.name).lossless,
            "has_kappa": "kappa" in {option.name for option in entry.options},
        }
        for entry in RULES.describe()
    ]
    policies = [{"name": entry.name, "summary": entry.summary} for entry in POLICIES.describe()]
    return {"rules": rules, "policies": policies}


def _routing_error(request: Request, error: HTTPException) -> ApiError:
    where = f"{request.method} {request.url.path[:200]}"
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return ApiError(404, f"there is no {where}", code="not_found", headers=headers)
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{where} is not allowed. Use {allowed}"
        return ApiError(405, message, code="method_not_allowed", headers=headers)
    return ApiError(error.status_code, str(error.detail), code="http_error", headers=headers)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(value), status, dict(headers or {}), "application/json")

"""Options of `adaptivespec bench` for servers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from adaptivespec.cli.options import option
from adaptivespec.core.errors import ConfigError

if TYPE_CHECKING:
    from adaptivespec.eval.bench import Load
    from adaptivespec.eval.worker import TargetSpec

__all__ = ["ServerOptions"]

SERVER = "Servers"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """A server in place of the embedded engine."""

    base_url: Annotated[
        str | None,
        option(
            "--base-url",
            panel=SERVER,
            env="BASE_URL",
            help="Measure a server with OpenAI's interface: SGLang, vLLM, llama.cpp, ours.",
        ),
    ] = None
    api_key: Annotated[
        str | None, option("--api-key", panel=SERVER, env="API_KEY", help="Of the server.")
    ] = None
    served_model: Annotated[
        str | None,
        option("--served-model", panel=SERVER, help="Its name there. Missing: the first listed."),
    ] = None
    server_arm: Annotated[
        list[str],
        option(
            "--server-arm",
            panel=SERVER,
            metavar="NAME=JSON",
            help="An arm: fields added to its requests, as in 'margin={\"kappa\": 0.2}'. "
            "Repeatable; the first is the baseline.",
        ),
    ] = field(default_factory=list)
    concurrency: Annotated[
        int, option("--concurrency", panel=SERVER, help="Requests under way at once.")
    ] = 1
    request_rate: Annotated[
        float | None,
        option(
            "--request-rate",
            panel=SERVER,
            help="Arrivals per second, at random. Missing: as soon as there is room.",
        ),
    ] = None

    def target(self) -> TargetSpec:
        """The server as a target."""
        from adaptivespec.eval.worker import TargetSpec

        bodies = dict(map(_server_arm, self.server_arm))
        options: dict[str, Any] = {
            "base_url": self.base_url,
            "api_key": self.api_key,
            "model": self.served_model,
            "bodies": bodies or None,
        }
        return TargetSpec("adaptivespec.eval.targets.server:ServerTarget", options)

    def load(self) -> Load:
        """How the server is loaded."""
        from adaptivespec.eval.bench import Load

        if self.concurrency < 1:
            raise ConfigError(f"must be at least 1, got {self.concurrency}", field="concurrency")
        if self.request_rate is not None and not self.request_rate > 0:
            raise ConfigError(f"must be above 0, got {self.request_rate:g}", field="request_rate")
        return Load(self.concurrency, self.request_rate)


def _server_arm(text: str) -> tuple[str, dict[str, Any]]:
    name, equals, body = text.partition("=")
    try:
        fields = json.loads(body or "{}")
    except ValueError:
        fields = None
    if not name.strip() or not equals or not isinstance(fields, dict):
        raise ConfigError(
            f"{text!r} is not NAME=JSON object",
            field="server_arm",
            remedy="Write it like 'margin={\"kappa\": 0.2}'",
        )
    return name.strip(), fields

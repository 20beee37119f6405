"""Options of `adaptivespec serve`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from adaptivespec.cli.decoding import SpeculationOptions
from adaptivespec.cli.options import SAMPLING, SPECULATION, ModelOptions, option
from adaptivespec.core.errors import ConfigError

__all__ = ["AdaptToLoad", "ServeOptions"]

SERVER = "Server"
_VLLM_KEYS = ("method", "model", "num_speculative_tokens")


class AdaptToLoad(StrEnum):
    """Legal values of --adapt-to-load."""

    lossless = "lossless"
    all = "all"
    off = "off"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Where and how it is served."""

    host: Annotated[
        str,
        option(
            "--host",
            panel=SERVER,
            env="HOST",
            help="Address to serve at; 0.0.0.0 is every address of this machine.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, option("--port", panel=SERVER, env="PORT", help="0 takes one that is free.")
    ] = 8000
    api_key: Annotated[
        list[str],
        option(
            "--api-key",
            panel=SERVER,
            env="API_KEY",
            help="A key that opens /v1. Repeatable. In the environment it is not seen by others.",
        ),
    ] = field(default_factory=list)
    served_model_name: Annotated[
        str | None,
        option(
            "--served-model-name", panel=SERVER, help="Its name in the API. Missing: the model's."
        ),
    ] = None
    max_num_seqs: Annotated[
        int,
        option("--max-num-seqs", panel=SERVER, help="Answers that are decoded together."),
    ] = 16
    max_queue: Annotated[
        int, option("--max-queue", panel=SERVER, help="Further ones that may wait; past them, 429.")
    ] = 64
    max_body_bytes: Annotated[
        int, option("--max-body-bytes", panel=SERVER, help="Largest request; past it, 413.")
    ] = 4 * 2**20
    drain_timeout: Annotated[
        float,
        option(
            "--drain-timeout",
            panel=SERVER,
            help="Seconds that answers under way may take after SIGTERM or Ctrl-C.",
        ),
    ] = 30.0
    adapt_to_load: Annotated[
        AdaptToLoad,
        option(
            "--adapt-to-load",
            panel=SERVER,
            help="Draft less when requests share passes: lossless does so where the tokens of a "
            "request do not depend on it, all everywhere, off nowhere. A policy that a request "
            "names is carried out as it is.",
        ),
    ] = AdaptToLoad.lossless
    temperature: Annotated[
        float | None,
        option(
            "--temperature",
            "-t",
            panel=SAMPLING,
            env="TEMPERATURE",
            help="Of requests that name none. Missing: that of --rule-config, else 1.",
        ),
    ] = None
    speculative_config: Annotated[
        str | None,
        option(
            "--speculative-config",
            panel=SPECULATION,
            help="vLLM's spelling of head and policy: "
            '{"method": "eagle3", "model": HEAD, "num_speculative_tokens": 5}.',
            metavar="JSON",
        ),
    ] = None

    def check(self) -> None:
        """Raise ConfigError naming the first option out of bounds."""
        bounds: dict[str, tuple[float | None, float]] = {
            "max_num_seqs": (self.max_num_seqs, 1),
            "max_queue": (self.max_queue, 0),
            "max_body_bytes": (self.max_body_bytes, 1),
            "drain_timeout": (self.drain_timeout, 0),
            "temperature": (self.temperature, 0),
        }
        for name, (value, low) in bounds.items():
            if value is not None and not low <= value < float("inf"):
                raise ConfigError(f"must be at least {low:g}, got {value:g}", field=name)
        if not all(key.strip() and key.isascii() for key in self.api_key):
            raise ConfigError("must be ASCII text, and not empty", field="api_key")

    def check_certificate(self, speculation: SpeculationOptions) -> None:
        """Raise ConfigError where load would change the trees that a certificate vouches for."""
        certificate = speculation.certificate()
        if certificate is None or certificate.lossless:
            return
        if self.adapt_to_load is AdaptToLoad.all:
            raise ConfigError(
                "'all' drafts other trees under load than the policy that the certificate is for",
                field="adapt_to_load",
                remedy="Use lossless or off with --rule-config",
            )

    def with_vllm(
        self, model: ModelOptions, speculation: SpeculationOptions
    ) -> tuple[ModelOptions, SpeculationOptions]:
        """Model and speculation with what --speculative-config says of them.

        Raises ConfigError: no JSON object, another method than eagle3, a key that is not honoured,
        or something that another option says as well.
        """
        if self.speculative_config is None:
            return model, speculation
        given = _vllm(self.speculative_config)
        if head := given.get("model"):
            if model.draft_model not in (None, head):
                raise _twice("model", "--draft-model")
            model = replace(model, draft_model=head)
        if (tokens := given.get("num_speculative_tokens")) is not None:
            if speculation.policy_choice() != ("auto", None):
                raise _twice("num_speculative_tokens", "--policy")
            speculation = speculation.with_policy(f"chain:{tokens}")
        return model, speculation


def _vllm(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise _config(f"is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise _config("must be a JSON object")
    for key in given:
        if key not in _VLLM_KEYS:
            raise _config(f"{key!r} is not honoured")
    method = given.get("method", "eagle3")
    if method != "eagle3":
        raise _config(f"method {method!r} is not served; use eagle3")
    if not isinstance(given.get("model", ""), str):
        raise _config("model must be text")
    tokens = given.get("num_speculative_tokens")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise _config(f"num_speculative_tokens must be an integer of at least 1, got {tokens!r}")
    return given


def _config(problem: str) -> ConfigError:
    return ConfigError(
        problem, field="speculative_config", remedy=f"It may hold {', '.join(_VLLM_KEYS)}"
    )


def _twice(key: str, name: str) -> ConfigError:
    return ConfigError(
        f"its {key} and {name} say the same thing differently",
        field="speculative_config",
        remedy="Leave out one of the two",
    )

"""From the JSON of a request to what is asked: everything is honoured or refused by name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from adaptivespec.serve.errors import ApiError, refusal
from adaptivespec.serve.messages import read_messages
from adaptivespec.serve.schema import Chat, Completion, Named, Shared

__all__ = ["Ask", "Kind", "Prompt", "read_ask"]

Kind = Literal["chat", "completion"]
Prompt = str | list[int]

_COMPLETION_TOKENS = 16  # OpenAI's default for completions
_DIRECT = (
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "min_tokens",
    "ignore_eos",
)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One checked request.

    Attributes:
        messages: of a chat; empty otherwise.
        prompts: of completions; empty otherwise.
        model: as the request names it; None where it does not.
        max_tokens: None = what is left of the context, at most `default_max_tokens`.
        temperature: None = the server's.
        sampling: further fields of SamplingParams.
        logprobs, top_logprobs: whether, and how many alternatives.
        client: whose request it is, for fairness; empty where it does not say.
    """

    kind: Kind
    messages: list[dict[str, str]] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    model: str | None = None
    max_tokens: int | None = None
    default_max_tokens: int | None = None
    temperature: float | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    echo: bool = False
    client: str = ""
    kappa: float | None = None
    rule: str | Named | None = None
    policy: str | Named | None = None
    return_trace: bool = False


def read_ask(kind: Kind, body: Mapping[str, Any]) -> Ask:
    """The request that a JSON object makes; ApiError (400) names the first field that is wrong."""
    model: type[Shared] = Chat if kind == "chat" else Completion
    given = {name: value for name, value in body.items() if value is not None}
    for name in list(given):
        if name not in model.model_fields:
            _check_unhonoured(name, given.pop(name), model)
    try:
        fields = model.model_validate(given)
    except ValidationError as error:
        raise _refused(error, given, model) from None
    return _ask(kind, fields, given)


def _ask(kind: Kind, fields: Any, given: Mapping[str, Any]) -> Ask:
    """What the fields mean together."""
    if fields.best_of not in (None, fields.n):
        raise refusal("best_of", f"must equal n, {fields.n}", "Leave it out")
    options = fields.stream_options
    if options is not None:
        if not fields.stream:
            raise refusal("stream_options", "only streams have it", "Set stream to true")
        for name in ("include_obfuscation", "continuous_usage_stats"):
            if getattr(options, name):
                raise refusal("stream_options", f"{name} is not supported", "Leave it out")
    shared: dict[str, Any] = {
        "kind": kind,
        "model": fields.model,
        "temperature": fields.temperature,
        "sampling": _sampling(fields, given),
        "n": fields.n,
        "stream": fields.stream,
        "include_usage": options is not None and options.include_usage,
        "client": fields.user,
        "kappa": fields.kappa,
        "rule": fields.rule,
        "policy": fields.policy,
        "return_trace": fields.return_trace,
    }
    if kind == "chat":
        if fields.top_logprobs and not fields.logprobs:
            raise refusal("top_logprobs", "needs logprobs", "Set logprobs to true")
        return Ask(
            messages=read_messages(fields.messages),
            max_tokens=_most(fields),
            logprobs=fields.logprobs,
            top_logprobs=fields.top_logprobs,
            **shared,
        )
    if fields.echo and fields.logprobs is not None:
        raise refusal("echo", "is not supported together with logprobs", "Leave out one of them")
    return Ask(
        prompts=_prompts(fields.prompt),
        max_tokens=fields.max_tokens,
        default_max_tokens=_COMPLETION_TOKENS,
        logprobs=fields.logprobs is not None,
        top_logprobs=fields.logprobs or 0,
        echo=fields.echo,
        **shared,
    )


def _most(fields: Chat) -> int | None:
    """max_completion_tokens, or max_tokens, its older name."""
    old, new = fields.max_tokens, fields.max_completion_tokens
    if None not in (old, new) and old != new:
        raise refusal(
            "max_tokens",
            f"is {old}, and max_completion_tokens, which means the same, is {new}",
            "Give one of them",
        )
    return old if new is None else new


def _sampling(fields: Shared, given: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {name: getattr(fields, name) for name in _DIRECT if name in given}
    if fields.top_k > 0:
        sampling["top_k"] = fields.top_k
    if fields.stop:
        sampling["stop"] = tuple([fields.stop] if isinstance(fields.stop, str) else fields.stop)
    if fields.stop_token_ids:
        sampling["stop_token_ids"] = tuple(fields.stop_token_ids)
    if fields.logit_bias:
        sampling["logit_bias"] = {_token(key): bias for key, bias in fields.logit_bias.items()}
    return sampling


def _token(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 10):
        raise refusal("logit_bias", f"{key[:40]!r} is no token id", 'Write it like {"50256": -100}')
    return int(key)


def _prompts(prompt: Any) -> list[Prompt]:
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        return [prompt]
    return list(prompt)


def _check_unhonoured(name: str, value: Any, model: type[Shared]) -> None:
    """Pass over a value that asks for nothing; refuse all others, and names nobody knows."""
    if name in model.neutral:
        legal = model.neutral[name]
        if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in legal):
            return
        values = " or ".join(_shown(one) for one in legal)
        remedy = f"Leave it out, or give {values}" if values else "Leave it out"
        raise refusal(name, f"{_shown(value)} is not supported", remedy, "unsupported_parameter")
    known = [*model.model_fields, *model.neutral]
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.7)
    hint = f"Did you mean {near[0]!r}?" if near else "Leave it out"
    raise refusal(name[:100], "is not a parameter of this endpoint", hint, "unknown_parameter")


def _refused(error: ValidationError, given: Mapping[str, Any], model: type[Shared]) -> ApiError:
    """The first error of a field, with what is legal."""
    where = error.errors(include_url=False, include_input=False)[0]["loc"]
    name = str(where[0])
    legal = model.model_fields[name].description
    if name not in given:
        code = "missing_required_parameter"
        return refusal(name, "is missing", f"Give {legal}", code)
    return refusal(name, f"must be {legal}; got {_shown(given[name])}")


def _shown(value: Any) -> str:
    """A value as JSON, short."""
    if isinstance(value, list | dict) and value:
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."

"""From a checked request to jobs of the engine: one for each answer that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adaptivespec.serve.errors import ApiError, api_error, refusal
from adaptivespec.serve.speculation import speculation_of

if TYPE_CHECKING:
    from adaptivespec.engine import Engine
    from adaptivespec.engine.jobs import Job
    from adaptivespec.serve.parameters import Ask
    from adaptivespec.serve.settings import ServeSettings

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """Jobs in the order of choices, n for each prompt.

    `prompts` are the texts of the prompts, for requests that want them echoed.
    """

    jobs: list[Job]
    prompts: list[str]


def prepare(engine: Engine, settings: ServeSettings, ask: Ask) -> Prepared:
    """Check what needs the model and make the jobs. May take a while for a long prompt.

    Raises ApiError only.
    """
    try:
        return _prepare(engine, settings, ask)
    except Exception as error:
        raise api_error(error, _names(ask)) from error


def _prepare(engine: Engine, settings: ServeSettings, ask: Ask) -> Prepared:
    if ask.model not in (None, settings.model):
        raise ApiError(
            404,
            f"model: {str(ask.model)[:100]!r} is not served here. Use {settings.model!r}",
            param="model",
            code="model_not_found",
        )
    asked, most = max(len(ask.prompts), 1) * ask.n, settings.most_choices
    if asked > most:
        raise refusal(
            "prompt" if len(ask.prompts) > 1 else "n",
            f"{asked} answers are asked for, and this server takes in {most} at once",
            "Send several requests",
        )
    temperature = settings.temperature if ask.temperature is None else ask.temperature
    default = settings.speculation(temperature)
    chosen = speculation_of(ask, default, settings.most_nodes)
    options: dict[str, Any] = {
        **ask.sampling,
        "temperature": temperature,
        "rule": chosen.rule,
        "policy": chosen.policy,
        "policy_options": chosen.policy_options,
        "logprobs": ask.logprobs,
        "top_logprobs": ask.top_logprobs,
        "trace": ask.return_trace,
    }
    jobs: list[Job] = []
    for ids in _prompt_ids(engine, ask):
        options["max_tokens"] = _max_tokens(engine, ask, len(ids))
        for number in range(ask.n):
            if "seed" in ask.sampling:
                options["seed"] = ask.sampling["seed"] + number
            jobs.append(engine.job(ids, **options))
    decode = engine.tokenizer.decode
    texts = [
        prompt if isinstance(prompt, str) else decode(prompt, False)
        for prompt in (ask.prompts if ask.echo else ())
    ]
    return Prepared(jobs, texts)


def _prompt_ids(engine: Engine, ask: Ask) -> list[list[int]]:
    """Token ids of every prompt."""
    tokenizer = engine.tokenizer
    if ask.kind == "chat":
        if not tokenizer.has_chat_template:
            raise ApiError(
                400,
                "messages: the model has no chat template. Use /v1/completions",
                param="messages",
                code="no_chat_template",
            )
        return [tokenizer.apply_chat_template(ask.messages)]
    return [
        tokenizer.encode(prompt) if isinstance(prompt, str) else prompt for prompt in ask.prompts
    ]


def _max_tokens(engine: Engine, ask: Ask, prompt: int) -> int:
    """The most tokens of an answer; ApiError where prompt and answer do not fit."""
    limit = engine.target.limits.max_model_len
    left, asked = limit - prompt, ask.max_tokens
    if left >= 1 and asked is None:
        return min(ask.default_max_tokens or left, left)
    if asked is not None and asked <= left:
        return asked
    field = "messages" if ask.kind == "chat" else "prompt"
    wanted = f"{asked} tokens of the answer" if asked else "at least one token of the answer"
    raise ApiError(
        400,
        f"{field}: this model's context holds {limit} tokens, and the request has {prompt} in its "
        f"{field} and wants {wanted}. Shorten the {field}"
        + (" or lower max_tokens" if asked else ""),
        param=field,
        code="context_length_exceeded",
    )


def _names(ask: Ask) -> dict[str, str]:
    """Fields of the engine's errors -> fields of the request."""
    prompt = "messages" if ask.kind == "chat" else "prompt"
    return {
        "prompt": prompt,
        "messages": prompt,
        "rule_options": "kappa" if ask.rule is None and ask.kappa is not None else "rule",
        "rule_options.kappa": "rule" if ask.kappa is None else "kappa",
    }

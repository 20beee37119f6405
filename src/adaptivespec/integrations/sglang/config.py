"""Settings of the plugin: the operator's, for a server, and a client's, for one request.

A server reads a JSON object such as ``{"rule": "safe", "policy": "dcs"}``. A request may bring its
own rule in ``sampling_params``: ``{"custom_params": {"adaptivespec": {"kappa": 0.3}}}``. Whatever
is wrong in either is a ConfigError that names the place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import bounds, parse_spec, unknown_name
from adaptivespec.integrations.sglang.certified import certificate_at
from adaptivespec.integrations.sglang.settings_text import parse_object, read_object
from adaptivespec.policy import POLICIES
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.dcs import Combine, Triple
from adaptivespec.verify import PRESETS, RULES, make_rule

if TYPE_CHECKING:
    from adaptivespec.verify.margin import MarginOptions

__all__ = [
    "REQUEST_KEY",
    "PluginConfig",
    "brings_rule",
    "describe",
    "load_config",
    "margin_options",
    "request_options",
]

REQUEST_KEY = "adaptivespec"
"""Where a request's ``custom_params`` hold its options."""

_FIELD = f"custom_params.{REQUEST_KEY}"
_FAMILY = ("strict", "margin", *(name for name, rule in PRESETS.items() if rule == "margin"))
_LARGEST = 2**31 - 1  # of any number in a rule: each ends up in a tensor
_LONGEST = 300  # characters of a request's rule; with every option it has 180


class PluginConfig(BaseModel):
    """A server's settings; each has a default, and the defaults are lossless."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    rule: str = Field("strict", description="rule of requests that bring none; margin family")
    policy: str = Field("dcs", description="which tree a batch drafts next")
    signal: Literal["auto", "exact", "lag1", "history"] = Field(
        "auto",
        description="the drafter's confidence: of this round (exact, a wait on the device), of the "
        "last (lag1), none (history); auto = exact, or lag1 under overlap scheduling",
    )
    combine: Combine = Field("mean", description="one confidence for a batch, of its requests'")
    max_batch: int = Field(16, ge=1, description="requests; the largest batch that adapts its tree")
    large_batch: Triple = Field(
        (2, 1, 3), description="(num_steps, topk, num_draft_tokens) of larger batches"
    )
    hold: int = Field(1, ge=1, description="rounds before another tree may follow")
    costs: str | None = Field(
        None, min_length=1, description="cost profile for priced trees: a JSON file, or numbers"
    )
    attach: bool = Field(False, description="take the worker of --speculative-algorithm EAGLE3")
    trace: str | None = Field(None, min_length=1, description="JSONL file; a line for each round")
    seed: int = Field(0, ge=0, le=_LARGEST, description="of requests that bring none")
    request_options: bool = Field(True, description="requests may bring a rule of their own")
    min_kappa: float = Field(0.0, ge=0, le=1, description="least kappa that a request may ask for")
    rule_config: str | None = Field(
        None,
        min_length=1,
        description="certificate of `adaptivespec calibrate`: brings rule and policy",
    )

    @field_validator("rule")
    @classmethod
    def _margin_family(cls, rule: str) -> str:
        _resolve(rule)
        return rule

    @field_validator("rule_config")
    @classmethod
    def _certificate(cls, path: str | None) -> str | None:
        if path is not None:
            _resolve(certificate_at(path).rule)
        return path

    @field_validator("policy")
    @classmethod
    def _registered(cls, policy: str) -> str:
        name = parse_spec(policy, "policy").name
        if name not in POLICIES:
            raise unknown_name("policy", name, POLICIES.names())
        return policy

    @field_validator("large_batch", mode="before")
    @classmethod
    def _three_numbers(cls, triple: object) -> Triple:
        numbers = tuple(triple) if isinstance(triple, list | tuple) else ()
        if len(numbers) != 3 or not all(type(number) is int for number in numbers):
            raise ConfigError(
                f"must be three integers, got {triple!r}",
                field="large_batch",
                remedy="Write [num_steps, topk, num_draft_tokens], such as [2, 1, 3]",
            )
        return cast(Triple, numbers)

    @field_validator("costs")
    @classmethod
    def _readable(cls, costs: str | None) -> str | None:
        if costs is not None:
            try:
                CostProfile.parse(costs)
            except ConfigError as error:
                raise ConfigError(error.message, field="costs", remedy=error.remedy) from None
        return costs

    @model_validator(mode="after")
    def _server_within_its_own_bound(self) -> PluginConfig:
        rule = self.rule
        if self.rule_config is not None:
            if "rule" in self.model_fields_set:
                raise ConfigError(
                    "says which rule serves, and rule is set as well",
                    field="rule_config",
                    remedy="Leave out one of the two",
                )
            rule = certificate_at(self.rule_config).rule
        kappa = _refined(rule, ()).kappa
        if kappa < self.min_kappa:
            raise ConfigError(
                f"must be at most the kappa of the server's own rule, {kappa:g}, got "
                f"{self.min_kappa:g}",
                field="min_kappa",
            )
        return self


def load_config(text: str | None, field: str = "ADAPTIVESPEC_CONFIG") -> PluginConfig:
    """A server's settings.

    Args:
        text: a JSON object, or the path of a file that holds one; None and "" give the defaults.
        field: where the text comes from, for errors.

    Raises ConfigError: unreadable, not JSON (with line and column), a key twice, an unknown or
    illegal setting; its field is FIELD or FIELD.SETTING.
    """
    given = (text or "").strip()
    settings: object = {}
    if given:
        settings = (
            parse_object(given, field) if given.startswith("{") else read_object(given, field)
        )
    if not isinstance(settings, dict):
        raise ConfigError(
            f"must be a JSON object of settings, not a {type(settings).__name__}",
            field=field,
            remedy='Write {"rule": "safe", ...}',
        )
    try:
        return PluginConfig.model_validate(settings)
    except ValidationError as error:
        raise _explained(error, field) from None


def margin_options(config: PluginConfig) -> MarginOptions:
    """The server's rule: options of the margin rule, at kappa 1 where it is strict."""
    return _refined(config.rule, ())


def request_options(custom_params: object, config: PluginConfig) -> MarginOptions:
    """The rule of one request: the server's, unless it brings options of its own.

    Args:
        custom_params: of the request's sampling parameters. Under ``adaptivespec`` it may hold any
            option of the margin rule, which refines the server's rule, and ``rule`` (strict,
            margin, paper, safe, with or without options), which replaces it.

    Raises ConfigError, its field ``custom_params.adaptivespec.OPTION``: an unknown or illegal
    option, a kappa below the server's ``min_kappa``, any option where the server allows none.
    """
    asked = _asked(custom_params)
    if not asked:
        return margin_options(config)
    if not config.request_options:
        raise ConfigError(
            "this server lets no request choose its own rule",
            field=_FIELD,
            remedy="Leave it out; the operator may set request_options to true",
        )
    fields = tuple((name, _checked(name, value)) for name, value in asked.items())
    try:
        options = _refined(config.rule, fields)
    except ConfigError as error:
        name = (error.field or "").removeprefix("rule_options").lstrip(".")
        place = f"{_FIELD}.{name}" if name else _FIELD
        raise ConfigError(error.message, field=place, remedy=error.remedy) from None
    if options.kappa < config.min_kappa:
        raise ConfigError(
            f"must be at least {config.min_kappa:g} on this server, got {options.kappa:g}",
            field=f"{_FIELD}.kappa",
        )
    return options


def brings_rule(custom_params: object) -> bool:
    """Whether a request asks for a rule of its own, or for options of one."""
    return bool(_asked(custom_params))


def describe(config: PluginConfig) -> list[tuple[str, str]]:
    """(setting, value) of every setting, defaults included, as a user would write the value."""
    from adaptivespec.verify.margin import MarginRule

    values = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in config.model_dump(mode="json").items()
    }
    spelled = MarginRule(margin_options(config)).label
    if spelled != config.rule:
        values["rule"] = f"{config.rule} ({spelled})"
    return list(values.items())


@lru_cache(maxsize=1024)
def _refined(rule: str, fields: tuple[tuple[str, object], ...]) -> MarginOptions:
    """``rule`` with a request's options on top, or the request's own rule with them."""
    given = dict(fields)
    own = given.pop("rule", None)
    if own is not None:
        return _resolve(cast(str, own), given)
    base = _resolve(rule)
    return _bounded(RULES.validate("margin", {**base.model_dump(), **given})) if given else base


def _resolve(rule: str, options: Mapping[str, object] | None = None) -> MarginOptions:
    """The options of a rule of the margin family; ConfigError as of ``make_rule``, or refused."""
    from adaptivespec.verify.margin import MarginOptions, MarginRule

    name = parse_spec(rule, "rule").name
    if name not in _FAMILY:
        if name not in RULES:
            raise unknown_name("rule", name, _FAMILY)
        raise ConfigError(
            f"'{name}' does not run inside SGLang, where only the margin rule is built in",
            field="rule",
            remedy=f"Legal: {', '.join(_FAMILY)}",
        )
    made = make_rule(rule, options).options
    if isinstance(made, MarginOptions):
        return _bounded(made)
    return MarginOptions(**MarginRule.presets["strict"])


def _bounded(options: BaseModel) -> MarginOptions:
    """The same options, unless a number in them is too large for a tensor."""
    for name, value in options:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not 0 <= number <= _LARGEST:
                raise ConfigError(
                    f"must be in [0, {_LARGEST}], got {number}", field=f"rule_options.{name}"
                )
    return cast("MarginOptions", options)


def _asked(custom_params: object) -> Mapping[str, object]:
    """What a request asks of us; empty when it does not."""
    if custom_params is None:
        return {}
    if not isinstance(custom_params, Mapping):
        raise ConfigError(f"must be an object, got {custom_params!r}", field="custom_params")
    asked = custom_params.get(REQUEST_KEY)
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        raise ConfigError(
            f"must be an object of options, got {asked!r}",
            field=_FIELD,
            remedy='Write {"kappa": 0.3} or {"rule": "safe"}',
        )
    return asked


def _checked(name: str, value: object) -> object:
    """One option of a request, if it can travel to the scheduler and reads as it was meant.

    SGLang's messages allow no list this deep, and one that arrives all the same ends the scheduler.
    """
    from adaptivespec.verify.margin import MarginOptions

    place = f"{_FIELD}.{name}"
    options = MarginOptions.model_fields
    if name != "rule" and name not in options:
        unknown = unknown_name("option", str(name), ["rule", *options])
        raise ConfigError(unknown.message, field=place, remedy=unknown.remedy)
    if name == "rule":
        fits, wanted = isinstance(value, str | None), "text"
    elif options[name].annotation is bool:
        fits, wanted = isinstance(value, bool), "true or false"
    elif name == "think_ids":
        fits, wanted = value is None, "null, because SGLang passes on no list"
    else:  # false is no number: it would read as kappa 0
        fits = isinstance(value, int | float | None) and not isinstance(value, bool)
        wanted = "a number"
    if not fits:
        remedy = 'Write {"rule": "margin:think_ids=(5,6)"}' if name == "think_ids" else None
        raise ConfigError(f"must be {wanted}, got {value!r}", field=place, remedy=remedy)
    if isinstance(value, str) and len(value) > _LONGEST:
        raise ConfigError(f"must have at most {_LONGEST} characters, got {len(value)}", field=place)
    return value


def _explained(error: ValidationError, field: str) -> ConfigError:
    """The first error of the settings, in our words."""
    from adaptivespec.verify.margin import MarginOptions

    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return ConfigError(cause.message, field=f"{field}.{cause.field}", remedy=cause.remedy)
    name = str(first["loc"][0])
    place = f"{field}.{name}"
    if first["type"] == "extra_forbidden":
        unknown = unknown_name("setting", name, PluginConfig.model_fields)
        remedy = unknown.remedy
        if name in MarginOptions.model_fields:
            remedy = f'It belongs to the rule: {{"rule": "margin:{name}=..."}}'
        return ConfigError(unknown.message, field=place, remedy=remedy)
    message = re.sub("^(Input|String) should ", "", first["msg"])
    return ConfigError(
        f"must {message}, got {first['input']!r}",
        field=place,
        remedy=f"Legal: {bounds(PluginConfig, name)}",
    )

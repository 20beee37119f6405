"""The rule and the policy of one request.

What a request sends never names a file: options that are free text (such as the directory of a
trained head) are the operator's to set. That is decided by the type of an option, so that it holds
for rules and policies yet to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from adaptivespec.core.registry import Registry, Spec, parse_spec
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.serve.errors import refusal
from adaptivespec.serve.schema import Named
from adaptivespec.serve.settings import Speculation
from adaptivespec.verify import PRESETS, RULES, make_rule

if TYPE_CHECKING:
    from adaptivespec.serve.parameters import Ask
    from adaptivespec.verify.base import Rule

__all__ = ["operator_options", "speculation_of"]

_HARMLESS = {"boolean", "integer", "number", "null"}
#: Most levels, and most branches, of a tree that a request asks for.
MOST_STEPS, MOST_TOPK = 32, 32


def speculation_of(ask: Ask, default: Speculation, most_nodes: int) -> Speculation:
    """What serves a request: its own rule and policy where it names them, else the default's.

    A kappa alone changes that of the default rule. Where a certificate chose the default, its rule
    serves with its policy alone, and strict does with any other.

    Raises:
        ConfigError: unknown names or options, or illegal ones.
        ApiError: options that only the operator may set; trees that are too large.
    """
    rule: str | Rule = default.rule
    if ask.rule is not None:
        rule = _rule(ask.rule, ask.kappa)
    elif ask.kappa is not None:
        rule = _with_kappa(make_rule(rule), ask.kappa)
    if ask.policy is None:
        return replace(default, rule=rule)
    name, options = _policy(ask.policy, most_nodes)
    if default.certified and rule is default.rule:
        if name == "auto":
            return default
        certified = make_policy(default.policy, default.policy_options)
        if make_policy(name, options).label != certified.label:
            rule = "strict"
    return Speculation(rule, name, options)


def _rule(asked: str | Named, kappa: float | None) -> Rule:
    spec, options = _parts(asked)
    parsed = parse_spec(spec, "rule")
    registered = PRESETS.get(parsed.name, parsed.name)
    if registered in RULES:
        named = Spec(registered, parsed.positional, parsed.keywords)
        _check_operator_options("rule", RULES, named, options)
    return make_rule(spec, options, kappa)


def _with_kappa(rule: Rule, kappa: float) -> Rule:
    if "kappa" not in type(rule.options).model_fields:
        return make_rule(rule.name, None, kappa)  # raises: it has none
    options = rule.options.model_dump(exclude_defaults=True) | {"kappa": kappa}
    return RULES.create(rule.name, options)


def _policy(asked: str | Named, most_nodes: int) -> tuple[str, dict[str, Any] | None]:
    spec, options = _parts(asked)
    parsed = parse_spec(spec, "policy")
    if parsed.name == "auto":
        if options or parsed.positional or parsed.keywords:
            raise refusal("policy", "auto takes no options", "Name the policy they are for")
        return "auto", None
    given = POLICIES.resolve(parsed, options)  # raises for an unknown name
    _check_operator_options("policy", POLICIES, parsed, options)
    most = {"num_draft_tokens": most_nodes, "num_steps": MOST_STEPS, "topk": MOST_TOPK}
    _check_size(given, most)  # before a policy is made of them, which may take its time
    largest = make_policy(spec, options).largest()
    _check_size({name: getattr(largest, name) for name in most}, most)
    return spec, options


def _parts(asked: str | Named) -> tuple[str, dict[str, Any] | None]:
    """The spelling, and further options."""
    if isinstance(asked, str):
        return asked, None
    return asked.name, dict(asked.options) or None


def _check_size(options: Mapping[str, Any], most: Mapping[str, int]) -> None:
    for name, limit in most.items():
        value = options.get(name)
        if isinstance(value, int) and value > limit:
            raise refusal("policy", f"{name} may be at most {limit} on this server, got {value}")


def _check_operator_options(
    kind: str, registry: Registry[Any], spec: Spec, options: Mapping[str, Any] | None
) -> None:
    """Refuse options that are text; nothing but the option model is made for it."""
    cls = registry.load(spec.name)
    forbidden = operator_options(cls.Options)
    if not forbidden:
        return
    made = registry.validate(spec.name, registry.resolve(spec, options))
    for name in forbidden:
        if getattr(made, name) != cls.Options.model_fields[name].get_default():
            raise refusal(
                kind,
                f"option {name!r} of {spec.name!r} is set by the operator of the server",
                "Leave it out",
            )


@cache
def operator_options(model: type[BaseModel]) -> frozenset[str]:
    """Options that may hold text of any kind: names of files among them."""
    schema = model.model_json_schema(by_alias=False)
    properties, parts = schema.get("properties", {}), schema.get("$defs", {})
    return frozenset(
        name for name in model.model_fields if not _harmless(properties.get(name, {}), parts)
    )


def _harmless(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> bool:
    """Whether values of a JSON schema are numbers, truth values and fixed words alone."""
    if "$ref" in schema:
        return _harmless(parts.get(schema["$ref"].rpartition("/")[2], {}), parts)
    if "enum" in schema or "const" in schema:
        return True
    if "anyOf" in schema:
        return all(_harmless(part, parts) for part in schema["anyOf"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems", [])
        rest = schema.get("items", not items)  # false: nothing may follow; true: anything may
        return all(_harmless(item, parts) for item in items) and (
            not rest if isinstance(rest, bool) else _harmless(rest, parts)
        )
    return schema.get("type") in _HARMLESS

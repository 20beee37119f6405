"""Verification rules. A new rule is one file and one line in ``RULES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import Registry, Spec, parse_spec, unknown_name

if TYPE_CHECKING:
    from adaptivespec.verify.base import Rule

RULES: Registry[Rule] = Registry(
    "rule",
    {
        "strict": "adaptivespec.verify.strict:StrictRule",
        "margin": "adaptivespec.verify.margin:MarginRule",
        "fly": "adaptivespec.verify.fly:FlyRule",
        "csd": "adaptivespec.verify.csd:CsdRule",
        "regret": "adaptivespec.verify.regret:RegretRule",
        "rejection": "adaptivespec.verify.rejection:RejectionRule",
        "typical": "adaptivespec.verify.typical:TypicalRule",
        "relaxed": "adaptivespec.verify.relaxed:RelaxedRule",
        "mars": "adaptivespec.verify.mars:MarsRule",
        "threshold": "adaptivespec.verify.threshold:ThresholdRule",
        "cascade": "adaptivespec.verify.cascade:CascadeRule",
        "coin": "adaptivespec.verify.coin:CoinRule",
        "judge": "adaptivespec.verify.judge:JudgeRule",
        "semantic": "adaptivespec.verify.semantic:SemanticRule",
    },
)

PRESETS: Mapping[str, str] = {"paper": "margin", "safe": "margin"}
"""Names that stand for a rule with options of its own: preset -> rule."""

__all__ = ["PRESETS", "RULES", "make_rule", "rule_names"]


def rule_names() -> list[str]:
    """Every name ``make_rule`` takes: rules, then presets."""
    return [*RULES.names(), *PRESETS]


def make_rule(
    spec: str | Rule,
    options: Mapping[str, Any] | None = None,
    kappa: float | None = None,
) -> Rule:
    """A rule from "strict", "margin:0.2", "margin:kappa=0.2,protect_digits=true", "safe", ...

    Args:
        spec: rule or preset name with options after a colon; a Rule is returned as it is.
        options: more options; they override those of a preset.
        kappa: short for the option of that name.

    Raises ConfigError: unknown name (legal ones listed), unknown or illegal option, an option given
    twice, kappa for a rule that has none, options beside a ready-made rule.
    """
    extra = dict(options or {})
    if not isinstance(spec, str):
        if extra or kappa is not None:
            raise ConfigError("options beside a ready-made rule", field="rule_options")
        return spec
    parsed = parse_spec(spec, "rule")
    rule_name = PRESETS.get(parsed.name, parsed.name)
    if rule_name not in RULES:
        raise unknown_name("rule", parsed.name, rule_names())
    cls = RULES.load(rule_name)
    if kappa is not None:
        if "kappa" not in cls.Options.model_fields:
            raise ConfigError(
                f"rule '{rule_name}' has no kappa",
                field="kappa",
                remedy="Use rule 'margin' with it, or leave it out",
            )
        if "kappa" in extra and extra["kappa"] != kappa:
            raise ConfigError(f"given twice, as {extra['kappa']!r} and {kappa!r}", field="kappa")
        extra["kappa"] = kappa
    given = RULES.resolve(Spec(rule_name, parsed.positional, parsed.keywords), extra)
    preset = cls.presets[parsed.name] if parsed.name in PRESETS else {}
    return RULES.create(rule_name, {**preset, **given})

"""Draft policies. A new policy is one file and one line in ``POLICIES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import Registry, parse_spec

if TYPE_CHECKING:
    from adaptivespec.policy.base import Policy

POLICIES: Registry[Policy] = Registry(
    "policy",
    {
        "none": "adaptivespec.policy.none:NonePolicy",
        "chain": "adaptivespec.policy.chain:ChainPolicy",
        "static": "adaptivespec.policy.static:StaticPolicy",
        "eagle2": "adaptivespec.policy.eagle2:Eagle2Policy",
        "dcs": "adaptivespec.policy.dcs:DcsPolicy",
        "thrift": "adaptivespec.policy.thrift:ThriftPolicy",
        "medusa": "adaptivespec.policy.medusa:MedusaPolicy",
        "talon": "adaptivespec.policy.talon:TalonPolicy",
        "opt_tree": "adaptivespec.policy.opt_tree:OptTreePolicy",
        "sequoia": "adaptivespec.policy.sequoia:SequoiaPolicy",
        "specdec": "adaptivespec.policy.specdec:SpecDecPolicy",
        "ema": "adaptivespec.policy.ema:EmaPolicy",
        "bandit": "adaptivespec.policy.bandit:BanditPolicy",
        "priced": "adaptivespec.policy.priced:PricedPolicy",
    },
)

__all__ = ["POLICIES", "make_policy"]


def make_policy(spec: str | Policy, options: Mapping[str, Any] | None = None) -> Policy:
    """A policy from "none", "chain:3", "static:5,4,16", "dcs:low=(3,4,4),high=(7,1,8)", ...

    A Policy is returned as it is. Raises ConfigError: unknown name (legal ones listed), unknown or
    illegal option, an option given twice, options beside a ready-made policy.
    """
    if not isinstance(spec, str):
        if options:
            raise ConfigError("options beside a ready-made policy", field="policy_options")
        return spec
    parsed = parse_spec(spec, "policy")
    return POLICIES.create(parsed.name, POLICIES.resolve(parsed, options))

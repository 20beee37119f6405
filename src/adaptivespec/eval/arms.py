"""Arms: the ways to decode that a run compares, by the names users give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adaptivespec.core.registry import parse_spec, split_specs
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.verify import make_rule, rule_names

__all__ = ["COIN", "PLAIN", "TUNED", "Arm", "arms_of", "parse_arms", "split_specs"]

PLAIN = "plain"
"""The name of the arm that decodes token by token; every other one is compared with it."""

TUNED = "static:tuned"
"""A policy of runs alone: the fixed tree that is quickest with the arm's own rule on dev items."""

COIN = "coin:auto"
"""A rule of runs alone: a coin that promotes as often as the margin arm of the same policy does."""

CONTROL_TREE = "static:7,1,8"
"""The deepest chain of dcs: with kappa 0, seven tokens of eight are the drafter's own."""


@dataclass(frozen=True)
class Arm:
    """One way to decode.

    Attributes:
        name: unique in a run; what tables and rows say.
        rule, policy: spellings as in --rule and --policy; empty for targets of other makers, which
            are run as they come.
        role: "plain", "arm", or what an arm is run for besides: "control" or "frontier".
    """

    name: str
    rule: str = ""
    policy: str = ""
    role: str = "arm"

    @property
    def lossless(self) -> bool | None:
        """Whether its rule is; None for targets of other makers, which do not say."""
        if self.rule == COIN:
            return False
        return make_rule(self.rule).lossless if self.rule else None


def parse_arms(text: str) -> list[Arm]:
    """Arms from "plain; strict/dcs; margin:0.2/static:4,2,8"; a rule alone has policy auto.

    Raises:
        ConfigError: a rule or policy is unknown or takes no such option.
    """
    arms = []
    for spec in split_specs(text, "arms", [PLAIN, *rule_names()]):
        if spec == PLAIN:
            arms.append(plain())
            continue
        rule, _, policy = spec.partition("/")
        arms.append(_checked(rule.strip(), policy.strip() or "auto"))
    return arms


def arms_of(rules: Sequence[str], policies: Sequence[str], extra: Sequence[Arm] = ()) -> list[Arm]:
    """Plain decoding, then every rule with every policy, then `extra`; each arm once."""
    arms: dict[str, Arm] = {}
    crossed = [_checked(rule, policy) for policy in policies for rule in rules]
    for arm in [plain(), *crossed, *extra]:
        arms.setdefault(arm.name, arm)
    return list(arms.values())


def plain() -> Arm:
    """Plain decoding by our engine."""
    return Arm(PLAIN, "strict", "none", "plain")


def frontier(kappas: Sequence[float], policy: str) -> list[Arm]:
    """The margin rule at each kappa, with one policy."""
    return [replace(_checked(f"margin:{kappa:g}", policy), role="frontier") for kappa in kappas]


def controls(policy: str) -> list[Arm]:
    """What a lossy rule has to beat: promotion at random, and the drafter nearly alone."""
    alone = Arm(f"drafter alone ({CONTROL_TREE})", "margin:0", CONTROL_TREE, "control")
    return [replace(_checked(COIN, policy), role="control"), alone]


def _checked(rule: str, policy: str) -> Arm:
    if rule != COIN:
        make_rule(rule)
    if policy not in ("auto", TUNED):
        make_policy(policy)
    return Arm(f"{rule}/{policy}", rule, policy)


def policy_names() -> list[str]:
    """What a policy of an arm may be called."""
    return ["auto", *POLICIES.names()]


def rule_name(arm: Arm) -> str:
    """The name of an arm's rule without its options."""
    return parse_spec(arm.rule, "rule").name

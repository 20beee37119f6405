"""Which triple a batch drafts next: the policies that work inside SGLang, by their names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast, get_args

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang.batch import (
    BatchPolicy,
    FixedTriple,
    Held,
    LargeBatch,
    Triple,
    check_triple,
    largest,
)
from adaptivespec.integrations.sglang.choosers import BatchDcs, BatchEma, BatchPriced
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Policy
from adaptivespec.policy.chain import ChainOptions
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.dcs import Combine, DcsPolicy
from adaptivespec.policy.ema import EmaPolicy
from adaptivespec.policy.priced import PricedOptions

__all__ = [
    "DRAFT_SHARE",
    "BatchPolicy",
    "Held",
    "LargeBatch",
    "Triple",
    "check_triple",
    "largest",
    "make_batch_policy",
]

DRAFT_SHARE = 0.06
"""Seconds of a drafter's pass by those of a verify pass, where neither was measured.

EAGLE-3's head has one layer beside the target's 30 or so, and launches of its own.
"""

_RIDGE = 256  # nodes where a GPU's limit turns from memory to compute: A100 156, H100 295 in bf16

_GROWS = "it shapes its tree while drafting, and a captured tree has one shape"
_PLACES = "it has a fixed tree of its own, and SGLang grows its trees itself"
_REFUSED = {
    "none": "a round of SGLang drafts at least one level",
    "eagle2": "SGLang grows every tree like that; write static:num_steps,topk,num_draft_tokens",
    "medusa": _PLACES,
    "sequoia": _PLACES,
    "talon": _GROWS,
    "opt_tree": _GROWS,
    "specdec": _GROWS,
    "thrift": _GROWS,
    "bandit": "it credits a round before it chooses another, and a batch's results come later",
}
_TRIPLE_MODE = {"mode", "arms", "half_life", "online"}


def make_batch_policy(
    spec: str,
    *,
    combine: Combine = "mean",
    costs: CostProfile | None = None,
    draft_share: float = DRAFT_SHARE,
    max_batch: int | None = None,
    large_batch: Triple | None = None,
    hold: int = 1,
) -> BatchPolicy:
    """The policy of a server.

    Args:
        spec: static, chain, ema, dcs or priced, with options as ``make_policy`` reads them.
        combine: what a batch goes by in dcs and ema: mean, median or min over its requests.
        costs: what passes cost, for priced; None = those of a usual GPU, the same for any number
            of nodes up to 256 and linear beyond, until measured rounds say otherwise.
        draft_share: seconds of a drafter's pass by those of a verify pass where ``costs`` is None.
        max_batch: requests; larger batches all draft ``large_batch``. None = no limit.
        large_batch: None = the policy's own triple of fewest nodes.
        hold: rounds that a triple stays for at least. The limit on batches goes before it.

    Raises ConfigError: an unknown policy or option, a policy that cannot work inside SGLang, a
    triple that SGLang cannot draft, a number out of its bounds.
    """
    if combine not in get_args(Combine):
        legal = " | ".join(get_args(Combine))
        raise ConfigError(f"must be {legal}, got {combine!r}", field="combine")
    if not 0 <= draft_share < math.inf:
        raise ConfigError(f"must be finite and >= 0, got {draft_share!r}", field="draft_share")
    for name, count in [("max_batch", max_batch), ("hold", hold)]:
        if count is not None and count < 1:
            raise ConfigError(f"must be at least 1, got {count}", field=name)
    if large_batch is not None and max_batch is None:
        raise ConfigError(
            "says what batches beyond max_batch draft, which is not set",
            field="large_batch",
            remedy="Set max_batch too",
        )

    def of_costs(policy: Policy) -> BatchPolicy:
        return _priced(policy, costs or _roofline(draft_share))

    makers: dict[str, Callable[[Policy], BatchPolicy]] = {
        "static": lambda policy: FixedTriple(policy.largest().triple, policy.label),
        "chain": _chain,
        "ema": lambda policy: BatchEma(cast(EmaPolicy, policy), combine),
        "dcs": lambda policy: BatchDcs(cast(DcsPolicy, policy), combine),
        "priced": of_costs,
    }
    model = make_policy(spec)
    if model.name not in makers:
        raise ConfigError(
            f"'{model.name}' does not work inside SGLang: {_REFUSED[model.name]}",
            field="policy",
            remedy=f"These do: {', '.join(makers)}",
        )
    policy = makers[model.name](model)
    if hold > 1:
        policy = Held(policy, hold)
    if max_batch is None:
        return policy
    fewest = min(policy.triples, key=lambda triple: (triple[2], triple[0]))
    return LargeBatch(policy, max_batch, large_batch or fewest)


def _chain(policy: Policy) -> BatchPolicy:
    if cast(ChainOptions, policy.options).min_confidence > 0:
        raise ConfigError(
            "a captured chain has one length, whatever the drafter's confidence",
            field="policy_options.min_confidence",
            remedy="Leave it out, or use ema or dcs",
        )
    return FixedTriple(policy.largest().triple, policy.label)


def _priced(policy: Policy, costs: CostProfile) -> BatchPolicy:
    options = cast(PricedOptions, policy.options)
    given = options.model_fields_set
    if "mode" in given and options.mode != "triple":
        raise ConfigError(
            "must be triple inside SGLang, which drafts no other shapes than those it captured",
            field="policy_options.mode",
        )
    if idle := sorted(given - _TRIPLE_MODE):
        raise ConfigError(
            "has no effect in mode triple, the only one inside SGLang",
            field=f"policy_options.{idle[0]}",
            remedy=f"Options that have: {', '.join(sorted(_TRIPLE_MODE))}",
        )
    refused = {arm: why for arm in options.arms if (why := _why_illegal(arm))}
    if refused and "arms" in given:
        raise ConfigError(
            f"SGLang cannot draft {', '.join(map(str, refused))}: {'; '.join(refused.values())}",
            field="policy_options.arms",
        )
    arms = [arm for arm in options.arms if arm not in refused]
    return BatchPriced(arms, costs, options.half_life, options.online, policy.label)


def _why_illegal(arm: Triple) -> str | None:
    try:
        check_triple(arm)
    except ConfigError as error:
        return f"{error.field} {error.message}"
    return None


def _roofline(draft_share: float) -> CostProfile:
    """Costs of a usual GPU, in verify passes rather than seconds."""
    verify = ((_RIDGE, 1.0), (2 * _RIDGE, 2.0))
    draft = tuple((rows, draft_share * passes) for rows, passes in verify)
    return CostProfile("roofline", ((0, verify),), draft)

"""What a run settles on dev items: fixed trees by their time, coins by their promotions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.arms import COIN, TUNED, Arm, rule_name
from adaptivespec.eval.rows import RowFile
from adaptivespec.eval.selection import Selected
from adaptivespec.eval.settings import ArmSettings, Settings
from adaptivespec.eval.stages import Answers, Entry, Stage, blocks
from adaptivespec.verify import PRESETS

__all__ = ["SHAPES", "is_open", "settle"]

SHAPES = ((1, 1, 2), (2, 1, 3), (3, 1, 4), (5, 1, 6), (3, 2, 6), (4, 2, 8), (5, 4, 16))
"""(num_steps, topk, num_draft_tokens) that fixed trees are chosen from."""

ROUNDS = 4
"""Corrections of a coin's rate. Each promotion changes what may be promoted next, so the rate that
gives so many promotions is found by trial."""


def is_open(arm: Arm) -> bool:
    """Whether something of an arm is still to be settled."""
    return arm.policy == TUNED or arm.rule == COIN


def settle(
    settings: Settings, tasks: Sequence[Selected], host: Answers, file: RowFile, stage: Stage
) -> Settings:
    """The settings with every arm resolved.

    Trees first: for each rule with ``static:tuned`` the shape of least time per token on the dev
    items, the geometric mean over items. Then coins.

    Raises:
        ConfigError: a coin has no margin arm to follow, or there are no dev items.
    """
    if any(not task.settings.dev for task in tasks) and any(map(is_open, settings_arms(settings))):
        raise ConfigError(
            "there are no items to tune on", field="dev", remedy="Give --dev 1 or more"
        )
    trees = {}
    for arm in settings.arms:
        if arm.policy == TUNED and arm.rule != COIN and arm.rule not in trees:
            trees[arm.rule] = _best_shape(arm.rule, settings, tasks, host, file, stage)
    arms = [
        arm.model_copy(update={"resolved_policy": trees[arm.rule]})
        if arm.policy == TUNED and arm.rule != COIN
        else arm
        for arm in settings.arms
    ]
    settled = []
    for arm in arms:
        if arm.rule == COIN:
            margin = _margin_arm(arm, arms)
            policy = margin.arm().policy
            rate = _coin_rate(margin.arm(), settings, tasks, host, file, stage)
            update = {"resolved_rule": f"coin:{rate:.4f}", "resolved_policy": policy}
            arm = arm.model_copy(update=update)
        settled.append(arm)
    return settings.model_copy(update={"arms": settled})


def settings_arms(settings: Settings) -> list[Arm]:
    """The arms of a run as they were asked for."""
    return [Arm(arm.name, arm.rule, arm.policy, arm.role) for arm in settings.arms]


def _best_shape(
    rule: str,
    settings: Settings,
    tasks: Sequence[Selected],
    host: Answers,
    file: RowFile,
    stage: Stage,
) -> str:
    policies = ["static:{},{},{}".format(*shape) for shape in SHAPES]
    arms = [Arm(f"{rule}/{policy}", rule, policy) for policy in policies]
    stage.run(host, _dev_blocks(arms, settings, tasks))
    rows = [row for row in file.rows if row.place.phase == "tune" and not row.answer.error]

    def log_time(arm: Arm) -> float:
        times = [
            math.log(row.answer.seconds / max(row.answer.completion_tokens, 1))
            for row in rows
            if row.place.arm == arm.name
        ]
        return sum(times) / len(times) if times else math.inf

    return min(arms, key=log_time).policy


def _coin_rate(
    margin: Arm,
    settings: Settings,
    tasks: Sequence[Selected],
    host: Answers,
    file: RowFile,
    stage: Stage,
) -> float:
    def promoted(arm: Arm) -> float:
        """Promotions per token on the dev items."""
        stage.run(host, _dev_blocks([arm], settings, tasks))
        rows = [row for row in file.rows if row.place.phase == "tune" and row.place.arm == arm.name]
        tokens = sum(row.answer.completion_tokens for row in rows)
        counts = [(row.answer.stats or {}).get("num_promoted_tokens", 0) for row in rows]
        return sum(counts) / max(tokens, 1)

    def coin(rate: float) -> Arm:
        rule = f"coin:{rate:.4f}"
        return Arm(f"{rule}/{margin.policy}", rule, margin.policy)

    return matching_rate(lambda rate: promoted(coin(rate)), promoted(margin))


def matching_rate(promoted: Callable[[float], float], wanted: float) -> float:
    """The rate in [0, 1], of those tried, whose promotions per token come nearest to `wanted`."""
    tried: dict[float, float] = {}
    rate = 0.3
    for _ in range(ROUNDS):
        rate = round(rate, 4)
        if rate in tried:
            break
        tried[rate] = promoted(rate)
        if tried[rate] == wanted or (tried[rate] == 0 and rate == 1):
            break
        rate = min(1.0, rate * wanted / tried[rate] if tried[rate] else 2 * rate)
    return min(tried, key=lambda value: abs(tried[value] - wanted))


def _margin_arm(coin: ArmSettings, arms: Sequence[ArmSettings]) -> ArmSettings:
    for arm in arms:
        same = arm.rule and arm.policy == coin.policy and arm.lossless is False
        if same and rule_name(arm.arm()) in ("margin", *PRESETS):
            return arm
    raise ConfigError(
        f"{coin.name} copies the promotions of a margin arm, and none has the policy {coin.policy}",
        field="arms",
        remedy=f"Add margin:0.2/{coin.policy}",
    )


def _dev_blocks(arms: Sequence[Arm], settings: Settings, tasks: Sequence[Selected]) -> list[Entry]:
    items = [(task, item) for task in tasks for item in task.chosen(task.settings.dev)]
    return blocks("tune", 0, items, arms, settings)

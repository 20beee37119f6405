"""Budgets on promotions: how many, how close together, how much regret, and where.

A limit never changes what a rule would promote; it cuts the followed path at the first promotion
it forbids, and the target's own token is emitted there instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.verdict import Kind, Verdict


@dataclass(frozen=True)
class Limits:
    """Every limit is off by default.

    Attributes:
        max_promotions_per_step: most promotions on one followed path.
        exact_between: two promotions need an exactly matched draft between them, across steps too.
            The token that ends a step is no match: every step has one.
        max_regret: nats; most regret within any ``regret_window`` consecutive output tokens.
        regret_window: output tokens.
        skip_tokens: no promotion among the first so many output tokens.
        think_only: promotions only between the two thinking tokens.
        think_ids: (opening, closing) token ids; None leaves them to ``Ledger.start``.
    """

    max_promotions_per_step: int | None = None
    exact_between: bool = False
    max_regret: float | None = None
    regret_window: int = 256
    skip_tokens: int = 0
    think_only: bool = False
    think_ids: tuple[int, int] | None = None

    @property
    def any(self) -> bool:
        """Whether any limit is on."""
        return (
            self.max_promotions_per_step is not None
            or self.exact_between
            or self.max_regret is not None
            or self.skip_tokens > 0
            or self.think_only
        )


@dataclass
class Ledger:
    """One request's account of its promotions.

    Attributes:
        outputs: output tokens recorded so far.
        charges: (output position, regret in nats) of the promotions still within a window.
        exact_since: whether a draft matched exactly since the last promotion.
        in_think: whether the next token lies between the thinking tokens.
        think_ids: (opening, closing) ids, or None.
        num_promoted, regret: totals.
    """

    outputs: int = 0
    charges: deque[tuple[int, float]] = field(default_factory=deque)
    exact_since: bool = True
    in_think: bool = False
    think_ids: tuple[int, int] | None = None
    window: int = 256
    num_promoted: int = 0
    regret: float = 0.0

    @classmethod
    def start(
        cls,
        limits: Limits | None = None,
        prompt_ids: Sequence[int] = (),
        think_ids: tuple[int, int] | None = None,
    ) -> Ledger:
        """The account of a new request.

        Args:
            limits: the rule's limits.
            prompt_ids: a prompt may end inside a thinking section.
            think_ids: the tokenizer's thinking tokens, where the limits name none.

        Raises ConfigError when promotions are for thinking only and there are no thinking tokens.
        """
        limits = limits or Limits()
        think_ids = limits.think_ids or think_ids
        if limits.think_only and think_ids is None:
            raise ConfigError(
                "this model has no thinking tokens",
                field="rule_options.think_only",
                remedy="Give their ids with think_ids, or turn it off",
            )
        inside = False
        if think_ids is not None:
            for token in prompt_ids:
                inside = _inside(inside, token, think_ids)
        return cls(in_think=inside, think_ids=think_ids, window=limits.regret_window)

    def record(self, verdict: Verdict, kept: int | None = None) -> None:
        """Take in the emitted tokens of a step after ``commit``: the first ``kept``, or all."""
        for token, kind, drop in zip(
            verdict.tokens[:kept], verdict.kinds, verdict.drops, strict=False
        ):
            if kind is Kind.PROMOTED:
                self.charges.append((self.outputs, drop))
                self.exact_since = False
                self.num_promoted += 1
                self.regret += drop
            elif kind is Kind.EXACT:
                self.exact_since = True
            self.in_think = _inside(self.in_think, token, self.think_ids)
            self.outputs += 1
        while self.charges and self.charges[0][0] <= self.outputs - self.window:
            self.charges.popleft()


def apply_limits(verdict: Verdict, limits: Limits | None, ledger: Ledger) -> Verdict:
    """``verdict``, cut at the first promotion that ``limits`` forbid. The ledger is only read."""
    if limits is None or not limits.any or not verdict.num_promoted:
        return verdict
    exact_since, inside, promoted = ledger.exact_since, ledger.in_think, 0
    charges = list(ledger.charges)
    for index in range(verdict.num_accepted):
        if verdict.kinds[index] is Kind.PROMOTED:
            position, drop = ledger.outputs + index, verdict.drops[index]
            start = position - limits.regret_window
            spent = sum(charge for place, charge in charges if place > start)
            if (
                _over(promoted + 1, limits.max_promotions_per_step)
                or (limits.exact_between and not exact_since)
                or _over(spent + drop, limits.max_regret)
                or position < limits.skip_tokens
                or (limits.think_only and not inside)
            ):
                return verdict.cut(index)
            promoted += 1
            charges.append((position, drop))
            exact_since = False
        else:
            exact_since = True
        inside = _inside(inside, verdict.tokens[index], ledger.think_ids)
    return verdict


def _over(value: float, most: float | None) -> bool:
    return most is not None and value > most


def _inside(inside: bool, token: int, think_ids: tuple[int, int] | None) -> bool:
    """Whether the position after ``token`` lies in a thinking section."""
    if think_ids is None or token not in think_ids:
        return inside
    return token == think_ids[0]

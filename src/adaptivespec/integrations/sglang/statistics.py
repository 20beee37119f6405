"""What speculative decoding did for one request, kept beside it in SGLang's scheduler.

SGLang commits a whole round and cuts it afterwards at EOS, a stop or the length. A summary hence
names the output tokens that it covers, and what lies behind them does not exist.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adaptivespec.core.stats import Statistics
from adaptivespec.core.verdict import Kind

Triple = tuple[int, int, int]  # (num_steps, topk, num_draft_tokens), the root counted as one


class _Round(NamedTuple):
    """One verify round: output tokens [start, end), the last of them the bonus."""

    start: int
    end: int
    promoted: list[tuple[int, float]]  # (depth - 1, nats)
    triple: Triple


@dataclass
class _Account:
    """Sums over committed rounds.

    Attributes:
        stats: acceptance figures.
        triples: rounds by triple.
        charges: (output position, nats) of every promotion.
        exact_since: whether a draft matched exactly since the last promotion.
    """

    stats: Statistics = field(default_factory=Statistics)
    triples: Counter[Triple] = field(default_factory=Counter)
    charges: list[tuple[int, float]] = field(default_factory=list)
    exact_since: bool = True

    def add(self, done: _Round, kept: int) -> None:
        """Take in the first ``kept`` >= 1 tokens of a round."""
        accepted = done.end - done.start - 1
        kinds = [Kind.EXACT] * accepted + [Kind.BONUS]
        regret = 0.0
        for index, nats in done.promoted:
            kinds[index] = Kind.PROMOTED
            if index < kept:
                self.charges.append((done.start + index, nats))
                regret += nats
        self.stats.count(kinds[:kept], done.triple[2] - 1, regret)
        self.triples[done.triple] += 1
        if followed := min(kept, accepted):
            self.exact_since = kinds[followed - 1] is Kind.EXACT


class RequestStatistics:
    """One request's rounds, summed up over exactly the tokens that the host committed.

    ``add_round`` only notes a round. ``summary``, ``charges`` and ``exact_since`` add up the new
    ones, so that a summary at every streamed chunk costs no more than the chunk's own rounds.
    Their ``num_tokens`` is the number of output tokens of the request, the prefill's token
    included. It never falls: a smaller number than before counts as the number before.

    Args:
        rule: label such as "margin:kappa=0.2".
        policy: label of the tree policy.
        lossless: whether this request's rule can promote nothing.
    """

    def __init__(self, *, rule: str, policy: str, lossless: bool) -> None:
        self.rule = rule
        self.policy = policy
        self.lossless = lossless
        self._settled = _Account()
        self._pending: deque[_Round] = deque()

    def add_round(self, start: int, accepted: int, regret: Sequence[float], triple: Triple) -> None:
        """Note one verify round; rounds come in order.

        A round that reaches behind the start of a later one was never committed (the request was
        retracted meanwhile) and is forgotten.

        Args:
            start: output position of the round's first token.
            accepted: followed drafts, exact and promoted.
            regret: entry d holds the nats charged at depth d + 1 if the draft followed there was
                promoted, and a negative number otherwise; empty when nothing was promoted.
            triple: (num_steps, topk, num_draft_tokens) of the round.
        """
        while self._pending and self._pending[-1].end > start:
            self._pending.pop()
        promoted = [
            (index, float(nats)) for index, nats in enumerate(regret[:accepted]) if nats >= 0
        ]
        self._pending.append(_Round(start, start + accepted + 1, promoted, triple))

    def summary(self, num_tokens: int, *, promotions: bool = True) -> dict[str, Any]:
        """Figures over the first ``num_tokens`` output tokens, as JSON values.

        A round counts once its first token was committed. Names and meanings are those of
        ``core.stats``; with no round at all, ratios are None.

        Args:
            num_tokens: output tokens of the request.
            promotions: whether to list every promotion; the rest is small, however long the answer.
        """
        account = self._account(num_tokens)
        stats = account.stats
        summary: dict[str, Any] = {
            "rule": self.rule,
            "policy": self.policy,
            "lossless": self.lossless,
            **stats.as_dict(),
            "acceptance_rate": stats.acceptance_rate,
            "acceptance_histogram": {
                str(accepted): rounds
                for accepted, rounds in sorted(stats.acceptance_histogram.items())
            },
            "triples": {
                ",".join(map(str, triple)): rounds
                for triple, rounds in sorted(account.triples.items())
            },
        }
        if promotions:
            summary["promotions"] = [
                {"position": position, "margin": math.exp(-nats), "regret": nats}
                for position, nats in account.charges
            ]
        return summary

    def charges(self, num_tokens: int) -> list[tuple[int, float]]:
        """(output position, nats) of every promotion, as ``verify.limits.Ledger`` keeps them."""
        return list(self._account(num_tokens).charges)

    def exact_since(self, num_tokens: int) -> bool:
        """Whether a draft matched exactly since the last promotion; True before the first."""
        return self._account(num_tokens).exact_since

    def _account(self, num_tokens: int) -> _Account:
        while self._pending and self._pending[0].end <= num_tokens:
            done = self._pending.popleft()
            self._settled.add(done, done.end - done.start)
        if self._pending and self._pending[0].start < num_tokens:
            cut = deepcopy(self._settled)  # the round may yet turn out to be whole
            cut.add(self._pending[0], num_tokens - self._pending[0].start)
            return cut
        return self._settled

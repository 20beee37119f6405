"""The contract of a policy inside SGLang: one triple for a whole batch, for one round.

SGLang captures graphs for each shape of tree when it starts, so a policy names all its triples
beforehand. A round's results may come one round late, and a request may be gone by then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy.plan import available_nodes

Triple = tuple[int, int, int]


def check_triple(triple: Triple, where: str = "") -> None:
    """ConfigError unless SGLang can draft (num_steps, topk, num_draft_tokens).

    At least one level; a chain (topk 1) is verified whole; a tree has at least two nodes and no
    more than topk on its first level and topk^2 on each other one, and the root.

    Args:
        triple: what to check.
        where: the option it stands in, for the error's field.
    """
    steps, topk, tokens = triple

    def refuse(field: str, law: str, value: int) -> ConfigError:
        name = f"{where}.{field}" if where else field
        return ConfigError(f"must be {law}, got {value} in {triple}", field=name)

    if steps < 1:
        raise refuse("num_steps", "at least 1 inside SGLang", steps)
    if topk < 1:
        raise refuse("topk", "at least 1", topk)
    most = available_nodes(steps, topk)
    if topk == 1 and tokens != most:
        raise refuse("num_draft_tokens", f"num_steps + 1 = {most} where topk is 1", tokens)
    if not 2 <= tokens <= most:
        law = f"in [2, {most}] for {steps} steps of topk {topk}"
        raise refuse("num_draft_tokens", law, tokens)


def largest(triples: Sequence[Triple]) -> Triple:
    """The bounds, number by number, on all of them."""
    steps, topk, tokens = (max(numbers) for numbers in zip(*triples, strict=True))
    return steps, topk, tokens


class BatchPolicy(ABC):
    """A draft policy for batches. Requests are known by their ids.

    Deterministic: the same calls, ``seconds`` included, give the same triples on every rank.

    Attributes:
        triples: all that ``choose`` may return, each of them legal in SGLang.
        label: name and options, as ``make_batch_policy`` reads them.
        needs_confidence: False when ``choose`` never looks at the drafter's confidence.
    """

    triples: tuple[Triple, ...]
    label: str
    needs_confidence: bool = False

    @abstractmethod
    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The triple of the coming round; called once a round.

        Args:
            requests: who drafts, at least one.
            confidence: the drafter's top-1 probability at each one's root; NaN where it is unknown,
                None where all are.
        """

    def observe(  # noqa: B027
        self,
        requests: Sequence[str],
        triple: Triple,
        accepted: Sequence[int],
        confidence: Sequence[float] | None = None,
        seconds: float | None = None,
    ) -> None:
        """A round is done. It may be the one before the last, and requests may be gone by now.

        Args:
            requests: who drafted.
            triple: what each of them drafted.
            accepted: followed drafts of each, promoted ones included.
            confidence: as it was when the triple was chosen.
            seconds: wall time of the round, the same on every rank; None = not measured.
        """

    def join(self, requests: Sequence[str]) -> None:  # noqa: B027
        """Get to know requests of a round for which ``choose`` is not called."""

    def forget(self, requests: Sequence[str]) -> None:  # noqa: B027
        """Requests are over, known or not; nothing of their own is kept."""


class FixedTriple(BatchPolicy):
    """The same triple in every round."""

    def __init__(self, triple: Triple, label: str) -> None:
        check_triple(triple, "policy_options")
        self.triples = (triple,)
        self.label = label

    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The triple."""
        return self.triples[0]


class Wrapper(BatchPolicy):
    """Another policy, which goes on learning whoever chooses."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self.triples, self.label = policy.triples, policy.label
        self.needs_confidence = policy.needs_confidence

    def observe(
        self,
        requests: Sequence[str],
        triple: Triple,
        accepted: Sequence[int],
        confidence: Sequence[float] | None = None,
        seconds: float | None = None,
    ) -> None:
        """As the policy within."""
        self._policy.observe(requests, triple, accepted, confidence, seconds)

    def join(self, requests: Sequence[str]) -> None:
        """As the policy within."""
        self._policy.join(requests)

    def forget(self, requests: Sequence[str]) -> None:
        """As the policy within."""
        self._policy.forget(requests)


class LargeBatch(Wrapper):
    """One cheap triple for batches of more than ``limit`` requests, the policy's own below.

    Where the device has no compute to spare, deep trees cost what they earn.
    """

    def __init__(self, policy: BatchPolicy, limit: int, triple: Triple) -> None:
        super().__init__(policy)
        check_triple(triple, "large_batch")
        self._limit, self._triple = limit, triple
        self.triples = tuple(dict.fromkeys((*policy.triples, triple)))

    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The policy's choice, or the cheap triple."""
        if len(requests) <= self._limit:
            return self._policy.choose(requests, confidence)
        self._policy.join(requests)
        return self._triple


class Held(Wrapper):
    """A triple stays for at least ``rounds`` rounds; 1 = it may change with every round."""

    def __init__(self, policy: BatchPolicy, rounds: int) -> None:
        super().__init__(policy)
        self._rounds = rounds
        self._triple: Triple | None = None
        self._stood = 0

    def choose(self, requests: Sequence[str], confidence: Sequence[float] | None = None) -> Triple:
        """The triple in force, or the policy's choice where it has stood for long enough."""
        if self._triple is None or self._stood >= self._rounds:
            chosen = self._policy.choose(requests, confidence)
            if chosen != self._triple:
                self._triple, self._stood = chosen, 0
        else:
            self._policy.join(requests)
        self._stood += 1
        return self._triple

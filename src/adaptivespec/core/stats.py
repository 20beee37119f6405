"""Acceptance statistics, with the names and meanings of vLLM and SGLang.

"draft" counts drafted tokens only; "accept" in accept_length includes the token that ends a step.
Only what was committed counts. Zero steps give None, never NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adaptivespec.core.trace import StepTrace
from adaptivespec.core.verdict import Kind


@dataclass
class Statistics:
    """Sums over verify steps.

    Attributes:
        num_spec_steps: verify passes, those of a root-only tree included.
        num_drafts: verify passes with at least one drafted node.
        num_committed_tokens: tokens kept, ending EOS included.
        num_draft_tokens: drafted nodes verified, roots not counted.
        num_accepted_draft_tokens: followed drafts committed, exact and promoted.
        num_promoted_tokens: those of them that were promoted.
        regret_nats: sum of -ln margin over promoted tokens.
        acceptance_histogram: drafts accepted in a step -> number of such steps.
        kind_counts: committed tokens by kind.
        accepted_per_pos: entry i counts the steps whose draft at depth i + 1 was accepted.
        promoted_per_pos: those of them where it was promoted.
    """

    num_spec_steps: int = 0
    num_drafts: int = 0
    num_committed_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_promoted_tokens: int = 0
    regret_nats: float = 0.0
    acceptance_histogram: Counter[int] = field(default_factory=Counter)
    kind_counts: Counter[str] = field(default_factory=Counter)
    accepted_per_pos: list[int] = field(default_factory=list)
    promoted_per_pos: list[int] = field(default_factory=list)

    def add(self, step: StepTrace) -> None:
        """Count one step, which ``commit`` has already cut."""
        self.count(step.kinds, step.num_verified, step.regret)

    def count(self, kinds: Sequence[Kind], num_verified: int, regret: float) -> None:
        """Count one step by its committed tokens.

        Args:
            kinds: why each was emitted: followed drafts in order, then the bonus unless it was cut.
            num_verified: drafted nodes in the verified tree, the root not counted.
            regret: nats charged for the promotions among them.
        """
        accepted = len(kinds) - kinds.count(Kind.BONUS)
        self.num_spec_steps += 1
        self.num_drafts += num_verified > 0
        self.num_committed_tokens += len(kinds)
        self.num_draft_tokens += num_verified
        self.num_accepted_draft_tokens += accepted
        self.num_promoted_tokens += kinds.count(Kind.PROMOTED)
        self.regret_nats += regret
        self.acceptance_histogram[accepted] += 1
        self.kind_counts.update(map(str, kinds))
        self._grow(accepted)
        for position, kind in enumerate(kinds[:accepted]):
            self.accepted_per_pos[position] += 1
            self.promoted_per_pos[position] += kind is Kind.PROMOTED

    def merge(self, other: Statistics) -> None:
        """Add the sums of another request."""
        self.num_spec_steps += other.num_spec_steps
        self.num_drafts += other.num_drafts
        self.num_committed_tokens += other.num_committed_tokens
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_draft_tokens += other.num_accepted_draft_tokens
        self.num_promoted_tokens += other.num_promoted_tokens
        self.regret_nats += other.regret_nats
        self.acceptance_histogram.update(other.acceptance_histogram)
        self.kind_counts.update(other.kind_counts)
        self._grow(len(other.accepted_per_pos))
        for position, count in enumerate(other.accepted_per_pos):
            self.accepted_per_pos[position] += count
            self.promoted_per_pos[position] += other.promoted_per_pos[position]

    @property
    def accept_length(self) -> float | None:
        """Committed tokens per verify step."""
        return _ratio(self.num_committed_tokens, self.num_spec_steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted drafts / verified drafts, in [0, 1]."""
        return _ratio(self.num_accepted_draft_tokens, self.num_draft_tokens)

    @property
    def mean_tree_nodes(self) -> float | None:
        """Nodes per verified tree, the root included."""
        return _ratio(self.num_draft_tokens + self.num_spec_steps, self.num_spec_steps)

    def as_dict(self) -> dict[str, Any]:
        """The eight figures that every result carries."""
        return {
            "accept_length": self.accept_length,
            "num_spec_steps": self.num_spec_steps,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_draft_tokens": self.num_accepted_draft_tokens,
            "num_promoted_tokens": self.num_promoted_tokens,
            "regret_nats": self.regret_nats,
            "mean_tree_nodes": self.mean_tree_nodes,
            "accepted_per_pos": list(self.accepted_per_pos),
        }

    def details(self) -> dict[str, Any]:
        """All figures: those of ``as_dict``, rates, the histogram and the counts by kind."""
        return {
            **self.as_dict(),
            "num_drafts": self.num_drafts,
            "num_committed_tokens": self.num_committed_tokens,
            "acceptance_rate": self.acceptance_rate,
            "acceptance_histogram": dict(sorted(self.acceptance_histogram.items())),
            "promoted_per_pos": list(self.promoted_per_pos),
            "kind_counts": {kind.value: self.kind_counts[kind.value] for kind in Kind},
        }

    def _grow(self, size: int) -> None:
        missing = size - len(self.accepted_per_pos)
        if missing > 0:
            self.accepted_per_pos += [0] * missing
            self.promoted_per_pos += [0] * missing


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None

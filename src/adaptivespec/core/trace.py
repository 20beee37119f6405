"""One record per decode step, of what was drafted, verified and committed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Kind, Verdict


@dataclass(frozen=True)
class StepTrace:
    """One verify step, already cut by ``commit``: only what was committed is in it.

    Attributes:
        step: counted from 0.
        position: output tokens committed before this step.
        plan: (num_steps, topk, num_draft_tokens) the policy asked for.
        root_confidence: the drafter's top-1 probability at the root; None when nothing was drafted.
        num_drafted: candidates the drafter scored.
        num_verified: drafted nodes in the verified tree, the root not counted.
        num_accepted: followed drafts that were committed, exact and promoted.
        num_promoted: those of them that were not the target's choice.
        committed: tokens kept, an ending EOS included.
        regret: nats charged for the promotions.
        tokens, kinds, margins, strict: for each kept token its id, why it was emitted, its
            p / max p, and what strict verification would have emitted there.
        path: node ids followed, the root first.
        nodes: token, parent, depth and logq of every node of the tree, when recorded.
        seconds: wall time of the phases "draft", "verify" and "host".
    """

    step: int
    position: int
    plan: tuple[int, int, int]
    root_confidence: float | None
    num_drafted: int
    num_verified: int
    num_accepted: int
    num_promoted: int
    committed: int
    regret: float
    tokens: list[int]
    kinds: list[Kind]
    margins: list[float]
    strict: list[int]
    path: list[int]
    nodes: dict[str, list[Any]] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        verdict: Verdict,
        kept: int,
        *,
        step: int,
        position: int,
        plan: tuple[int, int, int],
        root_confidence: float | None = None,
        num_drafted: int = 0,
        num_verified: int = 0,
        tree: DraftTree | None = None,
        seconds: Mapping[str, float] | None = None,
    ) -> StepTrace:
        """The record of a step whose commit kept ``kept`` tokens; ``tree`` fills ``nodes``."""
        done = verdict.committed(kept)
        return cls(
            step=step,
            position=position,
            plan=plan,
            root_confidence=root_confidence,
            num_drafted=num_drafted,
            num_verified=num_verified,
            num_accepted=done.num_accepted,
            num_promoted=done.num_promoted,
            committed=kept,
            regret=done.regret,
            tokens=done.tokens,
            kinds=done.kinds,
            margins=done.margins,
            strict=done.strict,
            path=done.path,
            nodes=None if tree is None else nodes_of(tree),
            seconds=dict(seconds or {}),
        )

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        row = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        row["plan"] = list(self.plan)
        row["kinds"] = [kind.value for kind in self.kinds]
        return row


def nodes_of(tree: DraftTree) -> dict[str, list[Any]]:
    """An unbatched tree as lists."""
    names = ("token", "parent", "depth", "logq")
    return {name: getattr(tree, name).tolist() for name in names}

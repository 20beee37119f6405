"""One record per decode step, of what was drafted, verified and committed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adaptivespec.core.draft import Draft
from adaptivespec.core.verdict import Choice, Kind, Verdict


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
        nodes: of every node of the tree, when recorded: token, parent, depth, logq, its rank among
            the children offered with it, the target's own token after it (``target``) and the
            margin of its token under its parent (1 = the target's first choice; 0 at the root).
        reason: why the tree is what it is, as the drafter reports it.
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
    reason: dict[str, float | str] = field(default_factory=dict)
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
        nodes: dict[str, list[Any]] | None = None,
        reason: Mapping[str, float | str] | None = None,
        seconds: Mapping[str, float] | None = None,
    ) -> StepTrace:
        """The record of a step whose commit kept ``kept`` tokens."""
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
            nodes=nodes,
            reason=dict(reason or {}),
            seconds=dict(seconds or {}),
        )

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        row = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        row["plan"] = list(self.plan)
        row["kinds"] = [kind.value for kind in self.kinds]
        return row


def nodes_of(draft: Draft, choice: Choice) -> dict[str, list[Any]]:
    """Every node of an unbatched tree and what the target said of it, as lists."""
    tree = draft.tree
    nodes: dict[str, list[Any]] = {
        name: getattr(tree, name).tolist() for name in ("token", "parent", "depth", "logq")
    }
    # Drawn drafts may be excluded by the drafter's own law, and JSON has no infinity.
    nodes["logq"] = [None if value == -math.inf else value for value in nodes["logq"]]
    nodes["rank"] = [0] * tree.num_nodes if draft.rank is None else draft.rank.tolist()
    nodes["target"] = choice.target.tolist()
    nodes["margin"] = choice.child_drop.neg().exp().tolist()
    return nodes

"""Strict verification: follow the target's own tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import NodeTest, Rule, VerifyState

if TYPE_CHECKING:
    from adaptivespec.core.law import Law
    from adaptivespec.core.tree import DraftTree


class StrictRule(Rule):
    """Lossless: a draft is accepted when it is the target's own token.

    The target's token is drawn once at each node (the argmax at temperature 0) and followed where
    it was drafted. Drafts are a deterministic top-k, so emitted tokens have the target's law
    exactly (SpecInfer, arXiv 2305.09781; EAGLE, 2401.15077).
    """

    name: ClassVar[str] = "strict"
    formula: ClassVar[str] = "x = y"
    source: ClassVar[str] = "Leviathan 2211.17192, SpecInfer 2305.09781, EAGLE"
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "margins"
    tree_independent: ClassVar[bool] = True

    @property
    def lossless(self) -> bool:
        """Always."""
        return True

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token at every node, unchanged."""
        return Choice(law.target, law.target, law.child_drop(tree), law.target_drop)

    def node_test(self, state: VerifyState) -> NodeTest:
        """Nothing passes."""
        return NodeTest(state.protected)

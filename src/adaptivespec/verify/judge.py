"""Judge Decoding: a trained head decides which rejected drafts do no harm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.law import Law, at_parent
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice
from adaptivespec.verify.base import Rule, RuleOptions, VerifyState
from adaptivespec.verify.margin import promote
from adaptivespec.verify.probe import Probe


class JudgeOptions(RuleOptions):
    """Options of the trained rules."""

    threshold: float = Field(0.5, gt=0, lt=1, description="accept above this probability")
    head: str = Field(
        "", description="directory of a trained head; empty = the one that ships for the target"
    )


class JudgeRule(Rule):
    """Lossy: where strict would stop, accept a draft that a trained head takes for harmless.

    The head is logistic regression on e(u), the residual stream that leaves the target's last
    layer *at* the drafted node u: the target has read the token, and e(u) shows what it makes of
    it. e(u) is divided by its root mean square; sigma is the logistic function:

        accept u  if  u holds y,  else if  sigma(w . e(u) / rms(e(u)) + b) > threshold

    The target's own token comes first; among several accepted children the one of largest score is
    followed, then the one of lowest index, at every temperature. Protected tokens are neither
    promoted nor overridden. A child that a mask or top-k, top-p or min-p excludes is not accepted.

    A head belongs to one target. It is read at first use; `adaptivespec train-judge` makes one.

    (Judge Decoding, Bachmann et al., arXiv 2501.19309: a linear head on the target's last
    hidden states, threshold 0.5.)
    """

    name: ClassVar[str] = "judge"
    formula: ClassVar[str] = "x = y, else sigmoid(w . e(x) + b) > threshold"
    source: ClassVar[str] = "Judge Decoding 2501.19309, labels as in AutoJudge 2504.20039"
    trained: ClassVar[bool] = True
    signals: ClassVar[Literal["margins", "logits", "hidden"]] = "hidden"
    Options: ClassVar[type[RuleOptions]] = JudgeOptions

    def __init__(self, options: RuleOptions | None = None) -> None:
        super().__init__(options)
        self._opts = cast(JudgeOptions, self.options)
        odds = (1 - self._opts.threshold) / self._opts.threshold
        self._limit = torch.tensor(math.log(odds), dtype=torch.float32)  # of minus the logit
        self._probe: Probe | None = None

    @property
    def lossless(self) -> bool:
        """Never: any draft may be accepted."""
        return False

    def check_target(self, name: str) -> None:
        """Read the head and refuse it when it was trained for another target than `name`.

        Raises ConfigError or CheckpointError, as `Probe.load` and `Probe.check_target`.
        """
        self._head().check_target(name)

    def choose(self, law: Law, tree: DraftTree, state: VerifyState) -> Choice:
        """The target's token, or the child of largest score where the target's was not drafted.

        Raises ConfigError or CheckpointError when the head is missing or made for another model.
        """
        drop, tokens = law.child_drop(tree), law.target
        worth = self._score(law, tree)
        if tree.num_nodes > 1:
            legal = drop < math.inf
            if law.scaled is not None:
                legal &= at_parent(law.scaled, tree) > -math.inf
            # `promote` takes the smallest drop below the limit: minus the logit stands in for it,
            # and without `scaled` it does so at every temperature.
            tokens = promote(
                replace(law, scaled=None),
                tree,
                self._limit,
                state.protected,
                child_drop=torch.where(legal, -worth, math.inf),
            )
        return Choice(law.target, tokens, drop, law.target_drop)

    def _score(self, law: Law, tree: DraftTree) -> Tensor:
        """f32[..., N]: the head's logit at every node."""
        hidden = law.hidden
        if hidden is None:
            raise ConfigError(
                f"the target gives no hidden states, which {self.name} reads",
                field="rule",
                remedy="Use a rule that reads logits, such as margin",
            )
        draft_hidden = None
        if self.draft_hidden and tree.num_nodes > 1:
            draft_hidden = tree.hidden
            if draft_hidden is None:
                raise ConfigError(
                    f"the drafter gives no features, which {self.name} reads",
                    field="rule",
                    remedy="Use judge, which reads the target alone",
                )
        probe = self._head()
        width = None if draft_hidden is None else draft_hidden.shape[-1]
        probe.check_sizes(hidden.shape[-1], law.logits.shape[-1], width)
        if probe.weight.device != hidden.device:
            self._probe = probe = probe.to(hidden.device)
        return probe.logit(hidden, draft_hidden)

    def _head(self) -> Probe:
        if self._probe is None:
            self._probe = Probe.load(self._opts.head, self.name)
        return self._probe

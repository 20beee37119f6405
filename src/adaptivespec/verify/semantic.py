"""SemanticSpec: a trained head on the hidden states of both models."""

from __future__ import annotations

from typing import ClassVar

from adaptivespec.verify.judge import JudgeRule


class SemanticRule(JudgeRule):
    """Lossy: as `judge`, with a head that reads the target's and the drafter's hidden states.

        accept u  if  u holds y,
        else if  sigma(w . [e(u) / rms(e(u)); d(u) / rms(d(u))] + b) > threshold

    with e(u) as in `judge` and d(u) the feature from which the drafter proposed u. Siblings share
    d(u), which therefore tells positions apart and e(u) tokens. Options, the choice among children
    and protected tokens are as in `judge`.

    No head ships; `adaptivespec train-judge --kind semantic` makes one for a target and a drafter.

    (SemanticSpec, arXiv 2602.03708: probes on target and draft hidden states.)
    """

    name: ClassVar[str] = "semantic"
    formula: ClassVar[str] = "x = y, else sigmoid(w . [e_target(x); e_draft(x)] + b) > threshold"
    source: ClassVar[str] = "SemanticSpec 2602.03708"
    draft_hidden: ClassVar[bool] = True

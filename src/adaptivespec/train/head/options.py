"""Options of the training of a head."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from adaptivespec.core.errors import ConfigError

#: Metadata of an option that a stopped run may change when it goes on.
FREE = {"may_change": True}


@dataclass(frozen=True)
class TrainOptions:
    """How to train.  Lengths in tokens, rates per optimiser step.

    Attributes:
        epochs: passes over the corpus.
        max_steps: optimiser steps after which the schedule ends, though epochs are left; or None.
        batch_size: texts per optimiser step.
        learning_rate: the peak.
        warmup_steps: steps of linear rise to the peak; 0 for none.
        final_rate: where the cosine ends, as a share of the peak.
        unroll_steps: depth of the training-time test.
        step_weight: the loss of unroll step k counts `step_weight ** k`.
        average: decay of an exponential moving average of the weights, which checks and written
            heads then use; 0 turns it off.
        tie_output: keep `lm_head` at the target's output rows; only the layer and `norm` learn.
        loss_rows: share of the rows, chosen by seed, whose loss is taken at unroll steps >= 1.
        checkpoint_minutes: time between checks.
        max_minutes: stop after so long; None for never.
        seed: of the order of the texts and of `loss_rows`.
    """

    epochs: int = 3
    max_steps: int | None = None
    batch_size: int = 4
    learning_rate: float = 1e-3
    warmup_steps: int = 40
    final_rate: float = 0.03
    unroll_steps: int = 3
    step_weight: float = 0.8
    average: float = 0.0
    tie_output: bool = False
    loss_rows: float = 1.0
    checkpoint_minutes: float = field(default=5.0, metadata=FREE)
    max_minutes: float | None = field(default=None, metadata=FREE)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch_size", 1), ("unroll_steps", 1)):
            self._check(name, getattr(self, name) >= low, f"at least {low}")
        self._check("max_steps", self.max_steps is None or self.max_steps > 0, "above 0")
        self._check("warmup_steps", self.warmup_steps >= 0, "at least 0")
        self._check("learning_rate", 0 < self.learning_rate < 1, "in (0, 1)")
        self._check("final_rate", 0 <= self.final_rate <= 1, "in [0, 1]")
        self._check("step_weight", 0 < self.step_weight <= 2, "in (0, 2]")
        self._check("average", 0 <= self.average < 1, "in [0, 1)")
        self._check("loss_rows", 0 < self.loss_rows <= 1, "in (0, 1]")
        self._check("checkpoint_minutes", self.checkpoint_minutes >= 0, "at least 0")
        self._check("max_minutes", self.max_minutes is None or self.max_minutes > 0, "above 0")

    def _check(self, name: str, holds: bool, bounds: str) -> None:
        if not holds:  # NaN fails every comparison, so it ends here as well
            raise ConfigError(f"must be {bounds}, got {getattr(self, name)}", field=name)

    @classmethod
    def fixed(cls) -> tuple[str, ...]:
        """Options that change the result: a run that goes on must have them as it began."""
        return tuple(f.name for f in fields(cls) if not f.metadata.get("may_change"))

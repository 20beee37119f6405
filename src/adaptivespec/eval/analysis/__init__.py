"""From the rows of a run to its figures: accuracy, divergence, acceptance, time, noise."""

from __future__ import annotations

from adaptivespec.eval.analysis.figures import POOLED, Cell, Control, NoiseLine
from adaptivespec.eval.analysis.summary import Summary, analyse

__all__ = ["POOLED", "Cell", "Control", "NoiseLine", "Summary", "analyse"]

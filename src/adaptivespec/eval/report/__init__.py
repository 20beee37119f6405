"""Reports of a run: summary.csv, report.md, report.html and frontier.png, from its rows alone."""

from __future__ import annotations

from adaptivespec.eval.report.writing import write_report

__all__ = ["write_report"]

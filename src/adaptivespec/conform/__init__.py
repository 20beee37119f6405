"""Whether a server with OpenAI's interface keeps its word: cases asked over HTTP, a report."""

from __future__ import annotations

from adaptivespec.conform.case import Case, Outcome, Verdict
from adaptivespec.conform.report import write_report
from adaptivespec.conform.run import Report, run, selected

__all__ = ["Case", "Outcome", "Report", "Verdict", "run", "selected", "write_report"]

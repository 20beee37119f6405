"""Errors of benchmarks."""

from __future__ import annotations

from adaptivespec.core.errors import AdaptiveSpecError


class DataError(AdaptiveSpecError):
    """The items of a task cannot be had or read."""


class RunError(AdaptiveSpecError, ValueError):
    """A run's folder cannot be used: not a run, of other settings, or damaged."""


class TargetError(AdaptiveSpecError):
    """A target cannot be made or asked: not installed, not reachable, not able."""

"""Figures as text, the same in every table. What is not known is a dash."""

from __future__ import annotations

from adaptivespec.eval.statistics import Estimate

__all__ = ["DASH", "interval", "number", "percent", "points", "promise", "times"]

DASH = "–"  # noqa: RUF001 - the dash of tables
_MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number."""
    return DASH if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as a percentage."""
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def points(value: float | None, digits: int = 1) -> str:
    """A difference of shares in points of a percentage, with its sign."""
    if value is None:
        return DASH
    rounded = round(100 * value, digits)
    sign = _MINUS if rounded < 0 else "+" if rounded > 0 else ""
    return f"{sign}{abs(rounded):.{digits}f}"


def times(value: float | None) -> str:
    """A ratio of speeds."""
    return DASH if value is None else f"{value:.2f}x"


def interval(estimate: Estimate, scale: str = "number") -> str:
    """The bounds in brackets, as "number", "percent" or "points"; empty where there are none."""
    if estimate.low is None or estimate.high is None:
        return ""
    if scale == "points":
        return f"[{points(estimate.low)}, {points(estimate.high)}]"
    if scale == "percent":
        return f"[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
    return f"[{estimate.low:.2f}, {estimate.high:.2f}]"


def promise(lossless: bool | None) -> str:
    """What an arm promises about its text."""
    return {True: "lossless", False: "lossy", None: "not told"}[lossless]

"""What one decoding round costs: T = overhead + sum of draft passes + one verify pass.

On a CPU a verify pass grows almost linearly with its nodes, on a GPU it is a step function; both
are tables here, so that one policy suits both. Times are seconds.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import parse_spec

Table = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class CostProfile:
    """Measured costs of one model on one machine.

    Attributes:
        name: what and where, for people.
        verify: (context length, ((nodes, seconds), ...)) with rising keys; at least one context.
        draft: (rows, seconds) of one pass of the drafter, rows rising.
        overhead: seconds per round that depend on nothing: choosing, committing, reading the root.
    """

    name: str
    verify: tuple[tuple[int, Table], ...]
    draft: Table
    overhead: float = 0.0

    def __post_init__(self) -> None:
        if not self.verify:
            raise ConfigError("has no verify times", field="cost.verify")
        for context, table in self.verify:
            _check(f"verify at context {context}", table)
        _check("draft", self.draft)
        if not 0 <= self.overhead < float("inf"):
            raise ConfigError(f"must be finite and >= 0, got {self.overhead!r}", field="overhead")

    def verify_s(self, nodes: int, context: int = 0) -> float:
        """Seconds of a verify pass over ``nodes``, interpolated in both nodes and context."""
        return _interpolate([(at, _at(table, nodes)) for at, table in self.verify], context)

    def draft_s(self, rows: int) -> float:
        """Seconds of one pass of the drafter over ``rows`` nodes."""
        return _at(self.draft, rows)

    def round_s(self, rows: Sequence[int], nodes: int, context: int = 0) -> float:
        """Seconds of a round with draft passes over ``rows[i]`` nodes and ``nodes`` verified."""
        drafting = sum(self.draft_s(width) for width in rows)
        return self.overhead + drafting + self.verify_s(nodes, context)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "cost") -> CostProfile:
        """The inverse of ``to_json``; ConfigError names what is missing or wrong."""
        try:
            return cls(
                str(data["name"]),
                tuple((int(at), _table(rows)) for at, rows in data["verify"]),
                _table(data["draft"]),
                float(data.get("overhead", 0.0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"is no cost profile: {type(error).__name__} {error}",
                field=where,
                remedy="`adaptivespec profile --json FILE` writes one",
            ) from None

    @classmethod
    def parse(cls, text: str) -> CostProfile:
        """A profile from a JSON file, or from numbers in milliseconds.

        As numbers: ``NAME:verify=[[1,18],[16,18.5],[64,20]],draft=[[1,0.6]],overhead=0.5``, with
        ``draft`` and ``verify`` a plain number where nothing depends on the size.
        """
        if text.endswith(".json") or "=" not in text:
            path = Path(text).expanduser()
            try:
                return cls.from_json(json.loads(path.read_text(encoding="utf-8")), text)
            except (OSError, ValueError) as error:
                if isinstance(error, ConfigError):
                    raise
                raise ConfigError(
                    f"cannot read {text}: {error}",
                    field="cost",
                    remedy="Give a JSON file, or NAME:verify=[[1,18],[64,20]],draft=0.6 in ms",
                ) from None
        spec = parse_spec(text, "cost")
        unknown = set(spec.keywords) - {"verify", "draft", "overhead"}
        if unknown or spec.positional or "verify" not in spec.keywords:
            raise ConfigError(
                f"cannot read '{text}'",
                field="cost",
                remedy="Write NAME:verify=[[1,18],[64,20]],draft=0.6,overhead=0.5 in milliseconds",
            )

        def seconds(value: Any) -> list[tuple[int, float]]:
            pairs = value if isinstance(value, list) else [[1, value]]
            return [(size, ms / 1e3) for size, ms in pairs]

        try:
            data = {
                "name": spec.name,
                "verify": [(0, seconds(spec.keywords["verify"]))],
                "draft": seconds(spec.keywords.get("draft", 0.0)),
                "overhead": float(str(spec.keywords.get("overhead", 0.0))) / 1e3,
            }
        except (TypeError, ValueError):
            raise ConfigError(
                f"cannot read the numbers of '{text}'", field="cost", remedy="Milliseconds"
            ) from None
        return cls.from_json(data)


def isotonic(values: Sequence[float]) -> list[float]:
    """The nearest rising sequence in least squares: pool adjacent violators."""
    pools: list[tuple[float, int]] = []  # mean, members
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return [mean for mean, members in pools for _ in range(members)]


def _table(rows: Any) -> Table:
    return tuple((int(size), float(seconds)) for size, seconds in rows)


def _check(what: str, table: Table) -> None:
    sizes = [size for size, _ in table]
    if not table or sizes != sorted(set(sizes)) or sizes[0] < 0:
        raise ConfigError(f"sizes must rise, got {sizes}", field=what)
    for size, seconds in table:
        if not 0 <= seconds < float("inf"):
            raise ConfigError(f"must be finite and >= 0, got {seconds!r} at {size}", field=what)


def _at(table: Table, size: int) -> float:
    return _interpolate(table, size)


def _interpolate(points: Sequence[tuple[int, float]], x: float) -> float:
    """Linear between points, flat before the first, along the last slope (if it rises) beyond."""
    if len(points) == 1 or x <= points[0][0]:
        return points[0][1]
    right = min(bisect_right(points, x, key=lambda point: point[0]), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    slope = (y1 - y0) / (x1 - x0)
    if x > x1:
        return y1 + max(slope, 0.0) * (x - x1)
    return y0 + slope * (x - x0)

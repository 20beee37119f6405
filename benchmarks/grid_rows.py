"""The rows that grid.py writes: read, paired with plain decoding, and set in tables.

Plain is plain decoding of the same prompt: its median run in the cell's own block.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adaptivespec.policy import POLICIES
from adaptivespec.verify import rule_names

RATIOS = ("request_ratio", "token_ratio")
"""Names of the two speeds of a Run."""

_RESAMPLES = 2000
_NUMBER = re.compile(r"(?<!\d)-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class Run:
    """A cell's row of one prompt, beside the rows of plain decoding in the same block."""

    row: dict[str, Any]
    plain: Sequence[dict[str, Any]]

    @property
    def request_ratio(self) -> float:
        """Seconds of plain / of the cell, for the whole request."""
        return statistics.median(row["seconds"] for row in self.plain) / self.row["seconds"]

    @property
    def token_ratio(self) -> float:
        """The same for each token of the answer."""
        return self.request_ratio * self.row["tokens"] / self.plain[0]["tokens"]

    @property
    def same_answer(self) -> bool | None:
        """Whether the last number is that of plain; None where plain gave no answer."""
        expected = last_number(self.plain[0]["text"])
        if self.plain[0]["finish"] != "stop" or expected is None:
            return None
        return last_number(self.row["text"]) == expected

    @property
    def prefix(self) -> float:
        """Share of the longer text, in characters, that both texts begin with."""
        pair = self.row["text"], self.plain[0]["text"]
        same = takewhile(lambda letters: letters[0] == letters[1], zip(*pair, strict=False))
        longest = max(map(len, pair))
        return sum(1 for _ in same) / longest if longest else 1.0


class Interval(NamedTuple):
    """A statistic and its 95 % bootstrap interval, which is unbounded for a single value."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], statistic: Callable[..., Any]) -> Interval:
        sample = np.asarray(values)
        if len(sample) < 2:
            return cls(float(statistic(sample)), -math.inf, math.inf)
        draws = np.random.default_rng(0).integers(len(sample), size=(_RESAMPLES, len(sample)))
        low, high = np.percentile(statistic(sample[draws], axis=1), [2.5, 97.5])
        return cls(float(statistic(sample)), float(low), float(high))

    def bounds(self, form: str) -> str:
        """Both ends in words; "-" where nothing is known."""
        if math.isinf(self.low):
            return "-"
        return f"{self.low:{form}} to {self.high:{form}}"


def read_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of all files; a line that a kill cut off is left out."""
    rows = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return rows


def paired(rows: Sequence[dict[str, Any]]) -> list[Run]:
    """Every finished cell beside its block's plain runs; the last one where it ran twice."""
    plain: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["plain"]:
            plain[row["task"], row["index"], row["start"]].append(row)
    runs = {}
    for row in rows:
        if not row["plain"] and "error" not in row:
            key = row["rule"], row["policy"], row["task"], row["index"]
            runs[key] = Run(row, plain[row["task"], row["index"], row["start"]])
    return list(runs.values())


def last_number(text: str) -> Decimal | None:
    """The last number in a text, without thousands separators."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def where(runs: Sequence[Run], **values: str) -> list[Run]:
    """Runs whose row has these values; task "all" is every task."""
    wanted = {key: value for key, value in values.items() if value != "all"}
    return [run for run in runs if all(run.row[key] == value for key, value in wanted.items())]


def rules_of(runs: Sequence[Run]) -> list[str]:
    """The rules of the rows, in the order of their registry."""
    return _ordered((run.row["rule"] for run in runs), rule_names())


def policies_of(runs: Sequence[Run]) -> list[str]:
    """The policies of the rows, in the order of their registry."""
    return _ordered((run.row["policy"] for run in runs), POLICIES.names())


def tasks_of(runs: Sequence[Run]) -> list[str]:
    """The tasks of the rows, after "all", which stands for every task."""
    return ["all", *sorted({run.row["task"] for run in runs})]


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    rows = [list(head), *map(list, body)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(map(str.ljust, row, widths)) for row in rows]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in lines)


def _ordered(specs: Iterable[str], names: Sequence[str]) -> list[str]:
    """Spellings in the order of the registry."""
    place = {name: which for which, name in enumerate(names)}
    return sorted(
        set(specs), key=lambda spec: (place.get(spec.partition(":")[0], len(names)), spec)
    )

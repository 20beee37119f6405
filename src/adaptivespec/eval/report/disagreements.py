"""Answers worth reading: an arm's beside the baseline's, where grades or texts differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from adaptivespec.eval.analysis.samples import Samples
from adaptivespec.eval.measures import first_divergence, promotions, regret, same_output
from adaptivespec.eval.rows import Row
from adaptivespec.eval.targets.base import Answer

__all__ = ["Piece", "Reading", "readings"]

MOST = 60
_CHARACTERS = 4000
_BUDGET = 1_000_000


@dataclass(frozen=True)
class Piece:
    """A stretch of an answer: before the first difference, after it, or a promoted token."""

    text: str
    kind: str
    margin: float | None = None


@dataclass(frozen=True)
class Reading:
    """One item to read.

    Attributes:
        arm, task, index: whose, and of what.
        verdicts: of the baseline and the arm, in a word.
        final: their final answers.
        differs: whether the grades do.
        regret, promotions: of the arm's answer.
        base, ours: the answers.
    """

    arm: str
    task: str
    index: int
    verdicts: tuple[str, str]
    final: tuple[str, str]
    differs: bool
    regret: float | None
    promotions: int | None
    base: list[Piece]
    ours: list[Piece]


def readings(samples: Samples, most: int = MOST) -> list[Reading]:
    """At most so many: those whose grades differ first, then by regret, arms taking turns."""
    baseline = samples.settings.baseline
    base = samples.quality.get(baseline, {})
    by_arm: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for arm in samples.settings.arms:
        for key, row in sorted(samples.quality.get(arm.name, {}).items()):
            other = base.get(key)
            if arm.name == baseline or other is None or row.answer.error or other.answer.error:
                continue
            if not same_output(row.answer, other.answer) or _differs(row, other):
                by_arm[arm.name].append((row, other))
    for pairs in by_arm.values():
        pairs.sort(key=lambda pair: (not _differs(*pair), -(regret(pair[0].answer) or 0.0)))
    chosen: list[Reading] = []
    spent = 0
    for row, other in _in_turn(list(by_arm.values())):
        reading = _reading(row, other)
        spent += _size(reading)
        if len(chosen) == most or spent > _BUDGET:
            break
        chosen.append(reading)
    return chosen


def _in_turn(queues: Sequence[Sequence[tuple[Row, Row]]]) -> Iterator[tuple[Row, Row]]:
    """Pairs whose grades differ, arms in turn, then the rest likewise."""
    for differs in (True, False):
        parts = [[pair for pair in queue if _differs(*pair) is differs] for queue in queues]
        for round_ in zip_longest(*parts):
            yield from (pair for pair in round_ if pair is not None)


def _differs(row: Row, other: Row) -> bool:
    ours, theirs = row.grade, other.grade
    return ours is not None and theirs is not None and ours.correct != theirs.correct


def _reading(row: Row, other: Row) -> Reading:
    start = None
    if row.answer.token_ids is not None and other.answer.token_ids is not None:
        start = first_divergence(row.answer.token_ids, other.answer.token_ids)
    return Reading(
        arm=row.place.arm,
        task=row.place.task,
        index=row.place.index,
        verdicts=(_verdict(other), _verdict(row)),
        final=(_final(other), _final(row)),
        differs=_differs(row, other),
        regret=regret(row.answer),
        promotions=promotions(row.answer),
        base=_pieces(other.answer, start),
        ours=_pieces(row.answer, start),
    )


def _verdict(row: Row) -> str:
    if row.grade is None or row.grade.status == "ungraded":
        return "not graded"
    if row.grade.status == "unparsed":
        return "no answer found"
    return "right" if row.grade.correct else "wrong"


def _final(row: Row) -> str:
    return "" if row.grade is None else row.grade.answer[:200]


def _pieces(answer: Answer, start: int | None) -> list[Piece]:
    """The answer in stretches: what both share, what follows, and each promoted token."""
    if answer.pieces is None:
        return [Piece(_cut(answer.text), "rest")]
    found: list[Piece] = []
    margins = iter(answer.margins or ())
    kinds = answer.kinds or ""
    shown = 0
    for position, text in enumerate(answer.pieces):
        promoted = kinds[position : position + 1] == "p"
        margin = next(margins, None) if promoted else None
        kind = "rest" if start is None or position >= start else "same"
        if shown > _CHARACTERS:
            found.append(Piece(" [cut here]", "cut"))
            break
        shown += len(text)
        if promoted:
            found.append(Piece(text, "promoted", margin))
        elif found and found[-1].kind == kind:
            found[-1] = Piece(found[-1].text + text, kind)
        else:
            found.append(Piece(text, kind))
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + " [cut here]"


def _size(reading: Reading) -> int:
    """About how many bytes it takes on the page."""
    pieces = [*reading.base, *reading.ours]
    return 800 + sum(80 + 5 * len(piece.text.encode("utf-8", "replace")) for piece in pieces)

"""Task: the prompts of MT-Bench (Zheng et al. 2023, arXiv:2306.05685), for speed alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from adaptivespec.eval.tasks.base import UNGRADED, Grade, Item, Task
from adaptivespec.eval.tasks.sources import Source, records

_SOURCE = Source(
    task="mt_bench",
    files=("mt_bench.jsonl", "mt_bench.jsonl.gz", "mt-bench.jsonl", "question.jsonl"),
    hub=("lmsys/mt-bench", "space", "data/mt_bench/question.jsonl"),
    fields={"turns": list},
)


class MtBench(Task):
    """80 conversations of two turns; quality is not judged."""

    name: ClassVar[str] = "mt_bench"
    title: ClassVar[str] = "MT-Bench"
    summary: ClassVar[str] = "two-turn conversations of eight kinds; not graded, for speed"
    source: ClassVar[str] = "FastChat, Apache-2.0"
    graded: ClassVar[bool] = False
    max_tokens: ClassVar[int] = 512

    def load(self, data: Path | None) -> Sequence[Item]:
        """The conversations, in the order of the file."""
        items = []
        for index, row in enumerate(records(_SOURCE, data)):
            turns = row.values["turns"]
            if not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
                raise row.bad("'turns' is no list of texts")
            items.append(Item(self.name, index, tuple(turns)))
        return items

    def grade(self, item: Item, text: str) -> Grade:
        """No verdict."""
        return UNGRADED

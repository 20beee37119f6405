"""Task: GSM8K, grade-school word problems (Cobbe et al. 2021, arXiv:2110.14168)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from adaptivespec.eval.grading.final_number import final_number, normal_number
from adaptivespec.eval.tasks.base import Grade, Item, Task
from adaptivespec.eval.tasks.sources import Record, Source, records

_PROMPT = "{question}\n\nThink step by step, then end with the final answer as a number after ####."
_SOURCE = Source(
    task="gsm8k",
    files=("gsm8k_test.jsonl", "gsm8k_test.jsonl.gz", "gsm8k.jsonl", "test.jsonl"),
    hub=("openai/gsm8k", "dataset", "main/test-00000-of-00001.parquet"),
    fields={"question": str, "answer": str},
)


class Gsm8k(Task):
    """The test split: 1319 problems whose answer is an integer."""

    name: ClassVar[str] = "gsm8k"
    title: ClassVar[str] = "GSM8K"
    summary: ClassVar[str] = "grade-school word problems, zero-shot; graded by the final number"
    source: ClassVar[str] = "openai/grade-school-math, test split, MIT"
    max_tokens: ClassVar[int] = 512

    def load(self, data: Path | None) -> Sequence[Item]:
        """The problems, in the order of the file."""
        return [
            Item(self.name, index, (_PROMPT.format(question=row.values["question"]),), _gold(row))
            for index, row in enumerate(records(_SOURCE, data))
        ]

    def grade(self, item: Item, text: str) -> Grade:
        """Right when the final number equals the reference's."""
        number = final_number(text)
        if number is None:
            return Grade(False, "", "unparsed")
        return Grade(number == item.reference, number)


def _gold(row: Record) -> str:
    try:
        return normal_number(row.values["answer"].rpartition("####")[2])
    except ValueError as error:
        raise row.bad("the answer does not end in '#### NUMBER'") from error

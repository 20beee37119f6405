"""Task: MATH-500, competition problems (Hendrycks et al. 2021, Lightman et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from adaptivespec.eval.grading.maths import compare
from adaptivespec.eval.tasks.base import Grade, Item, Task
from adaptivespec.eval.tasks.sources import Source, records

_PROMPT = "{problem}\n\nReason step by step, and put the final answer within \\boxed{{}}."
_SOURCE = Source(
    task="math500",
    files=("math500.jsonl", "math500.jsonl.gz", "math_500.jsonl", "MATH-500.jsonl", "test.jsonl"),
    hub=("HuggingFaceH4/MATH-500", "dataset", "test.jsonl"),
    fields={"problem": str, "answer": str},
)


class Math500(Task):
    """500 problems whose answers are expressions in LaTeX."""

    name: ClassVar[str] = "math500"
    title: ClassVar[str] = "MATH-500"
    summary: ClassVar[str] = "competition mathematics, zero-shot; graded by math-verify"
    source: ClassVar[str] = "the MATH-500 split of openai/prm800k, MIT"
    max_tokens: ClassVar[int] = 1024

    def load(self, data: Path | None) -> Sequence[Item]:
        """The problems, in the order of the file."""
        return [
            Item(
                self.name,
                index,
                (_PROMPT.format(problem=row.values["problem"]),),
                row.values["answer"],
            )
            for index, row in enumerate(records(_SOURCE, data))
        ]

    def grade(self, item: Item, text: str) -> Grade:
        """Right when math-verify finds the answer equal to the reference."""
        verdict = compare(item.reference, text)
        if not verdict.parsed:
            return Grade(False, "", "unparsed")
        return Grade(verdict.correct, verdict.answer)

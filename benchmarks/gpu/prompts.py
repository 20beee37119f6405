"""What the engines are asked: sums, code and talk, so that trees fit well and badly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks import FILES, prompts

OWN = (
    "A tram has 48 seats. Three quarters of them are taken, and at the next stop 7 people get off "
    "and 12 get on. How many people are on the tram now? Explain step by step.",
    "Write a Python function that returns the n-th Fibonacci number without recursion.",
    "Name four rivers in Europe and say in one sentence each where they end.",
    "Explain to a ten-year-old why ice floats on water.",
    "A shop sells pencils at 3 for 2 euros. What do 21 pencils cost, and how much change is there "
    "from a 20 euro note?",
    "Write a SQL query that lists the five customers with the largest sum of orders in 2024.",
    "Draft a short and polite e-mail that moves a meeting from Tuesday to Thursday.",
    "What is the difference between a stack and a queue? Give an example of each.",
    "Solve 3x + 7 = 2(x + 9) for x and check the result.",
    "Write a Python function that says whether a string is a palindrome, ignoring spaces and case, "
    "and three tests for it.",
    "Begin a story about a lighthouse keeper who finds a message in a bottle.",
    "A rectangle is 4 cm longer than it is wide, and its area is 96 square centimetres. How long "
    "are its sides?",
)


def load(data: Path | None, count: int) -> list[str]:
    """``count`` prompts: of the task files in the folder ``data``, in turn, or else our own.

    Where there are fewer they repeat.
    """
    texts: Sequence[str] = OWN
    if data is not None:
        there = [task for task, name in FILES.items() if (data / name).is_file()]
        each = -(-count // max(len(there), 1))
        texts = [text for row in zip(*(prompts(data, t, each) for t in there), strict=False)
                 for text in row]  # fmt: skip
    if not texts:
        raise SystemExit(f"{data} holds none of {', '.join(FILES.values())}")
    return [texts[which % len(texts)] for which in range(count)]

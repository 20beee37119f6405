"""Small files in the form of the public tasks; the items are ours."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = 'import math\n\ndef root(x: float) -> float:\n    """Root."""\n'
FILES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "gsm8k": (
        "gsm8k_test.jsonl",
        [{"question": f"What is {n} + 1,000?", "answer": f"Add.\n#### {n + 1000:,}"}
         for n in range(3)],
    ),
    "math500": (
        "math500.jsonl",
        [{"problem": f"Halve ${n}$.", "answer": f"\\frac{{{n}}}{{2}}", "level": 1}
         for n in (1, 3, 5)],
    ),
    "humaneval": (
        "HumanEval.jsonl",
        [{"task_id": "T/0", "prompt": ROOT,
          "entry_point": "root", "canonical_solution": "    return math.sqrt(x)\n",
          "test": "def check(candidate):\n    assert candidate(9) == 3\n"}],
    ),
    "mt_bench": (
        "mt_bench.jsonl",
        [{"question_id": 1, "category": "x", "turns": ["Write a line.", "Now another."]}],
    ),
}  # fmt: skip


def write(folder: Path, name: str, rows: Sequence[Any]) -> Path:
    """Write rows, or lines that are no rows, to a file; compressed when it is called so."""
    path = folder / name
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def write_all(folder: Path) -> Path:
    """Write the files of all public tasks into a folder."""
    for name, rows in FILES.values():
        write(folder, name, rows)
    return folder

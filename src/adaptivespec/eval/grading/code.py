"""The Python code in an answer."""

from __future__ import annotations

import ast
import re
import threading
import warnings

__all__ = ["extract_code", "syntax_tree"]

_FENCE = re.compile(r"```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_quiet = threading.Lock()  # filters of warnings belong to the process, not to a thread
_PYTHON = ("", "python", "python3", "py")
_BEGIN = re.compile(r"^(?:def |from \w|import \w|class |@|async def )", re.MULTILINE)


def extract_code(text: str, name: str) -> str:
    """The code that defines the function `name`, or the likeliest code there is.

    Fenced blocks count first: those that define the function, else the first of them. Without
    fences it is the text from the first line of code on, as far as it can be parsed. Text without
    any sign of code comes back as it is: the body of a function, perhaps.
    """
    blocks = [body for language, body in _FENCE.findall(text) if language.lower() in _PYTHON]
    defines = re.compile(rf"^\s*(?:async )?def {re.escape(name)}\b", re.MULTILINE)
    for block in blocks:
        if defines.search(block):
            return block
    if blocks:
        return blocks[0]
    begin = _BEGIN.search(text)
    return _parsable(text[begin.start() :]) if begin else text.rstrip().removesuffix("```")


def syntax_tree(code: str) -> ast.Module | None:
    """The syntax tree, or None where the code is no Python. Nothing is run, nothing is printed."""
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _parsable(text: str) -> str:
    """The longest beginning, in whole lines, that is Python; all of it when none is."""
    lines = text.splitlines()
    for end in range(len(lines), 0, -1):
        part = "\n".join(lines[:end])
        if syntax_tree(part) is not None:
            return part
    return text

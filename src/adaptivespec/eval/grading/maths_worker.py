"""The process that parses and compares mathematics: a line of JSON for every line of JSON.

``{"gold", "text"}`` in, ``{"correct", "answer"}`` out; "answer" is "" where none was found. Who
started it kills it when it takes too long.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any

MEMORY_BYTES = 4 << 30
ORPHAN_S = 60
"""Seconds after which it ends itself: who would have killed it is gone."""


def normal_form(expression: Any) -> str:
    """Text on which equal answers agree where that is cheap: values as numbers, the rest as is."""
    import sympy

    if not (isinstance(expression, sympy.Expr) and expression.is_number and expression.is_finite):
        return str(expression)
    if expression.is_Integer:
        return str(expression)
    value = expression.evalf(15)
    return f"{float(value):.12g}" if value.is_Float else str(value)


def judge(gold: str, text: str) -> dict[str, Any]:
    """Whether the answer that `text` gives equals `gold`, and that answer in a normal form."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    plain = ExprExtractionConfig()
    wanted = parse(f"\\boxed{{{gold}}}", [LatexExtractionConfig()], parsing_timeout=None)
    wanted += parse(gold, [plain], parsing_timeout=None)
    boxed_first = LatexExtractionConfig(boxed_match_priority=0)
    given = parse(text, [boxed_first, plain], parsing_timeout=None)
    if not given:
        return {"correct": False, "answer": ""}
    correct = bool(verify(wanted, given, timeout_seconds=None))
    # All right answers share the form of the reference.
    return {"correct": correct, "answer": normal_form(wanted[0] if correct else given[0])}


def _bound_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    except (ImportError, OSError, ValueError):
        return


def _alarm(seconds: int) -> None:
    """End this process after some seconds; 0 calls it off."""
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


def main() -> None:
    """Answer until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no reply
    logging.disable(logging.CRITICAL)
    judge("1", "1")  # imports and builds the grammar before the first limit runs
    _bound_memory()
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        request = json.loads(line)
        _alarm(ORPHAN_S)
        try:
            reply = judge(request["gold"], request["text"])
        except (Exception, RecursionError) as error:
            reply = {"correct": False, "answer": "", "error": type(error).__name__}
        _alarm(0)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()

"""The real target and head, and prompts for them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.engine.weights import resolve_model

HEAD = Path(__file__).parents[3] / "src/adaptivespec/heads/smollm2-135m-instruct-eagle3"

QUESTIONS = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in "
    "May. How many clips did Natalia sell altogether in April and May?",
    "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total "
    "does it take?",
    "Complete this Python function:\n\ndef add(numbers):\n"
    '    """Return the sum of a list of numbers."""\n',
    "Why is the sky blue?",
)


@cache
def target() -> Path:
    """The folder of the embedded model, which must have been fetched."""
    cache = os.environ.get("ADAPTIVESPEC_CACHE")
    return Path(resolve_model(None, cache_dir=cache, local_files_only=True).path)


@cache
def prompts() -> list[list[int]]:
    """The questions in the target's chat template, as ids."""
    tokenizer = Tokenizer.from_dir(target())
    return [
        tokenizer.apply_chat_template([{"role": "user", "content": question}])
        for question in QUESTIONS
    ]

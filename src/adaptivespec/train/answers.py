"""Answers of the target to prompts that have none yet: the self-distillation part of the corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from adaptivespec.engine.engine import Engine
from adaptivespec.train.corpus import Item

#: Every third answer is sampled, the others are greedy: a head has to draft for both.
SAMPLED_EVERY = 3
TEMPERATURE, TOP_K = 0.7, 40


def answer(
    engine: Engine,
    items: Sequence[Item],
    path: Path,
    max_tokens: int,
    progress: Callable[[int, int], None],
) -> list[Item]:
    """Fill empty responses with the target's own, by strict verification.

    Each answer is appended to `path` as soon as it is there, so that a killed run goes on.
    """
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            known[tuple(row["p"])] = tuple(row["o"])
    missing = [i for i, item in enumerate(items) if not item.response]
    eos = engine.tokenizer.eos_token_ids[:1]
    with path.open("a", encoding="utf-8") as file:
        for done, i in enumerate(missing):
            item = items[i]
            if item.prompt not in known:
                sampled = done % SAMPLED_EVERY == SAMPLED_EVERY - 1
                options = (
                    {"temperature": TEMPERATURE, "top_k": TOP_K, "seed": done} if sampled else {}
                )
                result = engine.generate(list(item.prompt), max_tokens=max_tokens, **options)
                ended = eos if result.finish_reason == "stop" else ()
                known[item.prompt] = (*result.token_ids, *ended)
                row = {"p": item.prompt, "o": known[item.prompt], "kind": item.kind}
                file.write(json.dumps(row) + "\n")
                file.flush()
            progress(done + 1, len(missing))
    return [item if item.response else replace(item, response=known[item.prompt]) for item in items]

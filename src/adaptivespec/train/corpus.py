"""The training corpus: answers of the target, one JSON object a line, and how it is cleaned."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import ConfigError

#: A loop is an n-gram of this length seen three times; the text is cut where the third begins.
LOOP_NGRAM = 8
LOOP_REPEATS = 3


@dataclass(frozen=True)
class Item:
    """One training text as token ids."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    kind: str = ""

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.response


def read_corpus(
    path: str | Path,
    encode_prompt: Callable[[str], Sequence[int]],
    encode: Callable[[str], Sequence[int]],
) -> list[Item]:
    """Read a `.jsonl` or `.jsonl.gz` corpus.

    A line is `{"p": ids, "o": ids}`, `{"prompt": text, "response": text}` or, when the target has
    yet to answer it, `{"prompt": text}`; an optional `k` or `kind` labels it.  `encode_prompt`
    renders a user prompt with the target's chat template.  An item without an answer has an
    empty response.

    Raises:
        ConfigError: the file is missing, empty, or a line is not of one of these forms.
    """
    path = Path(path)
    items = []
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    items.append(_item(line, f"{path}:{number}", encode_prompt, encode))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", field="data") from error
    if not items:
        raise ConfigError(f"{path} holds no lines", field="data")
    return items


def _item(
    line: str,
    where: str,
    encode_prompt: Callable[[str], Sequence[int]],
    encode: Callable[[str], Sequence[int]],
) -> Item:
    try:
        row: dict[str, Any] = json.loads(line)
        kind = str(row.get("k", row.get("kind", "")))
        if "p" in row:
            return Item(_ids(row["p"]), _ids(row["o"]), kind)
        response = encode(row["response"]) if "response" in row else ()
        return Item(tuple(encode_prompt(row["prompt"])), tuple(response), kind)
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{where} is not a training line: {error!r}",
            field="data",
            remedy='A line is {"p": ids, "o": ids}, {"prompt": text, "response": text} or '
            '{"prompt": text}',
        ) from error


def _ids(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def loop_start(tokens: Sequence[int]) -> int | None:
    """Index at which `tokens` begins to loop, or None: the third start of a repeated n-gram."""
    seen: dict[tuple[int, ...], int] = {}
    for i in range(len(tokens) - LOOP_NGRAM + 1):
        gram = tuple(tokens[i : i + LOOP_NGRAM])
        seen[gram] = seen.get(gram, 0) + 1
        if seen[gram] >= LOOP_REPEATS:
            return i
    return None


def clean(items: Iterable[Item], max_len: int, min_response: int = 8) -> list[Item]:
    """Cut loops and over-long texts; drop what is left too short or says the same twice."""
    kept: dict[tuple[int, ...], Item] = {}
    for item in items:
        response = item.response[: loop_start(item.response)]
        response = response[: max(max_len - len(item.prompt), 0)]
        if len(response) >= min_response:
            kept.setdefault(item.prompt + response, Item(item.prompt, response, item.kind))
    return list(kept.values())


def split(items: Sequence[Item], held_out: int) -> tuple[list[Item], list[Item]]:
    """(train, held out): `held_out` prompts, picked by hash so that every run picks the same."""

    def key(item: Item) -> str:
        return hashlib.sha256(repr(item.prompt).encode()).hexdigest()

    prompts = sorted({key(item) for item in items})[:held_out]
    test = set(prompts)
    return [i for i in items if key(i) not in test], [i for i in items if key(i) in test]

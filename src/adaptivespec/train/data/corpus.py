"""The training corpus: answers of the target, one JSON object a line, and how it is cleaned."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptivespec.core.errors import ConfigError
from adaptivespec.train.data.questions import Question

#: A loop is an n-gram of this length seen three times; the text is cut where the third begins.
LOOP_NGRAM = 8
LOOP_REPEATS = 3
#: Shorter answers teach nothing.
MIN_RESPONSE = 8


@dataclass(frozen=True)
class Item:
    """One training text as token ids."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    kind: str = ""

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.response


@dataclass
class Corpus:
    """Texts with the target's answers, and questions it has yet to answer."""

    items: list[Item]
    questions: list[Question]


def read_corpus(
    path: str | Path,
    encode_prompt: Callable[[str], Sequence[int]],
    encode: Callable[[str], Sequence[int]],
) -> Corpus:
    """Read a `.jsonl` or `.jsonl.gz` corpus.

    A line is `{"p": ids, "o": ids}` or `{"prompt": text, "response": text}`; or a question,
    `{"prompt": text}`, `{"question": text}` or, for several user messages, `{"turns": [text]}`. An
    optional `k` or `kind` labels it.  `encode_prompt` renders a user prompt with the target's chat
    template.

    Raises:
        ConfigError: the file is missing, empty, or a line is not of one of these forms.
    """
    path = Path(path)
    corpus = Corpus([], [])
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    text = _line(line, f"{path}:{number}", encode_prompt, encode)
                    if isinstance(text, Item):
                        corpus.items.append(text)
                    else:
                        corpus.questions.append(text)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", field="data") from error
    if not corpus.items and not corpus.questions:
        raise ConfigError(f"{path} holds no lines", field="data")
    return corpus


def _line(
    line: str,
    where: str,
    encode_prompt: Callable[[str], Sequence[int]],
    encode: Callable[[str], Sequence[int]],
) -> Item | Question:
    try:
        row: dict[str, Any] = json.loads(line)
        kind = str(row.get("k", row.get("kind", "")))
        if "p" in row:
            return Item(_ids(row["p"]), _ids(row["o"]), kind)
        if "response" in row:
            return Item(tuple(encode_prompt(row["prompt"])), tuple(encode(row["response"])), kind)
        turns: list[Any] = (
            row["turns"] if "turns" in row else [row.get("prompt", row.get("question"))]
        )
        if not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
            raise ValueError("no text")
        return Question(kind, tuple(turns))
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{where} is not a training line: {error!r}",
            field="data",
            remedy='A line is {"p": ids, "o": ids}, {"prompt": text, "response": text}, '
            '{"prompt": text}, {"question": text} or {"turns": [text]}',
        ) from error


def _ids(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


class LoopFinder:
    """Tells when a text begins to loop, token by token."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=LOOP_NGRAM)
        self._seen: dict[tuple[int, ...], int] = {}
        self._length = 0

    def add(self, token: int) -> int | None:
        """Index at which the loop begins, the third start of an n-gram, once that is complete."""
        self._length += 1
        self._recent.append(token)
        if len(self._recent) < LOOP_NGRAM:
            return None
        gram = tuple(self._recent)
        self._seen[gram] = self._seen.get(gram, 0) + 1
        return self._length - LOOP_NGRAM if self._seen[gram] >= LOOP_REPEATS else None


def loop_start(tokens: Sequence[int]) -> int | None:
    """Index at which `tokens` begins to loop, or None: the third start of a repeated n-gram."""
    finder = LoopFinder()
    return next((at for token in tokens if (at := finder.add(token)) is not None), None)


def clean(items: Iterable[Item], max_len: int, min_response: int = MIN_RESPONSE) -> list[Item]:
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


def some(items: Sequence[Item], tokens: int | None) -> list[Item]:
    """Items of about `tokens` response tokens, picked by hash: more tokens hold the same and more.

    All of them for None.
    """
    if tokens is None:
        return list(items)
    chosen, total = [], 0
    for item in sorted(items, key=lambda i: hashlib.sha256(repr(i.tokens).encode()).hexdigest()):
        if total >= tokens:
            break
        chosen.append(item)
        total += len(item.response)
    return chosen

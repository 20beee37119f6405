"""A training corpus out of nothing but a target: questions, and the target's own answers."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from adaptivespec.core.errors import CheckpointError
from adaptivespec.engine.target import Target
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.train.data.answers import Answer, Job, answers
from adaptivespec.train.data.corpus import MIN_RESPONSE, Item
from adaptivespec.train.data.features import SHARD, Features, FeatureShards
from adaptivespec.train.data.plan import MakeOptions, Planned, endless_plan, plan
from adaptivespec.train.data.questions import Question

OPTIONS_FILE = "options.json"


@dataclass(eq=False)
class _Block:
    """Questions whose answers are written together; `left` are not finished yet."""

    number: int
    left: int
    rows: dict[tuple[int, int], tuple[Item, Features]] = field(default_factory=dict)


@dataclass(eq=False)
class _Turn:
    """Where a job belongs: its block, its place there, and the conversation so far."""

    block: _Block
    place: int
    planned: Planned
    messages: list[dict[str, str]]


class CorpusMaker:
    """Makes a corpus block by block in `output`; a stopped run goes on, and so does a larger one.

    A block holds the answers to `SHARD` questions and is written when all are there, its features
    to `shards` where given. The corpus is the blocks in order up to the one that reaches the tokens
    wanted, so that neither the number of workers nor a stop changes it. Questions are put into the
    tokenizer's chat template; a model without one goes on from the bare text. `target_name` says
    whose answers they are.

    Raises:
        CheckpointError: `output` holds the corpus of other options.
    """

    def __init__(
        self,
        target: Target[Any],
        tokenizer: Tokenizer,
        output: Path,
        given: Sequence[Question],
        options: MakeOptions,
        shards: FeatureShards | None = None,
        target_name: str = "",
    ) -> None:
        self.target, self.tokenizer = target, tokenizer
        self.output, self.options, self.shards = output, options, shards
        self.tap_layers = shards.tap_layers if shards else ()
        self._blocks = math.ceil(len(given) / SHARD) if options.tokens is None else None
        self._plan = (plan if options.tokens is None else endless_plan)(given, options)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._next_block = 0
        self._tokens: dict[int, int] = {}  # of the blocks that are whole
        self._said = self._answered = 0  # for the progress; unfinished blocks count as well
        self._asked = len(given)
        output.mkdir(parents=True, exist_ok=True)
        self._claim(given, target_name)

    def run(
        self, workers: int = 1, progress: Callable[[int, int], None] | None = None
    ) -> list[Item]:
        """Make what is missing and return the corpus; `progress(done, wanted)` in tokens
        or, where no number of them is wanted, in questions."""
        report = progress or (lambda done, total: None)
        self._count_existing()
        with self.target.one_thread(), ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._work, report) for _ in range(workers)]
            try:
                for future in futures:
                    future.result()
            finally:
                self._stop.set()
        return self._read()

    def _work(self, report: Callable[[int, int], None]) -> None:
        torch.set_num_threads(1)  # of this worker
        waiting: deque[Job] = deque()

        def next_job() -> Job | None:
            while not waiting and not self._stop.is_set():
                taken = self._take()
                if taken is None:
                    return None
                waiting.extend(taken)
            return waiting.popleft() if waiting else None

        eos = self.tokenizer.eos_token_ids
        for answer in answers(self.target, next_job, eos, self.tap_layers):
            if self._stop.is_set():
                return
            try:
                follow_up = self._file(answer)
            except BaseException:
                self._stop.set()
                raise
            if follow_up is not None:
                waiting.appendleft(follow_up)
            report(*self._reached())

    def _take(self) -> list[Job] | None:
        """The jobs of the next block that has no file; None once there are tokens enough."""
        with self._lock:
            if self._done():
                return None
            number = self._next_block
            if number == self._blocks:
                return None
            self._next_block += 1
            planned = list(islice(self._plan, SHARD))
        if number in self._tokens:
            return []
        block = _Block(number, len(planned))
        jobs = []
        for place, each in enumerate(planned):
            job = self._job(_Turn(block, place, each, []))
            if job is None:
                self._close(block)
            else:
                jobs.append(job)
        return jobs

    def _job(self, turn: _Turn) -> Job | None:
        """The next user message of a conversation; None when there is none, or no room for it."""
        said = len(turn.messages) // 2
        if said >= len(turn.planned.question.turns):
            return None
        turn.messages.append({"role": "user", "content": turn.planned.question.turns[said]})
        if self.tokenizer.has_chat_template:
            prompt = self.tokenizer.apply_chat_template(turn.messages)
        else:
            prompt = self.tokenizer.encode(turn.messages[-1]["content"])
        room = self.options.max_len - len(prompt)
        if room < MIN_RESPONSE:
            return None
        seed = turn.planned.seed
        return Job(
            tuple(prompt),
            min(room, turn.planned.max_tokens),
            None if seed is None else seed * 16 + said,
            turn,
        )

    def _file(self, answer: Answer) -> Job | None:
        """Keep an answer; returns the job of the conversation's next turn."""
        turn: _Turn = answer.job.tag
        with self._lock:
            self._said += len(answer.tokens)
        block, kind = turn.block, turn.planned.question.kind
        if len(answer.tokens) >= MIN_RESPONSE:
            item = Item(answer.job.prompt, answer.tokens, kind)
            block.rows[turn.place, len(turn.messages)] = (item, answer.features)
        follow_up = None
        if answer.finished:
            text = self.tokenizer.decode(answer.tokens)
            turn.messages.append({"role": "assistant", "content": text})
            follow_up = self._job(turn)
        if follow_up is None:
            self._close(block)
        return follow_up

    def _close(self, block: _Block) -> None:
        """One question less to wait for."""
        with self._lock:
            self._answered += 1
        block.left -= 1
        if block.left == 0:
            self._write(block)

    def _write(self, block: _Block) -> None:
        rows = [block.rows[place] for place in sorted(block.rows)]
        items = [item for item, _ in rows]
        if self.shards is not None and items:
            with self._lock:
                self.shards.write(items, [features for _, features in rows])
        lines = [json.dumps({"p": i.prompt, "o": i.response, "kind": i.kind}) for i in items]
        path = self._path(block.number)
        partial = path.with_suffix(".partial")
        partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        partial.replace(path)
        with self._lock:
            self._tokens[block.number] = sum(len(item.response) for item in items)
            if self._done():
                self._stop.set()

    def _reached(self) -> tuple[int, int]:
        """What is done and what is wanted: tokens, or questions."""
        with self._lock:
            if self.options.tokens is None:
                return self._answered, self._asked
            return min(self._said, self.options.tokens), self.options.tokens

    def _done(self) -> bool:
        return self._size() is not None

    def _size(self) -> int | None:
        """Number of blocks of the corpus, once all of them are there."""
        total = 0
        for number in count():
            if number == self._blocks:
                return number
            if number not in self._tokens:
                return None
            total += self._tokens[number]
            if self.options.tokens is not None and total >= self.options.tokens:
                return number + 1
        return None

    def _path(self, number: int) -> Path:
        return self.output / f"{number:05d}.jsonl"

    def _count_existing(self) -> None:
        for path in self.output.glob("[0-9]*.jsonl"):
            tokens = sum(len(i.response) for i in _items(path))
            self._tokens[int(path.stem)] = tokens
            self._said += tokens
            self._answered += SHARD
        if self._done():
            self._stop.set()

    def _read(self) -> list[Item]:
        size = self._size()
        if size is None:
            raise RuntimeError("the corpus ended before it was whole")
        return [item for number in range(size) for item in _items(self._path(number))]

    def _claim(self, given: Sequence[Question], target_name: str) -> None:
        """Note what makes the blocks what they are, or check that it was the same before."""
        options = {
            "answer_tokens": self.options.answer_tokens,
            "max_len": self.options.max_len,
            "seed": self.options.seed,
            "target": target_name,
            "precision": self.target.precision,
            "questions": hashlib.sha256(repr(list(given)).encode()).hexdigest()[:16],
        }
        path = self.output / OPTIONS_FILE
        if not path.exists():
            path.write_text(json.dumps(options) + "\n", encoding="utf-8")
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{path} cannot be read: {error}", field="corpus") from error
        differ = sorted(k for k in options if before.get(k) != options[k])
        if differ:
            raise CheckpointError(
                f"{self.output} holds a corpus made with other values of {', '.join(differ)}",
                field="corpus",
                remedy="Give the same options to go on, or another --corpus",
            )


def _items(path: Path) -> list[Item]:
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Item(tuple(row["p"]), tuple(row["o"]), row["kind"]) for row in rows]

"""The other end of peers_worker.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

SCRIPT = Path(__file__).with_name("peers_worker.py")
SECONDS_TO_END = 10.0
LAST_WORDS = 300


class Died(RuntimeError):
    """A worker ended before it answered; the message has the end of what it wrote."""


class Worker:
    """An engine in its own process, loaded and warm. Use it as a context: leaving ends it.

    `hello` is what it said when it was loaded: its arms, what it is in words ("about"), why it
    cannot be used ("skipped"), and why some of its arms cannot ("lost").
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115  closed on leaving
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(SCRIPT), name, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": str(options["threads"])},
            text=True,
        )
        self.hello: dict[str, Any] = {"arms": [], "about": "", "skipped": "", "lost": {}}
        try:
            self.hello |= self._answer()
        except Died as error:
            self.hello["skipped"] = str(error)

    @property
    def arms(self) -> Sequence[str]:
        """Ways to decode; empty where the engine was skipped."""
        return tuple(self.hello["arms"])

    @property
    def skipped(self) -> str:
        """Why the engine cannot be used; empty where it can."""
        return str(self.hello["skipped"])

    def ask(self, arm: str, ids: list[int], tokens: int) -> dict[str, Any]:
        """What was measured, or {"error": what}; raises Died."""
        stdin = self._process.stdin
        try:
            print(json.dumps({"arm": arm, "ids": ids, "tokens": tokens}), file=stdin, flush=True)
        except BrokenPipeError:
            raise Died(self._last_words()) from None
        return self._answer()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise Died(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        words = " ".join(self._errors.read()[-LAST_WORDS:].split())
        return f"its process ended with status {code}: {words}"

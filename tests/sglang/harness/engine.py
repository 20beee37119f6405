"""Starts one SGLang engine, serves what a file asks for, and writes down the answers.

    python engine.py ASKED.json ANSWERED.json

ASKED holds `engine` (arguments of `sglang.Engine`) and `jobs`: name -> list of requests. Jobs run
one after the other, a job's requests at once. A request holds arguments of `async_generate`, and
may say `after: [i, n]` (start when request i has n tokens) and `abort_at: n` (abort at n tokens).
ANSWERED holds `answers`: name -> list of what SGLang returned, or `{"error": ...}`; `flushed`,
whether the idle engine could empty its cache; and `info`, its internal state after that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


class Job:
    """Requests that run at once, with the number of tokens that each has."""

    def __init__(self, engine: Any, requests: list[dict[str, Any]]) -> None:
        self.engine, self.requests = engine, requests
        self.progress = [0.0] * len(requests)
        self.moved = asyncio.Condition()
        awaited = {request["after"][0] for request in requests if "after" in request}
        self.streamed = awaited | {i for i, one in enumerate(requests) if "abort_at" in one}

    async def answers(self) -> list[dict[str, Any]]:
        return await asyncio.gather(*map(self._answer, range(len(self.requests))))

    async def _answer(self, number: int) -> dict[str, Any]:
        arguments = dict(self.requests[number])
        abort_at = arguments.pop("abort_at", None)
        if (after := arguments.pop("after", None)) is not None:
            async with self.moved:
                await self.moved.wait_for(lambda: self.progress[after[0]] >= after[1])
        answer: dict[str, Any] = {}
        try:
            if number not in self.streamed:
                return await self.engine.async_generate(**arguments)
            async for answer in await self.engine.async_generate(**arguments, stream=True):
                tokens = answer["meta_info"]["completion_tokens"]
                await self._report(number, tokens)
                if abort_at is not None and tokens >= abort_at:
                    self.engine.tokenizer_manager.abort_request(rid=arguments["rid"])
                    abort_at = None
        except ValueError as error:
            return {"error": str(error)}
        finally:
            await self._report(number, float("inf"))
        return answer

    async def _report(self, number: int, tokens: float) -> None:
        self.progress[number] = tokens
        async with self.moved:
            self.moved.notify_all()


def flushed(engine: Any) -> bool:
    """Whether the cache could be emptied: only if no request holds a slot any more."""
    for _ in range(50):  # the scheduler clears away a batch after its answers are out
        answer = engine.flush_cache()
        if getattr(answer, "success", answer):
            return True
        time.sleep(0.1)
    return False


def main(asked: Path, answered: Path) -> None:
    import sglang

    task = json.loads(asked.read_text(encoding="utf-8"))
    engine = sglang.Engine(**task["engine"])
    answers = {
        name: engine.loop.run_until_complete(Job(engine, requests).answers())
        for name, requests in task["jobs"].items()
    }
    result = {
        "answers": answers,
        "flushed": flushed(engine),
        "info": engine.get_server_info()["internal_states"],
    }
    answered.write_text(json.dumps(result, default=str), encoding="utf-8")
    os._exit(0)  # an orderly end takes seconds, and the processes of the engine are ended anyway


if __name__ == "__main__":  # the engine's processes import this file again
    main(Path(sys.argv[1]), Path(sys.argv[2]))

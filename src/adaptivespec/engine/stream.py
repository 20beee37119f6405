"""A running generation: an iterator of chunks that can be left at any time."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from adaptivespec.engine.jobs import Answer, Job
from adaptivespec.engine.loop import decode
from adaptivespec.engine.result import Chunk, GenerationResult
from adaptivespec.engine.session import Session


class Stream:
    """Iterate to get chunks; `result` holds what was generated so far, at any moment.

    `prompt` are the token ids of what is answered.

    Leaving early (`close`, an exception, Ctrl-C in the loop over it) keeps every committed token
    in `result`, with finish_reason "cancelled", and the text that was held back for a possible
    stop string.
    """

    def __init__(self, session: Session, job: Job) -> None:
        self.result, self.prompt = job.result, job.request.prompt
        self._answer = Answer(job)
        self._steps = decode(session, job.request)
        self._chunks = self._run()

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Stop generating; `result` keeps what there is."""
        self._chunks.close()
        self._steps.close()
        self._answer.flush()

    def finish(self) -> GenerationResult:
        """Run to the end and return the result."""
        for _ in self._chunks:
            pass
        return self.result

    def _run(self) -> Generator[Chunk, None, None]:
        for step in self._steps:
            yield self._answer.add(step)

"""A running generation: an iterator of chunks that can be left at any time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from adaptivespec.core.commit import StopState, flush
from adaptivespec.engine.loop import Request, Step, decode
from adaptivespec.engine.result import Chunk, GenerationResult, TokenInfo
from adaptivespec.engine.session import Session


class Stream:
    """Iterate to get chunks; `result` holds what was generated so far, at any moment.

    Leaving early (`close`, an exception, Ctrl-C in the loop over it) keeps every committed token
    in `result`, with finish_reason "cancelled", and the text that was held back for a possible
    stop string.
    """

    def __init__(
        self,
        session: Session,
        request: Request,
        result: GenerationResult,
        token_text: Callable[[int], str],
    ) -> None:
        self.result = result
        self._stop: StopState | None = request.stop
        self._token_text = token_text
        self._steps = decode(session, request)
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
        self._flush()

    def finish(self) -> GenerationResult:
        """Run to the end and return the result."""
        for _ in self._chunks:
            pass
        return self.result

    def _run(self) -> Generator[Chunk, None, None]:
        for step in self._steps:
            text, tokens = self._add(step)
            if step.finish is None:
                yield Chunk(text, tokens, step.trace)
                continue
            self.result.finish_reason = step.finish
            self.result.matched_stop = step.commit.matched_stop
            text += self._flush()
            yield Chunk(text, tokens, step.trace, self.result)

    def _add(self, step: Step) -> tuple[str, list[TokenInfo]]:
        result, done, commit = self.result, step.verdict, step.commit
        shown = len(commit.tokens)  # without an ending EOS
        logprobs: Sequence[float | None] = step.logprobs or [None] * len(done.tokens)
        tokens = [
            TokenInfo(token, self._token_text(token), kind, margin, logprob)
            for token, kind, margin, logprob in zip(
                done.tokens[:shown], done.kinds, done.margins, logprobs, strict=False
            )
        ]
        self._stop = commit.state
        result.text += commit.text
        result.token_ids.extend(commit.tokens)
        result.tokens.extend(tokens)
        result.completion_tokens += commit.kept
        if step.trace is None:
            result.times.prefill_s += step.seconds
        else:
            result.stats.add(step.trace)
            seconds = step.trace.seconds
            result.times.draft_s += seconds["draft"]
            result.times.verify_s += seconds["verify"]
            result.times.host_s += seconds["host"]
            if result.trace is not None:
                result.trace.append(step.trace)
        return commit.text, tokens

    def _flush(self) -> str:
        """Release held-back text, once."""
        rest = flush(self._stop) if self._stop is not None else ""
        self._stop = None
        self.result.text += rest
        return rest

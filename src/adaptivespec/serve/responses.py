"""Responses and chunks of streams, as OpenAI's API writes them, with what speculation adds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from adaptivespec import __version__
from adaptivespec.core.stats import Statistics
from adaptivespec.engine.trace_lines import TraceLines, header_of
from adaptivespec.serve.tokens import CompletionLogprobs, chat_logprobs, traced_tokens

if TYPE_CHECKING:
    from adaptivespec.engine import Engine
    from adaptivespec.engine.result import Chunk, GenerationResult
    from adaptivespec.serve.parameters import Ask
    from adaptivespec.serve.service import Ticket

__all__ = ["Writer", "usage_of"]

#: Names of Statistics.details -> vLLM's, where they differ.
_RENAMED = {"accept_length": "mean_acceptance_length", "acceptance_rate": "draft_acceptance_rate"}
_OBJECTS = {
    ("chat", False): "chat.completion",
    ("chat", True): "chat.completion.chunk",
    ("completion", False): "text_completion",
    ("completion", True): "text_completion",
}


class Writer:
    """Writes the answer to one request: whole, or chunk by chunk.

    Args:
        engine: for tokens and traces.
        model: its name in the API.
        ask: the request.
        tickets: one for each choice, n for each prompt.
        prompts: texts to echo, by prompt.
    """

    def __init__(
        self,
        engine: Engine,
        model: str,
        ask: Ask,
        tickets: Sequence[Ticket],
        prompts: Sequence[str],
    ) -> None:
        self._engine, self._ask, self._tickets = engine, ask, tickets
        prefix = "chatcmpl" if ask.kind == "chat" else "cmpl"
        self._head = {
            "id": f"{prefix}-{token_hex(12)}",
            "object": _OBJECTS[ask.kind, ask.stream],
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"adaptivespec-{__version__}",
            "lossless": all(ticket.job.result.lossless for ticket in tickets),
        }
        self._choices = [
            _Choice(engine, ask, index, ticket, prompts[index // ask.n] if ask.echo else "")
            for index, ticket in enumerate(tickets)
        ]

    def whole(self, chunks: Sequence[Sequence[Chunk]]) -> dict[str, Any]:
        """The response, from all chunks of every choice."""
        choices = [choice.whole(own) for choice, own in zip(self._choices, chunks, strict=True)]
        return {**self._head, "choices": choices, "usage": self._usage(), **self._metrics()}

    def chunk(self, index: int, chunk: Chunk) -> list[dict[str, Any]]:
        """What a chunk of a choice comes to: nothing, one object, or two at its beginning."""
        pieces = self._choices[index].pieces(chunk)
        objects = [{**self._head, "choices": [piece]} for piece in pieces]
        if self._ask.include_usage:
            for one in objects:
                one["usage"] = None
        if objects and all(choice.ended for choice in self._choices):
            objects[-1] |= self._metrics()
        return objects

    def last(self) -> dict[str, Any]:
        """The chunk without choices that brings the usage."""
        return {**self._head, "choices": [], "usage": self._usage(), **self._metrics()}

    def _usage(self) -> dict[str, Any]:
        return usage_of(self._tickets, self._ask.n)

    def _metrics(self) -> dict[str, Any]:
        figures = speculation_of_results([ticket.job.result for ticket in self._tickets])
        return {"metrics": {"speculative_decoding": figures}}


def usage_of(tickets: Sequence[Ticket], n: int) -> dict[str, Any]:
    """Tokens of a request; a prompt counts once, however many answers it gets."""
    prompts = tickets[::n]
    prompt = sum(ticket.job.result.prompt_tokens for ticket in prompts)
    completion = sum(ticket.job.result.completion_tokens for ticket in tickets)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(ticket.cached_tokens for ticket in prompts),
        },
    }


def speculation_of_results(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """What came of speculation in all answers together, under vLLM's names."""
    total = Statistics()
    for result in results:
        total.merge(result.stats)
    figures = {_RENAMED.get(name, name): value for name, value in total.details().items()}
    figures["lossless"] = all(result.lossless for result in results)
    figures["rule"], figures["policy"] = results[0].rule, results[0].policy
    return figures


class _Choice:
    """One choice of a response."""

    def __init__(self, engine: Engine, ask: Ask, index: int, ticket: Ticket, prompt: str) -> None:
        self._engine, self._ask, self._index = engine, ask, index
        self._job, self._prompt = ticket.job, prompt
        self._chat = ask.kind == "chat"
        self._offsets = CompletionLogprobs(engine.tokenizer, ask.top_logprobs)
        self._lines = TraceLines(engine.tokenizer)
        self._begun = False
        self.ended = False

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """The choice as a part of a response."""
        result = self._job.result
        tokens = [token for chunk in chunks for token in chunk.tokens]
        text = self._prompt + "".join(chunk.text for chunk in chunks)
        choice: dict[str, Any] = {"index": self._index}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        choice["logprobs"] = self._logprobs(tokens)
        choice |= self._ending(result)
        if self._ask.return_trace:
            steps = [self._lines.line(chunk.step) for chunk in chunks if chunk.step is not None]
            choice["trace"] = {"header": self._header(), "steps": steps}
            choice["tokens"] = traced_tokens(tokens)
        return choice

    def pieces(self, chunk: Chunk) -> list[dict[str, Any]]:
        """The choice as parts of chunks of a stream."""
        pieces = [] if self._begun else self._opening()
        self._begun, self.ended = True, chunk.result is not None
        asked = self._ask
        has_details = asked.return_trace and (chunk.step is not None or chunk.tokens)
        if not (chunk.text or self.ended or has_details or (asked.logprobs and chunk.tokens)):
            return pieces
        piece: dict[str, Any] = {"index": self._index}
        if self._chat:
            piece["delta"] = {"content": chunk.text} if chunk.text or not self.ended else {}
        else:
            piece["text"] = chunk.text
        piece["logprobs"] = self._logprobs(chunk.tokens) if chunk.tokens else None
        piece |= self._ending(chunk.result)
        if asked.return_trace:
            if chunk.step is not None:
                piece["trace"] = {"steps": [self._lines.line(chunk.step)]}
            piece["tokens"] = traced_tokens(chunk.tokens)
        return [*pieces, piece]

    def _opening(self) -> list[dict[str, Any]]:
        """The role of a chat, the echo of a completion, and the head of a trace."""
        opening: dict[str, Any] = {"index": self._index}
        if self._chat:
            opening["delta"] = {"role": "assistant", "content": ""}
        elif self._prompt or self._ask.return_trace:
            opening["text"] = self._prompt
        else:
            return []
        opening |= {"logprobs": None, "finish_reason": None}
        if self._ask.return_trace:
            opening["trace"] = {"header": self._header()}
        return [opening]

    def _logprobs(self, tokens: Sequence[Any]) -> dict[str, Any] | None:
        if not self._ask.logprobs:
            return None
        if self._chat:
            return chat_logprobs(tokens, self._engine.tokenizer)
        return self._offsets.add(tokens)

    def _ending(self, result: GenerationResult | None) -> dict[str, Any]:
        """Why it ended: `stop_reason`, as vLLM's, is the stop string or id unless it is EOS."""
        if result is None:
            return {"finish_reason": None}
        matched = result.matched_stop
        own = self._job.request.params.stop_token_ids
        if isinstance(matched, int) and matched not in own:
            matched = None
        return {"finish_reason": result.finish_reason, "stop_reason": matched}

    def _header(self) -> dict[str, Any]:
        request = self._job.request
        header = header_of(self._engine, self._job.result, request.params, prompt=request.prompt)
        return header.model_dump(mode="json")

"""Answers of the hash model: text, stop strings, usage, logprobs. Faults of text live here."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fakes.conform_model import END_OF_PROMPT, EOS, PIECES, Ask, Emitted, decode

MARK = "<|im_end|>"


@dataclass
class Piece:
    """What one token brings: text that is decided, the tokens, how the answer ends."""

    text: str
    tokens: list[Emitted] = field(default_factory=list)
    finish: str | None = None


class Text:
    """Text that grows by bytes; what may be part of a stop string is held back."""

    def __init__(self, ask: Ask) -> None:
        self.faults = ask.faults
        stops = ask.get("stop", [])
        self.stops = [stops] if isinstance(stops, str) else list(stops)
        if "first_stop_only" in self.faults:
            self.stops = self.stops[:1]
        if "four_stops" in self.faults:
            self.stops = self.stops[:4]
        if "stops_ascii_only" in self.faults:
            self.stops = [stop for stop in self.stops if stop.isascii()]
        if "stops_search_prompt" in self.faults:
            prompt = ask.prompt.decode()
            self.found_in_prompt = any(stop in prompt for stop in self.stops)
        else:
            self.found_in_prompt = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self.written, self.sent, self.last = "", 0, 0

    def add(self, data: bytes, stream: bool) -> tuple[str, bool]:
        """New text to show, and whether a stop string was completed."""
        if "splits_characters" in self.faults and stream:
            piece = data.decode("utf-8", "replace")
        else:
            piece = self._decoder.decode(data)
        self.last = len(self.written)
        self.written += piece
        at = self._stop(piece)
        if at is not None or self.found_in_prompt:
            end = self.sent if at is None else at
            if "stops_cut_at_tokens" in self.faults:
                end = self.last
            if "stop_shown" in self.faults and stream:
                end = len(self.written)
            return self._until(max(end, self.sent)), True
        keep = 0 if "stop_shown" in self.faults and stream else self._undecided()
        return self._until(len(self.written) - keep), False

    def rest(self) -> str:
        """What was held back, at the end."""
        return self._until(len(self.written))

    def _stop(self, piece: str) -> int | None:
        if "stops_token_by_token" in self.faults:
            places = [self.last + piece.find(stop) for stop in self.stops if stop in piece]
        else:
            places = [self.written.find(stop) for stop in self.stops if stop in self.written]
        return min(places, default=None)

    def _undecided(self) -> int:
        longest = max(map(len, self.stops), default=0)
        sizes = range(min(longest, len(self.written)), 0, -1)
        tails = ((size, self.written[-size:]) for size in sizes)
        return next((n for n, tail in tails if any(s.startswith(tail) for s in self.stops)), 0)

    def _until(self, end: int) -> str:
        text, self.sent = self.written[self.sent : end], max(end, self.sent)
        return text


def answer(ask: Ask, stream: bool) -> Iterator[Piece]:
    """The answer piece by piece; the last piece says how it ended."""
    text, tokens = Text(ask), decode(ask)
    for count, token in enumerate(tokens, 1):
        if token.id == EOS:
            extra = b"".join(after.piece for after in tokens)
            shown, _ = text.add(extra, stream)
            mark = MARK if "eos_mark" in ask.faults else ""
            yield Piece(shown + text.rest() + mark, [token], "stop")
            return
        shown, stopped = text.add(token.piece, stream)
        if stopped:
            past = [token, *(next(tokens, token) for _ in range(2))]
            kept = past if "tokens_past_stop" in ask.faults else [token]
            yield Piece(shown, kept, "stop")
            return
        if count >= ask.max_tokens + ("overshoots" in ask.faults):
            yield Piece(shown + text.rest(), [token], "length")
            return
        yield Piece(shown, [token])


def usage(ask: Ask, pieces: list[list[Piece]], prompt_tokens: int) -> dict[str, Any]:
    """OpenAI's usage of all choices."""
    faults = ask.faults
    counts = [sum(len(piece.tokens) for piece in choice) for choice in pieces]
    completion = sum(counts)
    if "overshoots" in faults:
        completion -= len(counts)
    if "eos_counted_twice" in faults:
        completion += sum(choice[-1].finish == "stop" for choice in pieces)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion + ("total_wrong" in faults),
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": completion + 1 if "thinks_too_much" in faults else 0
        },
    }


def speculation(faults: Any, tokens: int) -> dict[str, Any]:
    """Figures as if every second token came from a draft of three."""
    made = tokens - 1
    steps = (made + 1) // 2
    accepted = made - steps
    histogram = {"1": accepted, "0": steps - accepted}
    if "histogram_off" in faults:
        histogram["0"] += 1
    rate = accepted / (3 * steps) if steps else None
    return {
        "num_spec_steps": steps,
        "num_draft_tokens": 3 * steps,
        "num_accepted_draft_tokens": accepted,
        "mean_acceptance_length": made / steps if steps else None,
        "draft_acceptance_rate": 1.5 if "rate_above_one" in faults else rate,
        "acceptance_histogram": histogram,
        "lossless": True,
    }


def chat_logprobs(tokens: list[Emitted], tops: int, faults: Any) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""
    if "logprobs_missing_entry" in faults and len(tokens) > 3:
        tokens = [*tokens[:2], *tokens[3:]]
    shift = 3 if "logprobs_of_neighbours" in faults and len(tokens) > 3 else 0
    named = [*tokens[shift:], *tokens[:shift]]
    return {
        "content": [_entry(t, name, tops, faults) for t, name in zip(tokens, named, strict=True)]
    }


def _entry(token: Emitted, named: Emitted, tops: int, faults: Any) -> dict[str, Any]:
    raise_by = 5.0 if "scores_for_logprobs" in faults else 0.0
    top = [_one(i, value + raise_by) for i, value in token.top[:tops]]
    if "top_logprobs_unsorted" in faults:
        top.reverse()
    return {**_one(named.id, token.logprob + raise_by), "top_logprobs": top}


def _one(id: int, logprob: float) -> dict[str, Any]:
    data = PIECES[id]
    text = MARK if id == EOS else data.decode("utf-8", "replace")
    return {"token": text, "logprob": logprob, "bytes": list(data or MARK.encode())}


def completion_logprobs(tokens: list[Emitted], tops: int) -> dict[str, Any]:
    """The `logprobs` of a completion's choice."""
    names = [_one(token.id, 0.0)["token"] for token in tokens]
    top = [{_one(i, 0.0)["token"]: v for i, v in token.top[:tops]} for token in tokens]
    logprobs = [token.logprob for token in tokens]
    return {"tokens": names, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": []}


def prompt_of(body: dict[str, Any]) -> bytes:
    """The bytes that the model is asked to go on with."""
    if "prompt" in body:
        prompt = body["prompt"]
        return (prompt if isinstance(prompt, str) else "\n".join(prompt)).encode()
    said = "\n".join(f"{m['role']}: {m['content']}" for m in body["messages"])
    return said.encode() + END_OF_PROMPT

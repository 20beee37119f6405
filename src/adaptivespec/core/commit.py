"""Commit: which tokens of a step's run exist, and which text may be shown.

A pure function, called before the cache, the random state, the metrics or the stream is touched. A
run is taken token by token and cut at the first stop id, stop string or at max_tokens; what comes
later never existed. What a sequence of tokens comes to does not depend on how it is cut into runs.

Text is decoded incrementally over a small window of tokens. Two things are held back: the tail of
an incomplete character, and any suffix that may be the beginning of a stop string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from adaptivespec.core.sampling import SamplingParams

FinishReason = Literal["stop", "length"]

_REPLACEMENT = "\ufffd"  # what decoders put in place of bytes that are no character (yet)
_MOST_MISSING = 3  # a UTF-8 character has 4 bytes, so at most 3 stand undecided at the end
_WINDOW = 8  # undecided tokens after which the window's head is dropped: no character is longer


@dataclass(frozen=True)
class StopState:
    """Everything ``commit`` remembers between runs of one request; immutable.

    Attributes:
        decode: ids -> text. Byte-level and byte-fallback tokenizers both work.
        stop: stop strings.
        stop_ids: ids that end the output, EOS included unless ignored.
        min_tokens, max_tokens: as in SamplingParams.
        produced: tokens so far, an ending EOS or stop id included.
        finished: the output has ended; ``commit`` refuses to go on.
        held: decoded text that may still turn out to be the beginning of a stop string.
        ids: the tokens whose text the next token may change, after those that give them context.
        settled: how many of ``ids`` are fully decoded.
        text: the part of decode(ids) that has been released.
    """

    decode: Callable[[Sequence[int]], str]
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    max_tokens: int = 1
    produced: int = 0
    finished: bool = False
    held: str = ""
    ids: tuple[int, ...] = ()
    settled: int = 0
    text: str = ""

    @classmethod
    def start(
        cls,
        params: SamplingParams,
        eos_ids: frozenset[int],
        decode: Callable[[Sequence[int]], str],
    ) -> StopState:
        """The state before the first token of a request."""
        return cls(
            decode=decode,
            stop=params.stop,
            stop_ids=params.stop_ids(eos_ids),
            min_tokens=params.min_tokens,
            max_tokens=params.max_tokens,
        )


@dataclass(frozen=True)
class Commit:
    """What one run came to.

    Attributes:
        kept: how many tokens of the run exist, an ending EOS or stop id included.
        tokens: the ids for the user: the kept ones without an ending EOS or stop id.
        finish_reason: None while the output goes on.
        matched_stop: the id or the string that stopped it.
        text: text now safe to show. The rest of the output's text comes from ``flush``.
        state: the state for the next run.
    """

    kept: int
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    matched_stop: int | str | None
    text: str
    state: StopState


def commit(run: Sequence[int], state: StopState) -> Commit:
    """Keep tokens of ``run`` up to the first that ends the output.

    A stop id ends it and is no text. A stop string ends it with the token that completes it, and
    the text is cut before the string; of several strings the one completed first wins, and of
    those completed together the one that starts first. Neither counts while the tokens produced,
    this one included, are fewer than min_tokens. At max_tokens the reason is "length", unless the
    same token stops the output.

    Raises ValueError when the output has already ended.
    """
    if state.finished:
        raise ValueError("the output has ended: nothing can be committed after it")
    decoder, held, produced = _Decoder(state), state.held, state.produced
    for index, token in enumerate(run):
        produced += 1
        may_stop = produced >= state.min_tokens
        if may_stop and token in state.stop_ids:
            after = replace(decoder.state(), held=held, produced=produced, finished=True)
            tokens = tuple(run[:index])
            return _release(index + 1, tokens, "stop", token, after)
        piece = decoder.push(token)
        if piece:
            old, held = len(held), held + piece
            found = _find_stop(held, old, state.stop) if may_stop else None
            if found is not None:
                start, match = found
                after = replace(
                    state, produced=produced, finished=True, held="", ids=(), settled=0, text=""
                )
                kept = index + 1
                return Commit(kept, tuple(run[:kept]), "stop", match, held[:start], after)
        if produced >= state.max_tokens:
            after = replace(decoder.state(), held=held, produced=produced, finished=True)
            return _release(index + 1, tuple(run[: index + 1]), "length", None, after)
    after = replace(decoder.state(), held=held, produced=produced)
    return _release(len(run), tuple(run), None, None, after)


def flush(state: StopState) -> str:
    """The text still held back, once the output has ended; empty after a stop string.

    Bytes that never became a character come out as the decoder shows them.
    """
    rest = state.decode(state.ids)[len(state.text) :] if state.ids else ""
    return state.held + rest


def _release(
    kept: int,
    tokens: tuple[int, ...],
    reason: FinishReason | None,
    matched: int | str | None,
    state: StopState,
) -> Commit:
    """Show what cannot be part of a stop string, and keep the rest in the state."""
    keep = _open_suffix(state.held, state.stop)
    cut = len(state.held) - keep
    shown, state = state.held[:cut], replace(state, held=state.held[cut:])
    return Commit(kept, tokens, reason, matched, shown, state)


def _find_stop(text: str, old: int, stop: tuple[str, ...]) -> tuple[int, str] | None:
    """Where the first completed stop string starts, and which; matches end after ``old``."""
    best: tuple[int, int, str] | None = None
    for string in stop:
        start = text.find(string, max(0, old - len(string) + 1))
        if start >= 0 and (best is None or (start + len(string), start) < best[:2]):
            best = (start + len(string), start, string)
    return None if best is None else (best[1], best[2])


def _open_suffix(text: str, stop: tuple[str, ...]) -> int:
    """Length of the longest suffix that a stop string begins with, without being complete."""
    longest = min(len(text), max((len(string) for string in stop), default=1) - 1)
    for size in range(longest, 0, -1):
        suffix = text[-size:]
        if any(len(string) > size and string.startswith(suffix) for string in stop):
            return size
    return 0


class _Decoder:
    """The incremental decoder of one ``commit`` call: a mutable copy of the state's window.

    The window holds the tokens decoded last (context, so that a decoder which treats the first
    token of a text differently does no harm) and those whose last character is incomplete.
    """

    def __init__(self, state: StopState) -> None:
        self._start = state
        self._decode = state.decode
        self._ids = list(state.ids)
        self._settled = state.settled
        self._text = state.text

    def state(self) -> StopState:
        return replace(self._start, ids=tuple(self._ids), settled=self._settled, text=self._text)

    def push(self, token: int) -> str:
        """The text that ``token`` settles."""
        self._ids.append(token)
        full = self._decode(self._ids)
        stable = _without_open_tail(full)
        if not stable.startswith(self._text):
            # A byte-fallback decoder shows a whole run of bytes as broken until it is complete.
            if len(self._ids) - self._settled <= _WINDOW:
                return ""
            stable = full
        piece, self._text = stable[len(self._text) :], stable
        if len(stable) == len(full):
            self._settle(piece)
        elif len(self._ids) - self._settled > _WINDOW:
            self._drop_broken_head()
        return piece

    def _drop_broken_head(self) -> None:
        """A long run of bytes that are no character: its last few tokens hold all that is open."""
        recent = self._ids[-_MOST_MISSING - 1 :]
        text = self._decode(recent)
        stable = _without_open_tail(text)
        if len(text) - len(stable) == _MOST_MISSING and stable:
            self._ids, self._settled, self._text = recent, 0, stable

    def _settle(self, piece: str) -> None:
        """All text is decided: the tokens since the last such point become the new context."""
        if not piece and self._text and self._settled:
            self._ids.pop()  # a token without text, such as a special one: the context stands
            return
        fresh = self._ids[self._settled :] if self._settled else self._ids
        text = self._decode(fresh) if self._settled else self._text
        if text or len(self._ids) > _WINDOW:
            self._ids, self._text = list(fresh), text
        self._settled = len(self._ids)


def _without_open_tail(text: str) -> str:
    """``text`` without the replacement characters at its end that more bytes may still change."""
    tail = len(text) - len(text.rstrip(_REPLACEMENT))
    return text[: len(text) - min(tail, _MOST_MISSING)]

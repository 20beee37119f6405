"""Many answers of a target at once: rows of several texts share the walk over its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.target import Target
from adaptivespec.train.data.corpus import LoopFinder
from adaptivespec.train.data.features import Features, final_of

#: Texts that are answered together, if there are so many.
WIDTH = 64
#: The law of a sampled answer.
TEMPERATURE, TOP_K = 0.7, 40


@dataclass(frozen=True)
class Job:
    """One answer wanted.

    Attributes:
        prompt: token ids, at least one.
        max_tokens: where the answer is cut.
        seed: of a sampled answer; None answers greedily.
        tag: whatever the caller wants to know it by.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int | None = None
    tag: Any = None


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to a job: its tokens, an EOS that ended it included, and what the target computed.

    `finished` says that it ended by itself, neither cut before `max_tokens` nor where it loops.
    """

    job: Job
    tokens: tuple[int, ...]
    finished: bool
    features: Features


@dataclass(eq=False)
class _Live:
    """A text that is being answered."""

    job: Job
    cache: Any
    uniform: list[float]
    tokens: list[int] = field(default_factory=list)
    loops: LoopFinder = field(default_factory=LoopFinder)
    taps: list[Tensor] = field(default_factory=list)
    final: list[Tensor] = field(default_factory=list)
    greedy: list[Tensor] = field(default_factory=list)

    def keep(self, taps: Tensor, final: Tensor, greedy: Tensor) -> None:
        self.taps.append(taps)
        self.final.append(final)
        self.greedy.append(greedy)


def answers(
    target: Target[Any],
    next_job: Callable[[], Job | None],
    eos: Sequence[int],
    tap_layers: Sequence[int] = (),
    width: int = WIDTH,
) -> Iterator[Answer]:
    """Answer the jobs that `next_job` hands out until it says None, each as soon as it is done.

    An answer is what plain decoding gives, whatever else is in the pass (bit for bit on the native
    backend): greedy, or by the number of its position in a stream of its own seed.  Where a text
    begins to loop it is cut, as `corpus.loop_start` has it.  `next_job` is asked again after every
    answer, so that it may hand out what follows from one.
    """
    live: list[_Live] = []
    while True:
        while len(live) < width and (job := next_job()) is not None:
            done = _begin(target, job, eos, tap_layers)
            if isinstance(done, Answer):
                yield done
            else:
                live.append(done)
        if not live:
            return
        trees = [DraftTree.root_only(text.tokens[-1]) for text in live]
        passes = target.verify_many([text.cache for text in live], trees, tap_layers)
        taps = torch.cat([out.taps for out in passes]).bfloat16()
        final = torch.cat([final_of(out) for out in passes])
        chosen, best = _choose(torch.cat([out.logits for out in passes]), live)
        kept = []
        for row, text in enumerate(live):
            target.commit(text.cache, (0,))
            part = slice(row, row + 1)
            text.keep(taps[part], final[part], best[part])
            answer = _extend(text, chosen[row], eos)
            if answer is None:
                kept.append(text)
            else:
                yield answer
        live = kept


def _begin(
    target: Target[Any], job: Job, eos: Sequence[int], tap_layers: Sequence[int]
) -> _Live | Answer:
    uniform: list[float] = []
    if job.seed is not None:
        generator = torch.Generator().manual_seed(job.seed)
        uniform = torch.rand(job.max_tokens, generator=generator).tolist()
    text = _Live(job, target.new_cache(len(job.prompt) + job.max_tokens), uniform)
    out = target.prefill(text.cache, job.prompt, tap_layers)
    chosen, best = _choose(out.logits, [text])
    text.keep(out.taps.bfloat16(), final_of(out), best)
    return _extend(text, chosen[0], eos) or text


def _extend(text: _Live, token: int, eos: Sequence[int]) -> Answer | None:
    """Append a token; the answer if it was the last.

    The last token never runs. An EOS needs no features, they are zero; any other is left out.
    """
    text.tokens.append(token)
    loop = text.loops.add(token)
    finished = token in eos
    if loop is None and not finished and len(text.tokens) < text.job.max_tokens:
        return None
    if finished:
        text.keep(
            *(torch.zeros_like(rows[-1][:1]) for rows in (text.taps, text.final, text.greedy))
        )
    length = len(text.tokens) - (not finished) if loop is None else loop
    features = Features(
        torch.cat(text.taps)[: len(text.job.prompt) + length],
        torch.cat(text.final)[: length + 1],
        torch.cat(text.greedy)[: length + 1],
    )
    return Answer(text.job, tuple(text.tokens[:length]), finished, features)


def _choose(logits: Tensor, texts: Sequence[_Live]) -> tuple[list[int], Tensor]:
    """The token of every row, and the target's argmax `i32[rows]`."""
    best = logits.argmax(-1)
    chosen: list[int] = best.tolist()
    rows = [row for row, text in enumerate(texts) if text.job.seed is not None]
    if rows:
        values, ids = logits.index_select(0, torch.tensor(rows)).float().topk(TOP_K)
        mass = (values / TEMPERATURE).softmax(-1).cumsum(-1)
        at = [texts[row].uniform[len(texts[row].tokens)] for row in rows]
        rank = torch.searchsorted(mass, torch.tensor(at)[:, None]).clamp_(max=TOP_K - 1)
        for row, token in zip(rows, ids.gather(1, rank)[:, 0].tolist(), strict=True):
            chosen[row] = token
    return chosen, best.int()

"""What speculation must not change: the greedy answer is the target's own, at every token."""

from __future__ import annotations

from functools import partial

from adaptivespec.conform.answer import COMPLETIONS, Answer
from adaptivespec.conform.case import Failed, NotApplicable, case, require
from adaptivespec.conform.subject import LONG_TOKENS, Subject

PIECES = 4


@case(
    "speculation.own-prefix",
    "a greedy answer goes on the same from any of its own beginnings",
    finds="rejected drafts left in the cache, wrong positions or masks in a tree, lossy rules",
    seen=("EAGLE#212", "vllm#7627", "mlx-lm#1109", "vllm#39273", "TensorRT-LLM#12962"),
    needs=("completions", "logprobs"),
)
def own_prefix(subject: Subject) -> str | None:
    whole = subject.long_raw()
    subject.excuse_lossy(whole)
    text = str(subject.prompt_of(whole))
    tokens = whole.tokens or []
    before = whole.count("prompt_tokens")
    usable = [
        number
        for number in range(2, len(tokens) - 4)
        if tokens[number].text.startswith(" ") and tokens[number].text.strip()
    ]
    chosen = usable[:: max(len(usable) // PIECES, 1)][:PIECES]
    asks = []
    for number in chosen:
        said = b"".join(token.encoded for token in tokens[:number]).decode(errors="replace")
        ask = partial(subject.ask, text + said, path=COMPLETIONS, max_tokens=LONG_TOKENS - number,
                      **subject.logprob_fields(COMPLETIONS))  # fmt: skip
        asks.append(ask)
    remarks, asked = [], 0
    for number, answer in zip(chosen, subject.together(asks), strict=True):
        if answer.count("prompt_tokens") != before + number:
            continue  # this text is read as other tokens than those that were written
        asked += 1
        said = b"".join(token.encoded for token in tokens[:number]).decode(errors="replace")
        expected = whole.text[len(said) :]
        rest = Answer(whole.request, 200, choices=[*whole.choices])
        rest.choices = [type(whole.first)(0, expected, tokens=tokens[number:])]
        required = f"the rest of the answer after its first {number} tokens"
        remarks.append(subject.same(rest, answer, expected, required))
    if not asked:
        raise NotApplicable("no beginning of the answer is read as the tokens it was written in")
    return next((remark for remark in remarks if remark), f"{asked} beginnings")


@case(
    "speculation.argmax",
    "each token of a greedy answer is the most likely one, by the server's own logprobs",
    finds="a lossy rule in silence, or logprobs of another place",
    seen=("verl-SpeCo#19", "EAGLE#212"),
    needs=("logprobs",),
)
def argmax(subject: Subject) -> str | None:
    for answer in subject.both():
        for number, token in enumerate(answer.tokens or ()):
            best = max((value for _, value in token.top), default=token.logprob)
            if token.logprob < best - subject.tie:
                subject.excuse_lossy(answer)
                likely = next(text for text, value in token.top if value == best)
                raise Failed(
                    f"{likely!r} as token {number} ({best:.3f} nats), or `lossless: false`",
                    f"{token.text!r} ({token.logprob:.3f} nats)",
                    answer.request,
                )
    return None


@case(
    "speculation.says-lossless",
    "a server that says whether it is lossless says the same everywhere",
    finds="lossy answers that only some responses own up to",
    seen=("verl-SpeCo#19",),
)
def says_lossless(subject: Subject) -> str | None:
    long = subject.long()
    streamed = subject.ask(subject.prompt_of(long), stream=True, max_tokens=LONG_TOKENS)
    said = {
        "the list of models": subject.entry.get("lossless"),
        "a whole answer": long.field("lossless"),
        "a stream": streamed.field("lossless"),
    }
    given = {place: value for place, value in said.items() if value is not None}
    if not given:
        raise NotApplicable("the server does not say")
    require(len(given) == len(said), "the word in every response", given, streamed)
    require(all(isinstance(value, bool) for value in given.values()), "a boolean", given, long)
    require(len(set(given.values())) == 1, "one word", given, streamed)
    chunks = {event.get("lossless") for event in streamed.events}
    require(len(chunks) == 1, "the same word in every chunk", chunks, streamed)
    return f"lossless: {str(long.field('lossless')).lower()}"

"""Stop strings, cut out of this model's own answers: across tokens, inside one, in any alphabet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from adaptivespec.conform.answer import Answer
from adaptivespec.conform.case import NotApplicable, case, require
from adaptivespec.conform.subject import LONG_TOKENS, MULTIBYTE_TOKENS, Subject

SEEN = ("sglang#23802", "vllm#47616")
SOME = 3  # stop strings that are tried of each kind
FROM = 4  # the first token that may hold one


@case(
    "ending.stop-across-tokens",
    "a stop string that begins in one token and ends in the next is found",
    finds="tokens matched one by one",
    seen=SEEN,
)
def across_tokens(subject: Subject) -> str | None:
    long = subject.long()
    found = []
    for start, left, right in _boundaries(subject, long):
        if len(left) > 1 and len(right) > 1 and (left[-2:] + right[:2]).isascii():
            found.append((left[-2:] + right[:2], start - 2))
    return _stopped(subject, long, found)


@case(
    "ending.stop-inside-token",
    "a stop string inside a token cuts the text in the middle of it",
    finds="text cut at the ends of tokens alone",
    seen=SEEN,
)
def inside_token(subject: Subject) -> str | None:
    long = subject.long()
    found = []
    for start, _, right in _boundaries(subject, long):
        word = right.strip()
        if len(word) > 3 and word.isascii() and word.isalpha():
            found.append((word[1:-1], start + right.index(word) + 1))
    return _stopped(subject, long, found)


@case(
    "ending.stop-list",
    "of several stop strings the one that comes first ends the answer",
    finds="only the first of the list looked for, or the first in its order",
    seen=SEEN,
)
def several(subject: Subject) -> str | None:
    long = subject.long()
    words = [(word, at) for at, word in _words(long.text) if at > FROM]
    if len(words) < 3:
        raise NotApplicable("the answer has too few words")
    last, middle = words[-1], words[len(words) // 2]
    stops = ["@never@", last[0], middle[0], "#never#"]
    answer = subject.ask(subject.prompt_of(long), max_tokens=LONG_TOKENS, stop=stops)
    return _cut(subject, long, answer, middle[1])


@case(
    "ending.stop-multibyte",
    "a stop string outside of ASCII is found",
    finds="stop strings compared before characters are whole",
    seen=SEEN,
)
def multibyte(subject: Subject) -> str | None:
    answer = subject.multibyte()
    text = answer.text.rstrip("\N{REPLACEMENT CHARACTER}")
    at = next((i for i, c in enumerate(text) if i and not c.isascii() and c not in text[:i]), None)
    if at is None:
        raise NotApplicable("no such character after the first one")
    stop = text[at]
    stopped = subject.ask(subject.prompt_of(answer), max_tokens=MULTIBYTE_TOKENS, stop=[stop])
    return _cut(subject, answer, stopped, at)


@case(
    "ending.stop-in-prompt",
    "a stop string in the prompt ends nothing",
    finds="the prompt searched for stop strings",
)
def in_prompt(subject: Subject) -> str | None:
    long = subject.long()
    prompt = subject.prompt_of(long)[-1]["content"]
    words = [word for _, word in _words(prompt) if word not in long.text]
    if not words:
        raise NotApplicable("the answer repeats every word of the prompt")
    stop = max(words, key=len)
    answer = subject.ask(subject.prompt_of(long), max_tokens=LONG_TOKENS, stop=[stop])
    return subject.same(long, answer, long.text, f"the whole answer, which lacks {stop!r}")


@case(
    "ending.stop-tokens",
    "logprobs and usage end with the token that completes the stop string",
    finds="tokens and logprobs kept past the stop",
    seen=SEEN,
    needs=("logprobs",),
)
def stop_tokens(subject: Subject) -> str | None:
    long = subject.long()
    words = [(word, at) for at, word in _words(long.text) if at > FROM]
    if not words:
        raise NotApplicable("the answer has no words")
    stop, at = words[len(words) // 3]
    answer = subject.ask(
        subject.prompt_of(long), max_tokens=LONG_TOKENS, stop=[stop], **subject.logprob_fields()
    )
    remark = _cut(subject, long, answer, at)
    tokens = answer.tokens or []
    before = b"".join(token.encoded for token in tokens[:-1]).decode(errors="replace")
    required = f"no logprobs after the token that completes {stop!r}"
    require(remark or stop not in before, required, before[-40:], answer)
    count = answer.count("completion_tokens")
    ends = _tokens_up_to(long, (long.text[:at] + stop).encode())
    require(remark or count <= ends, f"at most {ends} tokens, stop included", count, answer)
    return remark


@case(
    "text.stop-held-back",
    "a stream never shows text that turns out to be a stop string",
    finds="text sent before it is decided",
    seen=SEEN,
)
def held_back(subject: Subject) -> str | None:
    long = subject.long()
    found = [(left[-1:] + right[:3], start - 1) for start, left, right in _boundaries(subject, long)
             if left and len(right) > 2]  # fmt: skip
    return _stopped(subject, long, found, stream=True)


def _boundaries(subject: Subject, answer: Answer) -> Iterator[tuple[int, str, str]]:
    """Places in the text where a token begins: the place, the token before, the one after."""
    start, before = 0, ""
    for number, piece in enumerate(subject.pieces(answer)):
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            return
        if number >= FROM:
            yield start, before, text
        start, before = start + len(text), text


def _stopped(
    subject: Subject, reference: Answer, found: list[tuple[str, int]], stream: bool = False
) -> str | None:
    """Ask with some of these stop strings, those that first appear where they were found."""
    text = reference.text
    fit = [(stop, at) for stop, at in found if at > 0 and text.find(stop) == at and stop.strip()]
    if not fit:
        raise NotApplicable("no such place in the answer")
    chosen = fit[:: max(len(fit) // SOME, 1)][:SOME]
    ask = partial(subject.ask, subject.prompt_of(reference), max_tokens=LONG_TOKENS, stream=stream)
    answers = subject.together([partial(ask, stop=[stop]) for stop, _ in chosen])
    remarks = [
        _cut(subject, reference, answer, at)
        for answer, (_, at) in zip(answers, chosen, strict=True)
    ]
    return next((remark for remark in remarks if remark), None)


def _cut(subject: Subject, reference: Answer, answer: Answer, at: int) -> str | None:
    required = "the text before the stop string"
    remark = subject.same(reference, answer, reference.text[:at], required)
    if remark is None:
        require(answer.finish == "stop", "finish_reason 'stop'", answer.finish, answer)
    return remark


def _words(text: str) -> list[tuple[int, str]]:
    """Longer words that occur once, with their places."""
    found, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        if len(word) > 3 and word.isalpha() and text.count(word) == 1:
            found.append((at, word))
        at += len(word)
    return found


def _tokens_up_to(answer: Answer, text: bytes) -> int:
    """How many tokens of an answer it takes to write this beginning."""
    written = 0
    for number, token in enumerate(answer.tokens or (), 1):
        written += len(token.encoded)
        if written >= len(text):
            return number
    return len(answer.tokens or ())

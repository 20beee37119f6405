"""Penalties and biases: what they do is told beforehand from the logprobs of the greedy answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from adaptivespec.conform.answer import Answer, Token
from adaptivespec.conform.case import Failed, NotApplicable, Refused, case, require
from adaptivespec.conform.prompts import SHORT
from adaptivespec.conform.subject import LONG_TOKENS, Subject

PENALTY = 2.0
FORCED = 4
IDS_TRIED = 5
MARGIN = 1e-3  # nats: what rounding of printed logprobs may come to
#: Ids that are words in the vocabularies of most models, and exist in small ones.
IDS = (1000, 700, 1500, 2200, 60, 40)


@case(
    "sampling.frequency-penalty",
    "frequency_penalty counts each token as often as it was said, and no other",
    finds="penalties ignored, or counting rejected drafts",
    seen=("vllm#18902", "sglang#33643"),
    needs=("logprobs",),
)
def frequency_penalty(subject: Subject) -> str | None:
    return _penalised(subject, "frequency_penalty", lambda count: PENALTY * count)


@case(
    "sampling.presence-penalty",
    "presence_penalty counts each token once",
    finds="penalties ignored, or counting rejected drafts",
    seen=("vllm#18902", "sglang#33643"),
    needs=("logprobs",),
)
def presence_penalty(subject: Subject) -> str | None:
    return _penalised(subject, "presence_penalty", lambda count: PENALTY * (count > 0))


def _penalised(subject: Subject, name: str, charge: Callable[[int], float]) -> str | None:
    long = subject.long()
    subject.excuse_lossy(long)
    tokens = long.tokens or []
    turn = _turn(tokens, charge, subject.tie)
    if turn is None:
        raise NotApplicable("the greedy answer repeats no token that another one is near to")
    at, wanted = turn
    fields = subject.logprob_fields() | {name: PENALTY}
    answer = subject.ask(subject.prompt_of(long), max_tokens=LONG_TOKENS, **fields)
    came = [token.text for token in answer.tokens or ()]
    plain = [token.text for token in tokens]
    pairs = enumerate(zip(plain, came, strict=False))
    differs = next((i for i, (a, b) in pairs if a != b), len(plain))
    if differs < at:
        return _earlier(subject, long, answer, differs)
    require(differs == at, f"{wanted!r} in place of {plain[at]!r} as token {at}",
            f"{name} changes nothing there", answer)  # fmt: skip
    require(came[at] == wanted, f"{wanted!r} as token {at}", repr(came[at]), answer)
    # Some servers give logprobs as they are before penalties, others as after.
    wrongs = [_wrong(subject, answer, each) for each in (charge, lambda count: 0.0)]
    if all(wrongs):
        raise Failed(str(wrongs[0]), repr(came), answer.request)
    return None


def _wrong(subject: Subject, answer: Answer, charge: Callable[[int], float]) -> str | None:
    """What should have been said where a token is not the best after this charge; None if none."""
    prompt = str(subject.prompt_of(answer)[-1]["content"])
    said: Counter[str] = Counter()
    for at, token in enumerate(answer.tokens or ()):
        own = token.logprob - charge(said[token.text])
        for text, value in token.top:
            better = value - charge(said[text]) - own > subject.tie + MARGIN
            in_prompt = text.strip() and text.strip() in prompt  # some servers count those too
            if better and not in_prompt:
                return f"{text!r}, said {said[text]} times before, as token {at}"
        said[token.text] += 1
    return None


def _turn(
    tokens: list[Token], charge: Callable[[int], float], tie: float
) -> tuple[int, str] | None:
    """Where a penalty first changes the greedy choice, and to what; None if nowhere for sure."""
    said: Counter[str] = Counter()
    for at, token in enumerate(tokens):
        scores = sorted(
            ((value - charge(said[text]), text) for text, value in token.top), reverse=True
        )
        unseen = min(value for _, value in token.top)  # what is not listed scores no higher
        if scores[0][1] != token.text:
            clear = scores[0][0] - max(scores[1][0], unseen) > tie + MARGIN
            return (at, scores[0][1]) if clear else None
        said[token.text] += 1
    return None


def _earlier(subject: Subject, long: Answer, answer: Answer, at: int) -> str:
    """A difference before the place where one is due: by a tie, or by tokens of the prompt."""
    token = (long.tokens or [])[at]
    if token.gap is not None and token.gap <= subject.tie:
        return f"differs at a tie of {token.gap:.1e} nats"
    prompt = str(subject.prompt_of(long)[-1]["content"])
    if token.text.strip() and token.text.strip() in prompt:
        return f"the prompt's tokens are counted too: {token.text!r}"
    raise Failed(
        f"{token.text!r} as token {at}, which was not said before",
        repr((answer.tokens or [])[at].text) if answer.tokens else "nothing",
        answer.request,
    )


@case(
    "sampling.logit-bias",
    "logit_bias +100 brings a token at every place, whatever the model would say",
    finds="biases ignored, or applied to the first token of a run alone",
    seen=("vllm#18902",),
)
def logit_bias(subject: Subject) -> str | None:
    plain = subject.ask(SHORT, max_tokens=FORCED)
    same: Answer | None = None
    refusal: Refused | None = None
    for number in IDS:
        ask = partial(subject.ask, SHORT, logit_bias={str(number): 100})
        try:
            one, answer = ask(max_tokens=1), ask(max_tokens=FORCED)
        except Refused as error:  # the vocabulary may lack this id, and have the next one
            refusal = error
            continue
        word = one.text
        if answer.text == plain.text:
            same = answer
        elif word and word.isascii() and answer.finish == "length":
            required = f"{word!r} {FORCED} times"
            require(answer.text == word * FORCED, required, repr(answer.text), answer)
            return None
    if same is None and refusal is not None:
        raise refusal
    if same is None:
        raise NotApplicable("none of the ids that were tried is a word of this vocabulary")
    raise Failed("another answer under logit_bias", "the same: it is ignored", same.request)


@case(
    "sampling.logit-bias-bans",
    "logit_bias -100 keeps a token out at every place",
    finds="negative biases ignored, or applied to the first token of a run alone",
    seen=("vllm#18902",),
    needs=("logprobs",),
)
def logit_bias_bans(subject: Subject) -> str | None:
    long = subject.long()
    whole = [token for token in long.tokens or () if token.data in (None, token.text.encode())]
    counts = Counter(token.text for token in whole if token.text.strip())
    for word, _ in counts.most_common(IDS_TRIED):
        number = _id_of(subject, word)
        if number is not None:
            break
    else:
        raise NotApplicable("the server does not tell the ids of tokens (/tokenize)")
    answer = subject.ask(
        subject.prompt_of(long), max_tokens=LONG_TOKENS, logit_bias={str(number): -100},
        **subject.logprob_fields(),
    )  # fmt: skip
    said = [token.text for token in answer.tokens or ()]
    required = f"an answer without the token {word!r} ({number})"
    require(word not in said, required, f"it stands {said.count(word)} times there", answer)
    return None


def _id_of(subject: Subject, word: str) -> int | None:
    """The id of a token: by /tokenize of llama.cpp, vLLM and SGLang, by our traces, or None."""
    body = {
        "model": subject.model,
        "content": word,
        "prompt": word,
        "add_special_tokens": False,
        "add_special": False,
    }
    answer = subject.link.post_root("tokenize", body)
    ids = answer.body.get("tokens") if isinstance(answer.body, dict) else None
    if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], int):
        return ids[0]
    return _traced(subject).get(word)


def _traced(subject: Subject) -> dict[str, int]:
    """Ids by text of the long answer's tokens, where a stream tells them."""
    if subject.entry.get("owned_by") != "adaptivespec":
        return {}
    prompt = subject.prompt_of(subject.long())
    traced = subject.ask(prompt, stream=True, max_tokens=LONG_TOKENS, return_trace=True)
    tokens = [
        token
        for event in traced.events
        for choice in event.get("choices") or ()
        for token in choice.get("tokens") or ()
    ]
    return {token["text"]: token["id"] for token in tokens}

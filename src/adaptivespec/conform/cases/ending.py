"""Where an answer ends: bounds of tokens, EOS, and what holds it back."""

from __future__ import annotations

from functools import partial

from adaptivespec.conform.answer import Answer
from adaptivespec.conform.case import NotApplicable, case, require
from adaptivespec.conform.subject import ENDING_TOKENS, Subject

#: What an end of turn is called by common models; none of them belongs into an answer.
MARKS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|end|>")
MORE = 8


@case(
    "ending.max-tokens",
    "max_tokens 1 to 9 are kept to the token",
    finds="a run of accepted drafts overshoots the bound",
    seen=("transformers#46993",),
)
def max_tokens(subject: Subject) -> str | None:
    long = subject.long()
    prompt = subject.prompt_of(long)
    bounds = range(1, 10)
    asks = [partial(subject.ask, prompt, max_tokens=n, **subject.logprob_fields()) for n in bounds]
    remarks: list[str | None] = []
    for n, answer in zip(bounds, subject.together(asks), strict=True):
        count = answer.count("completion_tokens")
        require(count == n, f"{n} tokens for max_tokens {n}", f"usage says {count}", answer)
        require(answer.finish == "length", "finish_reason 'length'", answer.finish, answer)
        if answer.tokens is not None:
            came = len(answer.tokens)
            require(came == n, f"{n} tokens for max_tokens {n}", f"{came} with logprobs", answer)
        answer.first.text = answer.text.rstrip("\N{REPLACEMENT CHARACTER}")
        said = b"".join(token.encoded for token in (long.tokens or ())[:n])
        expected = said.decode(errors="ignore")
        if not expected or not long.text.startswith(expected):
            expected = long.text[: len(answer.text)]  # the server does not tell where tokens end
        remarks.append(subject.same(long, answer, expected, f"the first {n} tokens"))
    return _first(remarks)


@case(
    "ending.max-completion-tokens",
    "max_completion_tokens is a bound like max_tokens",
    finds="the newer name ignored",
)
def max_completion_tokens(subject: Subject) -> str | None:
    prompt = subject.prompt_of(subject.both()[0])
    answer = subject.ask(prompt, max_tokens=None, max_completion_tokens=2)
    count = answer.count("completion_tokens")
    require(count == 2, "2 tokens for max_completion_tokens 2", count, answer)
    return None


@case(
    "ending.max-tokens-zero",
    "max_tokens 0 gives 400, or an answer of no tokens",
    finds="0 read as no bound, or as one",
    seen=("transformers#46993",),
)
def max_tokens_zero(subject: Subject) -> str | None:
    body = subject.body(subject.prompt_of(subject.long()), max_tokens=0)
    answer = subject.send(body)
    if answer.status == 200:
        answer.read()
        empty = not answer.text and answer.count("completion_tokens") == 0
        require(empty, "400, or no tokens", f"{answer.text!r}", answer)
        return "answered with no tokens"
    require(400 <= answer.status < 500, "400, or no tokens", answer.words, answer)
    return None


@case(
    "ending.eos",
    "an answer that ends by itself says so, and is the same under any larger bound",
    finds="text or tokens after EOS",
    seen=("transformers#47912", "llama.cpp#28049"),
)
def eos(subject: Subject) -> str | None:
    ended = subject.ending()
    subject.require_text(ended)
    prompt = subject.prompt_of(ended)
    remarks = []
    for bound in (ENDING_TOKENS + 1, 2 * ENDING_TOKENS):
        answer = subject.ask(prompt, max_tokens=bound)
        remarks.append(subject.same(ended, answer, ended.text, "the same answer"))
        require(answer.finish == "stop", "finish_reason 'stop'", answer.finish, answer)
    for mark in MARKS:
        require(mark not in ended.text, f"no {mark} in the text", ended.text, ended)
    if ended.tokens:
        written = b"".join(token.encoded for token in ended.tokens)
        rest = written.removeprefix(ended.text.encode()).decode(errors="replace")
        tokens = [token for token in ended.tokens if token.text]
        single = not rest or (tokens and tokens[-1].text == rest)
        require(single, "logprobs that end with the text, or with EOS", rest, ended)
    return _first(remarks)


@case(
    "ending.eos-counted-once",
    "one token less than an ended answer has makes it end by 'length'",
    finds="tokens after EOS counted, or EOS counted twice",
    seen=("transformers#47912",),
)
def eos_counted_once(subject: Subject) -> str | None:
    ended = subject.ending()
    count = ended.count("completion_tokens")
    answer = subject.ask(subject.prompt_of(ended), max_tokens=count - 1)
    require(answer.finish == "length", f"'length' for max_tokens {count - 1}, since the whole "
            f"answer has {count}", answer.finish, answer)  # fmt: skip
    came = answer.count("completion_tokens")
    require(came == count - 1, f"{count - 1} tokens", came, answer)
    cut = ended.text[: len(answer.text)]
    return subject.same(ended, answer, cut, "the beginning of the whole answer")


@case(
    "ending.ignore-eos",
    "ignore_eos goes on to the bound",
    finds="ignore_eos ignored, or EOS within a run obeyed all the same",
    seen=("vllm#26317", "vllm#32642"),
)
def ignore_eos(subject: Subject) -> str | None:
    ended = subject.ending()
    bound = ended.count("completion_tokens") + MORE
    answer = subject.ask(subject.prompt_of(ended), max_tokens=bound, ignore_eos=True)
    count = answer.count("completion_tokens")
    require(count == bound, f"{bound} tokens", f"{count}: the field is ignored", answer)
    require(answer.finish == "length", "finish_reason 'length'", answer.finish, answer)
    return None


@case(
    "ending.min-tokens",
    "min_tokens puts EOS off, and changes nothing before it",
    finds="min_tokens ignored, or forgotten within a run",
    seen=("vllm#26317", "vllm#32642"),
)
def min_tokens(subject: Subject) -> str | None:
    ended = subject.ending()
    subject.require_text(ended)  # it is cut by characters
    least = ended.count("completion_tokens") + MORE // 2
    bound = least + MORE
    answer = subject.ask(subject.prompt_of(ended), max_tokens=bound, min_tokens=least)
    count = answer.count("completion_tokens")
    require(count >= least, f"at least {least} tokens", f"{count}: the field is ignored", answer)
    cut = answer.text[: len(ended.text)]
    return subject.same(ended, _with_text(answer, cut), ended.text, "the same beginning")


def _with_text(answer: Answer, text: str) -> Answer:
    """The answer as if its text were this."""
    answer.first.text = text
    return answer


def _first(remarks: list[str | None]) -> str | None:
    return next((remark for remark in remarks if remark), None)


@case(
    "ending.next-turn",
    "a further turn is answered the same after its conversation and after other ones",
    finds="rows of tokens after EOS, or of rejected drafts, left in the cache that a turn reuses",
    seen=("transformers#47912", "mlx-lm#1109", "vllm#39273"),
)
def next_turn(subject: Subject) -> str | None:
    ended = subject.ending()
    said = {"role": "assistant", "content": ended.text}
    turn = [*subject.prompt_of(ended), said, {"role": "user", "content": "Say that differently."}]
    fields = subject.logprob_fields()
    subject.ask(subject.prompt_of(ended), max_tokens=ENDING_TOKENS)
    at_once = subject.ask(turn, max_tokens=MORE, **fields)
    for prompt in ("Something else entirely.", "And now to another matter."):
        subject.ask(prompt, max_tokens=2)
    later = subject.ask(turn, max_tokens=MORE, **fields)
    if not later.text:
        raise NotApplicable("the further turn has an empty answer")
    return subject.same(later, at_once, later.text, "the same answer to the second turn")

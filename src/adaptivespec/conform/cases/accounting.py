"""Figures that have to add up: usage, logprobs, and what is said about speculation."""

from __future__ import annotations

import math
from typing import Any

from adaptivespec.conform import reported
from adaptivespec.conform.case import Failed, NotApplicable, case, require, shown
from adaptivespec.conform.prompts import SHORT
from adaptivespec.conform.subject import LONG_TOKENS, Subject

ROUNDING = 1e-3


@case(
    "accounting.sums",
    "usage adds up, and completion_tokens keep within max_tokens",
    finds="counts of drafts, or of tokens that were cut off",
    seen=("sglang#39826", "sglang#23530"),
)
def sums(subject: Subject) -> str | None:
    for answer in (subject.ask(SHORT, max_tokens=3), *subject.both()):
        said, bound = answer.usage, answer.request.body["max_tokens"]
        prompt, completion = answer.count("prompt_tokens"), answer.count("completion_tokens")
        total = answer.count("total_tokens")
        require(total == prompt + completion, "total = prompt + completion", said, answer)
        require(prompt > 0 and completion > 0, "counts above 0", said, answer)
        require(completion <= bound, f"at most {bound} tokens", said, answer)
    return None


@case(
    "accounting.stream-usage",
    "with include_usage a stream ends with the usage of the whole answer",
    finds="usage of streams counted in another way, or chunks counted as tokens",
    seen=("vllm#24322",),
)
def stream_usage(subject: Subject) -> str | None:
    remarks = []
    for whole in subject.both():
        streamed = subject.ask(
            subject.prompt_of(whole),
            stream=True,
            max_tokens=whole.request.body["max_tokens"],
            stream_options={"include_usage": True},
        )
        if streamed.text != whole.text:
            remarks.append(subject.same(whole, streamed, whole.text, "the same text"))
            continue
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            wanted, came = whole.count(name), streamed.count(name)
            require(came == wanted, f"{name} {wanted} as in the whole answer", came, streamed)
        last = [event for event in streamed.events if event.get("usage")][-1]
        require(last.get("choices") == [], "choices [] beside the usage", last, streamed)
    return next((remark for remark in remarks if remark), None)


@case(
    "accounting.sub-counts",
    "details of usage are not larger than what they are part of",
    finds="thinking or cached tokens counted more often than tokens exist",
    seen=("sglang#39826",),
)
def sub_counts(subject: Subject) -> str | None:
    seen = 0
    first = subject.both()
    again = subject.ask(subject.prompt_of(first[0]), max_tokens=2)
    for answer in (*first, again):
        usage = answer.usage
        for whole in ("prompt_tokens", "completion_tokens"):
            details = usage.get(f"{whole}_details") or {}
            parts = {name: value for name, value in details.items() if isinstance(value, int)}
            if whole == "completion_tokens" and isinstance(usage.get("reasoning_tokens"), int):
                parts["reasoning_tokens"] = usage["reasoning_tokens"]
            for name, value in parts.items():
                seen += 1
                fits = 0 <= value <= answer.count(whole) or name == "rejected_prediction_tokens"
                require(fits, f"0 <= {name} <= {whole}", usage, answer)
    if not seen:
        raise NotApplicable("usage has no details")
    return None


@case(
    "accounting.prompt-tokens",
    "prompt_tokens depend on the prompt alone, and grow with it",
    finds="tokens from a cache left out of the count",
)
def prompt_tokens(subject: Subject) -> str | None:
    whole = subject.both()[0]
    messages = subject.prompt_of(whole)
    counts = [subject.ask(messages, max_tokens=1).count("prompt_tokens") for _ in range(2)]
    first = whole.count("prompt_tokens")
    require(set(counts) == {first}, f"{first} each time", counts, whole)
    longer = subject.ask([{"role": "user", "content": f"{messages[0]['content']} Thank you very "
                           "much for it."}], max_tokens=1)  # fmt: skip
    count = longer.count("prompt_tokens")
    require(count > first, f"more than {first} for a longer prompt", count, longer)
    return None


@case(
    "accounting.logprobs-count",
    "asked for, logprobs come for each token that is counted (an ending EOS may lack one)",
    finds="logprobs of some tokens of a run lost, or of tokens that were cut off",
    seen=("sglang#23802",),
)
def logprobs_count(subject: Subject) -> str | None:
    reason = subject.without("logprobs")
    if reason is not None:
        answer = subject.ask(SHORT, max_tokens=4, logprobs=True)
        raise Failed("logprobs, or a refusal", shown(answer.tokens), answer.request)
    for answer in subject.both():
        count, came = answer.count("completion_tokens"), len(answer.tokens or ())
        least = count - (answer.finish == "stop")
        require(least <= came <= count, f"{count} entries", came, answer)
    return None


@case(
    "accounting.logprobs-text",
    "the tokens of the logprobs spell the answer",
    finds="entries of other tokens than those that were emitted",
    seen=("sglang#23802",),
    needs=("logprobs",),
)
def logprobs_text(subject: Subject) -> str | None:
    for answer in subject.both():
        subject.require_text(answer)
        written = b"".join(token.encoded for token in answer.tokens or ())
        text = answer.text.encode()
        # An ending token may stand at the end; a template may strip the blank before the answer.
        fits = written.startswith(text) or written.lstrip().startswith(text.lstrip())
        require(fits, f"tokens that spell {answer.text[:80]!r}", written[:80], answer)
    return None


@case(
    "accounting.logprobs-stream",
    "logprobs of a stream are those of the whole answer",
    finds="entries lost or repeated where a chunk holds several tokens",
    needs=("logprobs",),
)
def logprobs_stream(subject: Subject) -> str | None:
    whole = subject.long()
    streamed = subject.ask(
        subject.prompt_of(whole), stream=True, max_tokens=LONG_TOKENS, **subject.logprob_fields()
    )
    remark = subject.same(whole, streamed, whole.text, "the same text")
    if remark is not None:
        return remark
    wanted = [token.text for token in whole.tokens or ()]
    came = [token.text for token in streamed.tokens or ()]
    require(came == wanted, f"{len(wanted)} entries, as in the whole answer", _diff(wanted, came),
            streamed)  # fmt: skip
    return None


@case(
    "accounting.top-logprobs",
    "top_logprobs are as many as asked for, in order, and are log probabilities",
    finds="alternatives of another position, or scores that are no probabilities",
    needs=("logprobs",),
)
def top_logprobs(subject: Subject) -> str | None:
    asked = 5
    answer = subject.ask(SHORT, max_tokens=4, logprobs=True, top_logprobs=asked)
    for token in answer.tokens or ():
        values = [value for _, value in token.top]
        # vLLM adds the token that was chosen where it is not among the best.
        require(asked <= len(values) <= asked + 1, f"{asked} alternatives", len(values), answer)
        require(values == sorted(values, reverse=True), "the most likely first", values, answer)
        total = sum(math.exp(value) for value in values)
        require(total <= 1 + ROUNDING, "probabilities of at most 1 together", total, answer)
        require(token.logprob <= ROUNDING, "a log probability", token.logprob, answer)
        own = dict(token.top).get(token.text)
        close = own is None or abs(own - token.logprob) < ROUNDING
        require(close, f"logprob {token.logprob} among the alternatives too", own, answer)
    return None


@case(
    "accounting.speculation",
    "figures about speculation are possible ones",
    finds="rates above 1, steps off by one, histograms that do not add up",
    seen=("sglang#23530", "sglang#11572", "vllm#24322"),
)
def speculation(subject: Subject) -> str | None:
    fields = reported.fields_that_ask(subject.entry)
    seen: dict[str, Any] = {}
    for whole in subject.both():
        bound = whole.request.body["max_tokens"]
        answer = subject.ask(subject.prompt_of(whole), max_tokens=bound, **fields)
        figures = reported.read(answer)
        seen |= figures
        for problem in reported.problems(figures, answer.count("completion_tokens")):
            raise Failed(problem, shown(figures), answer.request)
    if not seen:
        raise NotApplicable("the server says nothing about speculation")
    shown_ones = ((name, seen[name]) for name in reported.SHOWN if name in seen)
    return ", ".join(f"{name} {value:.3g}" for name, value in shown_ones)


def _diff(wanted: list[str], came: list[str]) -> str:
    pairs = enumerate(zip(wanted, came, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(wanted), len(came)))
    return f"{len(came)} entries, from number {at} on {came[at : at + 3]}"

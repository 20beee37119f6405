"""When two outputs of greedy decoding are the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.run import Answer

#: Two float32 computations of one distribution, in batches of different shapes, differ by far less;
#: where the target's two best tokens lie closer than this, either is its choice.
TIE = 1e-3


def assert_same(answers: Sequence[Answer], references: Sequence[Answer]) -> None:
    """Each answer equals the plain decoding of its prompt, up to ties of the target."""
    assert len(answers) == len(references)
    for number, (answer, reference) in enumerate(zip(answers, references, strict=True)):
        assert answer.error is None, f"request {number}: {answer.error}"
        if (problem := difference(answer.tokens, reference)) is not None:
            raise AssertionError(f"request {number}: {problem}")


def difference(tokens: Sequence[int], reference: Answer) -> str | None:
    """How `tokens` differ from an answer with `top_logprobs_num` >= 2; None if only by a tie."""
    if tokens == reference.tokens:
        return None
    pairs = enumerate(zip(tokens, reference.tokens, strict=False))
    first = next((i for i, (got, want) in pairs if got != want), None)
    if first is None:
        return f"{len(tokens)} tokens instead of {len(reference.tokens)}, equal as far as they go"
    best, second = reference.top_logprobs[first][:2]
    if best[0] - second[0] < TIE:
        return None
    return (
        f"token {first} is {tokens[first]} instead of {reference.tokens[first]}, which the target "
        f"prefers by {best[0] - second[0]:.4f} nats\n got {tokens}\nwant {reference.tokens}"
    )


def shortened(answer: Answer, tokens: int) -> Answer:
    """The beginning of an answer, as `max_new_tokens` or an abort would leave it."""
    return replace(answer, tokens=answer.tokens[:tokens])


def assert_promotions_are_what_the_logprobs_show(answer: Answer, kappa: float) -> None:
    """Every token is the target's best, or a reported promotion of a margin above kappa."""
    promoted = {entry["position"]: entry["margin"] for entry in answer.own["promotions"]}
    assert len(promoted) == answer.own["num_promoted_tokens"]
    shown = {
        position: math.exp(logprob - best[0])
        for position, (logprob, (best, _)) in enumerate(
            zip(answer.logprobs, answer.top_logprobs, strict=True)
        )
        if logprob < best[0] - TIE
    }
    assert set(shown) <= set(promoted)
    for position, margin in promoted.items():
        assert kappa < margin <= 1
        assert math.isclose(margin, shown.get(position, 1.0), abs_tol=2e-3)

"""Two hundred requests of every sort that arrive while others run."""

from __future__ import annotations

import random
from typing import Any

from harness import tiny_models
from harness.run import Request

COUNT = 200
WINDOW = 8  # a request arrives when the one so far before it has begun
REGEX = "[ -dl-~]{12,40}"  # about half of the drafts are illegal
STRICT = ("plain", "stop ids", "stop string", "regex", "penalties")
SORTS = (*STRICT, "sampled", "margin", "margin sampled")


def sort_of(number: int) -> str:
    """What request `number` is about."""
    return SORTS[number % len(SORTS)]


def requests() -> list[Request]:
    """All of them; about one in fifteen is aborted after some tokens."""
    made = [_request(number) for number in range(COUNT)]
    for number, request in enumerate(made):
        rng = random.Random(f"arrival {number}")
        if number >= WINDOW:
            request["after"] = [number - WINDOW, rng.randrange(1, 4)]
        if number % 15 == 7:
            request["abort_at"] = rng.randrange(1, 12)
    return made


def aborted(number: int) -> bool:
    return number % 15 == 7


def references() -> list[Request]:
    """Those that plain decoding must answer alike, in the same order."""
    return [_request(number) for number in range(COUNT) if sort_of(number) in STRICT]


def _request(number: int) -> Request:
    rng = random.Random(f"request {number}")
    sort = sort_of(number)
    (prompt,) = tiny_models.prompts(1, seed=rng.randrange(40))
    sampling: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": rng.randrange(1, 48)}
    if sort == "stop ids":
        sampling["stop_token_ids"] = [rng.randrange(3, tiny_models.VOCAB) for _ in range(12)]
    elif sort == "stop string":
        sampling["stop"] = [chr(rng.randrange(97, 123)) for _ in range(4)]
    elif sort == "regex":
        sampling["regex"] = REGEX
    elif sort == "penalties":
        sampling |= {
            "frequency_penalty": rng.choice([0.0, 0.7]),
            "presence_penalty": rng.choice([0.0, 1.1]),
            "repetition_penalty": rng.choice([1.0, 1.2]),
            "min_new_tokens": rng.choice([0, 1]),
        }
    if "sampled" in sort:
        sampling |= {
            "temperature": rng.choice([0.6, 1.0, 1.5]),
            "top_p": rng.choice([1.0, 0.8]),
            "top_k": rng.choice([-1, 20]),
            "min_p": rng.choice([0.0, 0.05]),
            "sampling_seed": number,
        }
    if "margin" in sort:
        chosen = rng.choice([0.05, 0.2, 0.5])
        sampling["custom_params"] = {"adaptivespec": {"rule": "margin", "kappa": chosen}}
    return {
        "rid": f"stress {number}",
        "input_ids": prompt,
        "sampling_params": sampling,
        "return_logprob": True,
        "top_logprobs_num": 2,
    }

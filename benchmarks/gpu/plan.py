"""What each engine is asked to do, in which order, and how long it may take.

Five engines run one after another, since they do not fit beside each other:

* ``embedded``: our own engine, one request at a time: plain, strict and margin.
* ``plain``: no speculation; its answers are the reference.
* ``static``: ADAPTIVESPEC with one triple.
* ``dcs``: ADAPTIVESPEC with the default policy.
* ``stock``: SGLang's own EAGLE3 with the triple of ``static``.

A pass is a list of requests.  Passes that check something come first and are needed; passes that
are timed follow, repeat after repeat, as far as the time goes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ENGINES = ("embedded", "plain", "static", "dcs", "stock")
#: Share of the time by engine: what it has to do, and how much it is wanted.
WEIGHTS = {"embedded": 2.0, "plain": 2.0, "static": 3.0, "dcs": 3.0, "stock": 2.0}
KAPPAS = (1.0, 0.5, 0.2, 0.05)
TEMPERATURES = (0.0, 0.7, 0.0, 1.0)


@dataclass(frozen=True)
class Size:
    """How much is asked: tokens an answer, prompts, batch sizes and repeats that are timed.

    ``minimum`` is the fewest seconds in which an engine starts and answers anything.
    """

    prompts: int = 12
    tokens: int = 128
    timed_prompts: int = 6
    timed_tokens: int = 256
    batches: tuple[int, ...] = (1, 16)
    repeats: int = 3
    minimum: float = 40.0


CUDA = Size()
CPU = Size(
    prompts=3, tokens=24, timed_prompts=1, timed_tokens=16, batches=(1, 3), repeats=1, minimum=30.0
)


@dataclass
class Pass:
    """Requests that are sent ``batch`` at a time; ``needed`` ones are not dropped for time."""

    name: str
    requests: list[dict[str, Any]]
    batch: int
    top_logprobs: int = 0
    needed: bool = True
    timed: dict[str, Any] | None = field(default=None)


def allot(remaining: float, weights: Sequence[float], minimum: float) -> tuple[float, float]:
    """Seconds for the first of the engines left: (enough, most).

    After ``enough`` it begins no pass that is not needed; at ``most`` it is stopped.  What it
    leaves goes to those behind it.  It may overrun its share, for a first start compiles kernels,
    but not so far that those behind it cannot start.
    """
    enough = remaining * weights[0] / sum(weights)
    most = remaining - minimum * (len(weights) - 1)
    return enough, max(enough, min(2 * enough, most))


def passes(engine: str, size: Size, kappa: float, seed: int = 0) -> list[Pass]:
    """What ``engine`` does, in order; the first pass warms it up."""
    margins = {"plain": [None], "stock": [None]}.get(engine, [1.0, kappa])
    rng = random.Random(f"{seed} {engine}")  # noqa: S311
    if engine == "embedded":
        return _embedded(size, kappa, rng)
    work = [Pass("warm-up", _requests(max(size.batches), 8, margins[-1:]), max(size.batches))]
    every = size.prompts
    if engine == "plain":
        work.append(Pass("alone", _requests(every, size.tokens), 1, top_logprobs=2))
        work.append(Pass("together", _requests(every, size.tokens), every))
    if engine == "stock":
        work.append(Pass("strict", _requests(every, size.tokens), every))
    if engine in ("static", "dcs"):
        work.append(Pass("strict", _requests(every, size.tokens, [1.0]), every))
        margin = _requests(every, size.tokens, [kappa])
        work.append(Pass("margin", margin, every, top_logprobs=2))
    if engine == "static":
        mixed = _requests(min(every, 2 * len(KAPPAS)), size.tokens, KAPPAS)
        work.append(Pass("kappas together", mixed, len(mixed), top_logprobs=2))
        work.append(Pass("kappas alone", mixed, 1, top_logprobs=2))
    if engine == "dcs":
        mixed = _requests(every, size.tokens, [1.0], TEMPERATURES)
        work.append(Pass("temperatures", mixed, every))
    return work + _timed(size, margins, rng)


def _embedded(size: Size, kappa: float, rng: random.Random) -> list[Pass]:
    """What our engine does: every request alone, and in turn plain, strict and with the margin."""
    arms = [None, 1.0, kappa]
    every, tokens = size.prompts, size.tokens
    mixed = _requests(every, tokens, [1.0], TEMPERATURES)
    return [
        Pass("warm-up", _requests(len(arms), tokens, arms), 1),
        Pass("alone", _requests(every, tokens), 1, top_logprobs=2),
        Pass("strict", _requests(every, tokens, [1.0]), 1),
        Pass("margin", _requests(every, tokens, [kappa]), 1, top_logprobs=2),
        Pass("temperatures", mixed, 1),
        *_timed(replace(size, batches=(1,)), arms, rng),
    ]


def _timed(size: Size, margins: Sequence[float | None], rng: random.Random) -> list[Pass]:
    """Every arm at every batch size, shuffled anew in each repeat."""
    cells = [(kappa, batch) for kappa in margins for batch in size.batches]
    work = []
    for repeat in range(size.repeats):
        for kappa, batch in rng.sample(cells, len(cells)):
            requests = _requests(max(batch, size.timed_prompts), size.timed_tokens, [kappa])
            label = {"kappa": kappa, "batch": batch, "repeat": repeat}
            name = f"timed, kappa {kappa}, batch {batch}, repeat {repeat + 1}"
            work.append(Pass(name, requests, batch, needed=False, timed=label))
    return work


def _requests(
    count: int,
    tokens: int,
    kappas: Sequence[float | None] = (None,),
    temperatures: Sequence[float] = (0.0,),
) -> list[dict[str, Any]]:
    """Requests for the first ``count`` prompts; settings are dealt out in turn."""
    requests = []
    for which in range(count):
        kappa = kappas[which % len(kappas)]
        temperature = temperatures[which % len(temperatures)]
        parameters: dict[str, Any] = {"temperature": temperature, "max_new_tokens": tokens}
        if kappa is not None:
            parameters["custom_params"] = {"adaptivespec": {"kappa": kappa}}
        requests.append({"prompt": which, "sampling_params": parameters})
    return requests


def engine_arguments(
    engine: str, target: str, draft: str, triple: Sequence[int], device: str, size: Size
) -> dict[str, Any]:
    """Keyword arguments of ``sglang.Engine``, and of ours."""
    if engine == "embedded":
        return {"model": target, "draft_model": draft, "device": device, "policy": "dcs"}
    most = max(size.prompts, *size.batches)
    arguments: dict[str, Any] = {
        "model_path": target,
        "random_seed": 0,
        "log_level": "info",
        "max_running_requests": most,
    }
    if device == "cpu":  # the torch backend, and no more memory than a small machine has
        arguments |= {
            "device": "cpu",
            "dtype": "float32",
            "attention_backend": "torch_native",
            "prefill_attention_backend": "intel_amx",
            "decode_attention_backend": "intel_amx",
            "disable_cuda_graph": True,
            "mem_fraction_static": 0.2,
            "max_total_tokens": 8192,
        }
    else:
        arguments |= {"dtype": "bfloat16", "cuda_graph_max_bs_decode": most}
    if engine != "plain":
        steps, topk, nodes = triple
        arguments |= {
            "speculative_algorithm": "EAGLE3" if engine == "stock" else "ADAPTIVESPEC",
            "speculative_draft_model_path": draft,
            "speculative_num_steps": steps,
            "speculative_eagle_topk": topk,
            "speculative_num_draft_tokens": nodes,
        }
        if device == "cpu":
            arguments["speculative_draft_attention_backend"] = "intel_amx"
    return arguments


def plugin_configuration(engine: str, triple: Sequence[int]) -> str | None:
    """ADAPTIVESPEC_CONFIG of an engine: strict, so that every request says its own kappa."""
    policies = {"static": "static:" + ",".join(map(str, triple)), "dcs": "dcs"}
    if engine not in policies:
        return None
    return json.dumps({"rule": "strict", "policy": policies[engine]})

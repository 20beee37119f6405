"""lm-eval's requests in our terms, and the guard of its cache of answers. Needs no lm-eval."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch

from adaptivespec.core.errors import ConfigError

__all__ = ["STAMP", "continue_from", "device_of", "guard_cache", "sampling_of"]

MAX_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The names that tasks give the bound of an answer."""
WHEN_SAMPLING = ("top_p", "top_k", "min_p", "seed")
ALWAYS = ("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "ignore_eos")
UNASKED_DEVICE = "cuda:0"
"""What lm-eval's command passes when no --device is given."""
STAMP = "adaptivespec"
"""The key under which a cache of answers says whose answers it holds."""

log = logging.getLogger(__name__)


def device_of(asked: str | None, backend: str) -> str:
    """The device of ``Engine.from_pretrained`` for lm-eval's; its default only where it can be."""
    unasked = asked == UNASKED_DEVICE and (backend == "native" or not torch.cuda.is_available())
    return "cpu" if asked is None or unasked else asked


def sampling_of(asked: Mapping[str, Any], max_tokens: int, seed: int) -> dict[str, Any]:
    """Options of ``Engine.generate`` for the generation arguments of a request.

    As in lm-eval, `do_sample` decides: without it a temperature above 0 samples, and where it is
    false the answer is greedy whatever the temperature. Sampling without a temperature is at 1.

    Args:
        asked: `until`, `max_gen_toks` or one of its other names, `do_sample`, `temperature`, and
            whatever else a task sets.
        max_tokens: of answers whose task sets no bound.
        seed: of sampled answers whose task sets none.

    Raises:
        ConfigError: an argument that this engine does not have, or two bounds that differ.
    """
    rest = {name: value for name, value in asked.items() if value is not None}
    options: dict[str, Any] = {"stop": _stop_texts(rest.pop("until", ()))}
    bounds = {rest.pop(name) for name in MAX_TOKENS if name in rest}
    if len(bounds) > 1:
        raise ConfigError(f"are both set, and differ: {sorted(bounds)}", field="max_gen_toks")
    options["max_tokens"] = int(bounds.pop()) if bounds else max_tokens
    temperature = rest.pop("temperature", None)
    sample = rest.pop("do_sample", bool(temperature))
    if not sample:
        if temperature:
            log.warning("do_sample is false: temperature %s is taken as 0", temperature)
        temperature = 0.0
    options["temperature"] = 1.0 if temperature is None else float(temperature)
    options |= {name: rest.pop(name) for name in ALWAYS if name in rest}
    sampled = {name: rest.pop(name) for name in WHEN_SAMPLING if name in rest}
    if options["temperature"] > 0:
        options |= {"seed": seed} | sampled
        options["top_k"] = max(options.get("top_k", 0), 0)  # -1 is "off" in some engines
    if rest.pop("num_beams", 1) != 1 or rest:
        names = ", ".join(sorted(rest)) or "num_beams"
        raise ConfigError(
            "this engine has no such generation argument",
            field=names,
            remedy="It has until, do_sample, temperature, "
            + ", ".join((*MAX_TOKENS, *WHEN_SAMPLING, *ALWAYS)),
        )
    return options


def _stop_texts(until: Any) -> tuple[str, ...]:
    texts = (until,) if isinstance(until, str) else tuple(until)
    return tuple(text for text in texts if text)


def continue_from(rendered: str, last: str) -> str:
    """A rendered conversation up to the end of its last message, for an answer begun already.

    Templates close every message; what is written for the model to go on must be left open.
    """
    start = last.strip()
    at = rendered.rfind(start) if start else -1
    return rendered[: at + len(start)] if at >= 0 else rendered


def guard_cache(answers: MutableMapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Stamp an empty cache of answers with who gives them, or check its stamp.

    lm-eval's key of an answer is the request alone, so that two rules, or two models, that share a
    cache would be given each other's answers.

    Raises:
        ConfigError: it holds answers of another model, rule or policy, or of who knows whom.
    """
    mine = json.dumps(identity, sort_keys=True)
    theirs = answers.get(STAMP)
    if theirs is None and len(answers) == 0:
        answers[STAMP] = mine
    elif theirs != mine:
        whose = "another model, rule or policy" if theirs else "a model that it does not name"
        raise ConfigError(
            f"holds answers of {whose}, and this run would be given them as its own",
            field="use_cache",
            remedy="Give each model, rule and policy a --use_cache path of its own",
        )

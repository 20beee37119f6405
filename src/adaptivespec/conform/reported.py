"""What servers say about speculation, in one set of names, and whether it can be true.

The figures are read where servers put them: this package and vLLM in
``metrics.speculative_decoding``, our plugin in SGLang in ``meta_info.adaptivespec``, SGLang in
``sglext.spec_tokens_details`` and ``meta_info``, llama.cpp in ``timings``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from adaptivespec.conform.answer import Answer

__all__ = ["SHOWN", "fields_that_ask", "problems", "read"]

SHOWN = ("accept_length", "rate", "steps", "drafted", "accepted")
NAMES = {
    "mean_acceptance_length": "accept_length",
    "accept_length": "accept_length",
    "draft_acceptance_rate": "rate",
    "acceptance_rate": "rate",
    "acceptance_histogram": "histogram",
    "num_spec_steps": "steps",
    "num_drafts": "drafts",
    "num_draft_tokens": "drafted",
    "num_accepted_draft_tokens": "accepted",
    "num_promoted_tokens": "promoted",
    "num_committed_tokens": "committed",
    "regret_nats": "regret",
    "lossless": "lossless",
    "spec_verify_ct": "steps",
    "spec_num_correct_drafts": "accepted",
    "spec_num_proposed_drafts": "drafted",
    "spec_correct_drafts_histogram": "histogram",
    "spec_accept_rate": "rate",
    "spec_accept_length": "accept_length",
    "draft_n": "drafted",
    "draft_n_accepted": "accepted",
}
COUNTS = ("steps", "drafts", "drafted", "accepted", "promoted", "committed")
ROUNDING = 1e-6


def fields_that_ask(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without which a server keeps its figures to itself."""
    return {"return_meta_info": True} if entry.get("owned_by") == "sglang" else {}


def read(answer: Answer) -> dict[str, Any]:
    """The figures of one answer that are given and not null."""
    body = _object(answer.body)
    choices = body.get("choices")
    choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
    meta = _object(choice.get("meta_info")) or _object(body.get("meta_info"))
    places = (
        _object(body.get("metrics")).get("speculative_decoding"),
        _object(body.get("sglext")).get("spec_tokens_details"),
        body.get("timings"),
        meta,
        meta.get("adaptivespec"),
    )
    found: dict[str, Any] = {}
    for place in map(_object, places):
        known = {NAMES[name]: value for name, value in place.items() if name in NAMES}
        found |= {name: value for name, value in known.items() if value is not None}
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def problems(figures: Mapping[str, Any], completion_tokens: int) -> Iterator[str]:
    """What is required and does not hold, in words."""
    for name in COUNTS:
        value = figures.get(name, 0)
        if not isinstance(value, int) or value < 0:
            yield f"a count as {name}"
            return
    for name in ("rate", "accept_length"):
        if not isinstance(figures.get(name, 0), (int, float)):
            yield f"a number as {name}"
            return
    steps, drafted = figures.get("steps"), figures.get("drafted")
    accepted, rate = figures.get("accepted"), figures.get("rate")
    if rate is not None and not 0 <= rate <= 1:
        yield "an acceptance rate from 0 to 1"
    if drafted is not None and accepted is not None:
        if accepted > drafted:
            yield "no more accepted than drafted"
        if rate is not None and not math.isclose(rate * drafted, accepted, abs_tol=0.5):
            yield "rate = accepted / drafted"
    if accepted is not None and accepted > completion_tokens:
        yield "no more drafts accepted than tokens emitted"
    if figures.get("promoted", 0) > (accepted if accepted is not None else math.inf):
        yield "no more promoted than accepted"
    if figures.get("promoted") and figures.get("lossless"):
        yield "no promoted token where lossless is said"
    if steps is not None and steps > completion_tokens:
        yield "no more steps than tokens"
    yield from _lengths(figures)
    yield from _histogram(figures)


def _lengths(figures: Mapping[str, Any]) -> Iterator[str]:
    length, steps = figures.get("accept_length"), figures.get("steps")
    if length is None or not steps:
        return
    if length < 1 - ROUNDING:
        yield "an accept length of at least 1"
    committed = figures.get("committed")
    if committed is not None and not math.isclose(length, committed / steps, rel_tol=1e-3):
        yield "accept length = committed tokens / steps"


def _histogram(figures: Mapping[str, Any]) -> Iterator[str]:
    given = figures.get("histogram")
    if given is None:
        return
    try:
        pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
        bars = {int(length): int(count) for length, count in pairs}
    except (TypeError, ValueError):
        yield "a histogram of counts"
        return
    if min([*bars.values(), 0]) < 0:
        yield "a histogram of counts"
    steps, accepted = figures.get("steps"), figures.get("accepted")
    if steps is not None and sum(bars.values()) not in (steps, figures.get("drafts", steps)):
        yield "a histogram with one entry a step"
    weighted = sum(length * count for length, count in bars.items())
    if accepted is not None and weighted != accepted:
        yield "a histogram that adds up to the accepted drafts"

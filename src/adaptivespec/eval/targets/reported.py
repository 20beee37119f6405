"""What servers say about speculation, under the names of ``Statistics.details``.

Four dialects are read, each where its server puts it in a response or in the last chunks of a
stream: ``metrics.speculative_decoding`` (this package and vLLM), ``meta_info.adaptivespec`` (our
plugin in SGLang), ``sglext.spec_tokens_details`` (SGLang itself) and ``timings`` (llama.cpp). A
figure that a server does not give is left out, never made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

__all__ = ["Reported", "merge", "read"]

Reported = dict[str, Any]
"""Figures of ``Statistics.details``; besides, where the server says so, lossless, rule, policy."""

SUMS = (
    "num_spec_steps",
    "num_drafts",
    "num_committed_tokens",
    "num_draft_tokens",
    "num_accepted_draft_tokens",
    "num_promoted_tokens",
    "regret_nats",
)
LISTS = ("accepted_per_pos", "promoted_per_pos")
COUNTS = ("acceptance_histogram", "kind_counts")
RATIOS = ("accept_length", "acceptance_rate", "mean_tree_nodes")
WORDS = ("lossless", "rule", "policy")
KNOWN = (*SUMS, *LISTS, *COUNTS, *RATIOS, *WORDS)
VLLM = {"mean_acceptance_length": "accept_length", "draft_acceptance_rate": "acceptance_rate"}
SGLANG = {
    "spec_verify_ct": "num_spec_steps",
    "spec_num_correct_drafts": "num_accepted_draft_tokens",
    "spec_num_proposed_drafts": "num_draft_tokens",
    "spec_correct_drafts_histogram": "acceptance_histogram",
}


def read(body: Mapping[str, Any], completion_tokens: int) -> Reported:
    """The figures in a response, a chunk, or the extra fields of several put together.

    Args:
        body: its top-level fields, with ``meta_info`` of the choice beside them.
        completion_tokens: of the answer, for servers that count no steps.
    """
    found: Reported = {}
    if details := _within(body, "sglext", "spec_tokens_details"):
        found |= {ours: details[theirs] for theirs, ours in SGLANG.items() if theirs in details}
    if timings := _within(body, "timings"):
        found |= _llama_cpp(timings, completion_tokens)
    for place in (("metrics", "speculative_decoding"), ("meta_info", "adaptivespec")):
        given = _within(body, *place)
        found |= {VLLM.get(name, name): value for name, value in given.items()}
    found = {name: value for name, value in found.items() if name in KNOWN and value is not None}
    return _with_ratios(_normal(found))


def merge(turns: Sequence[Reported]) -> Reported:
    """The figures of several turns as one: counts add up, ratios are taken anew.

    A figure that one of the turns lacks is left out.
    """
    if len(turns) < 2:
        return dict(turns[0]) if turns else {}
    shared = set.intersection(*(set(turn) for turn in turns))
    merged: Reported = {}
    for name in (name for name in KNOWN if name in shared):
        values = [turn[name] for turn in turns]
        if name in SUMS:
            merged[name] = sum(values)
        elif name in LISTS:
            merged[name] = [sum(column) for column in zip_longest(*values, fillvalue=0)]
        elif name in COUNTS:
            keys = dict.fromkeys(key for value in values for key in value)
            merged[name] = {key: sum(value.get(key, 0) for value in values) for key in keys}
        elif name == "lossless":
            merged[name] = all(values)
        elif name in WORDS and len(set(values)) == 1:
            merged[name] = values[0]
    return _with_ratios(merged)


def _within(body: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    value: Any = body
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _llama_cpp(timings: Mapping[str, Any], completion_tokens: int) -> Reported:
    """llama.cpp counts drafts but no steps: a step ends with a token of its own, and the first
    token is the prompt's. Without drafting it does not mention drafts at all.
    """
    if "draft_n" not in timings:
        return {}
    tokens = int(timings.get("predicted_n", completion_tokens))
    accepted = int(timings.get("draft_n_accepted", 0))
    return {
        "num_draft_tokens": int(timings["draft_n"]),
        "num_accepted_draft_tokens": accepted,
        "num_spec_steps": max(tokens - 1 - accepted, 0),
        "num_committed_tokens": max(tokens - 1, 0),
    }


def _normal(found: Reported) -> Reported:
    """Histograms are lists with some servers, objects with others."""
    histogram = found.get("acceptance_histogram")
    if isinstance(histogram, Sequence):
        found["acceptance_histogram"] = {
            str(n): steps for n, steps in enumerate(histogram) if steps
        }
    return found


def _with_ratios(found: Reported) -> Reported:
    """Add the ratios that follow from the counts; 0 steps give None, as in ``Statistics``."""
    steps, drafts = found.get("num_spec_steps"), found.get("num_draft_tokens")
    accepted = found.get("num_accepted_draft_tokens")
    committed = found.get("num_committed_tokens")
    if steps is not None and accepted is not None and committed is None:
        committed = accepted + steps  # vLLM's definition: each step adds a token of the target
    if steps is not None and committed is not None:
        found.setdefault("accept_length", committed / steps if steps else None)
    if accepted is not None and drafts is not None:
        found.setdefault("acceptance_rate", accepted / drafts if drafts else None)
    if steps is not None and drafts is not None:
        found.setdefault("mean_tree_nodes", (drafts + steps) / steps if steps else None)
    return found

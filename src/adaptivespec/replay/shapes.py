"""The fixed shape that pays here: short answers are recorded, and every triple is replayed on them.

What a shape gains depends on the text, so it is measured on texts; what it costs depends on the
machine, so it is read from its profile. Nothing is assumed of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.plan import available_nodes
from adaptivespec.replay.arm import Arm
from adaptivespec.replay.ranking import ranked
from adaptivespec.replay.trace_file import Trace, trace_of

if TYPE_CHECKING:
    from adaptivespec.engine import Engine
    from adaptivespec.engine.weights.progress import ProgressCallback

__all__ = ["PROMPTS", "fixed_shapes", "triples"]

#: Mathematics, code, conversation.
PROMPTS = (
    "A baker sells 24 muffins a day for 3 dollars each. How much does he earn in a week?",
    "Write a Python function that returns the n largest numbers of a list.",
    "What should I see in Lisbon if I have only one afternoon?",
)
#: Tokens of an answer, and (width, depth) of the tree recorded at each of them.
TOKENS, RECORD = 32, (4, 5)
_TOPK = (1, 2, 4)
_NODES = (2, 3, 4, 5, 6, 8, 12, 16)


def triples() -> list[tuple[int, int, int]]:
    """(num_steps, topk, num_draft_tokens) that are tried: those that can use all their steps."""
    return [
        (steps, topk, nodes)
        for steps in range(1, RECORD[1] + 1)
        for topk in _TOPK
        for nodes in _NODES
        if steps < nodes <= available_nodes(steps, topk)
    ]


def fixed_shapes(
    engine: Engine,
    costs: CostProfile,
    prompts: Sequence[str] = PROMPTS,
    *,
    max_tokens: int = TOKENS,
    progress: ProgressCallback | None = None,
) -> list[Arm]:
    """Plain decoding and every fixed triple under strict verification, the quickest first.

    Takes a minute at most with the embedded model: a wide tree is verified at every position.

    Raises:
        ConfigError: the engine has no drafter, or a prompt is empty.
    """
    if engine.drafter is None:
        raise ConfigError(
            f"{engine.model_name} has no drafter, so there is no shape to choose",
            field="suggest",
            remedy="Give draft_model (--draft-model)",
        )
    traces = []
    for done, prompt in enumerate(prompts):
        _report(progress, done, len(prompts))
        traces.append(_recorded(engine, prompt, max_tokens))
    _report(progress, len(prompts), len(prompts))
    shapes = ["static:{},{},{}".format(*triple) for triple in triples()]
    return ranked(traces, ["strict"], ["none", *shapes], [costs])


def _recorded(engine: Engine, prompt: str, max_tokens: int) -> Trace:
    result = engine.generate(prompt, max_tokens=max_tokens, trace=True, record=RECORD)
    params = SamplingParams(max_tokens=max_tokens)
    return trace_of(Path("recorded"), engine, result, params, RECORD)


def _report(progress: ProgressCallback | None, done: int, total: int) -> None:
    from adaptivespec.engine.weights.progress import ProgressEvent

    if progress is not None:
        progress(ProgressEvent("recording answers", done, total))

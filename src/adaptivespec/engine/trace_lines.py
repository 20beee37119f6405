"""The lines of a trace: a header that says what was run, then one JSON object per decode step."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict

from adaptivespec import __version__
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.trace import StepTrace

if TYPE_CHECKING:
    from adaptivespec.engine.engine import Engine
    from adaptivespec.engine.result import GenerationResult
    from adaptivespec.engine.tokens import Tokenizer

__all__ = ["Header", "TraceLines", "header_of"]


class Header(BaseModel):
    """The first line of a trace. Unknown keys are passed over.

    Attributes:
        adaptivespec_trace: version of the format.
        model, draft_model: names; no draft model = None.
        rule, policy, lossless: as in the result of the generation.
        dtype: of the weights.
        temperature: 0 = greedy.
        record_width, record_depth: of the tree drafted at every position; None = no recording.
        prompt_tokens, max_tokens, max_model_len: lengths in tokens.
        stop_ids: ids that end the output.
        protected: ids that are never promoted nor overridden, the stop ids included.
        version: of this package.
        threads: of torch.
        created: UTC time, ISO 8601.
        prompt: its text, template included; None in files that do not say.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    adaptivespec_trace: Literal[1]
    model: str
    draft_model: str | None
    rule: str
    policy: str
    lossless: bool
    dtype: str
    temperature: float
    record_width: int | None
    record_depth: int | None
    prompt_tokens: int
    max_tokens: int
    max_model_len: int
    stop_ids: list[int]
    protected: list[int]
    version: str
    threads: int
    created: str
    prompt: str | None = None


def header_of(
    engine: Engine,
    result: GenerationResult,
    params: SamplingParams,
    record: tuple[int, int] | None = None,
    prompt: Iterable[int] | None = None,
) -> Header:
    """The header of a generation; `record` as in `Engine.job`, `prompt` its token ids."""
    tokenizer = engine.tokenizer
    stop_ids = params.stop_ids(frozenset(tokenizer.eos_token_ids))
    width, depth = record or (None, None)
    return Header(
        adaptivespec_trace=1,
        model=engine.model_name,
        draft_model=engine.head_name or None,
        rule=result.rule,
        policy=result.policy,
        lossless=result.lossless,
        dtype=engine.dtype,
        temperature=0.0 if params.greedy else params.temperature,
        record_width=width,
        record_depth=depth,
        prompt_tokens=result.usage["prompt_tokens"],
        max_tokens=params.max_tokens,
        max_model_len=engine.target.limits.max_model_len,
        stop_ids=sorted(stop_ids),
        protected=sorted(stop_ids | tokenizer.special_ids),
        version=__version__,
        threads=torch.get_num_threads(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        prompt=None if prompt is None else tokenizer.decode(list(prompt), False),
    )


class TraceLines:
    """Makes the steps of one trace readable by themselves.

    Each step gets `texts`, what the token ids in it read as, of those that no earlier step had.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._told: set[int] = set()

    def line(self, step: StepTrace) -> dict[str, Any]:
        """The step as a dictionary of JSON values."""
        nodes = step.nodes or {}
        ids = {*step.tokens, *step.strict, *nodes.get("token", ()), *nodes.get("target", ())}
        fresh = sorted(ids - self._told)
        self._told.update(fresh)
        texts = {str(token): self._tokenizer.token_text(token) for token in fresh}
        return step.to_json() | {"texts": texts}

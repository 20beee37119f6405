"""From the scheduler to ``meta_info["adaptivespec"]`` of the response.

SGLang sends per-token lists with its tokens: at every output it slices each value of
``req.customized_info`` to the tokens it sends, and the tokenizer process concatenates the slices.
Ours stands in for such a list. Its slices are padding but for the last entry, the summary of all
tokens so far; on the other side a hook puts that summary itself into ``meta_info``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the hook runs in processes that need neither
    from adaptivespec.integrations.sglang.metrics import Metrics
    from adaptivespec.integrations.sglang.statistics import RequestStatistics

KEY = "adaptivespec"


def send_statistics(
    req: Any, statistics: RequestStatistics, metrics: Metrics | None = None
) -> None:
    """Have SGLang send ``statistics`` with every output of ``req``, and count it in ``metrics``.

    Args:
        req: SGLang's ``Req``, in the rank that sends outputs.
        statistics: of this request; the rounds of a token are added before it is sent.
        metrics: the process's counters; None when metrics are off.
    """
    if req.customized_info is None:
        req.customized_info = {}
    req.customized_info[KEY] = _Summaries(req, statistics, metrics)


class _Summaries:
    """Sliced once per output, as a list of one entry per output token would be."""

    def __init__(self, req: Any, statistics: RequestStatistics, metrics: Metrics | None) -> None:
        self._req = weakref.ref(req)  # the request owns this object
        self._statistics = statistics
        self._metrics = metrics
        self._counted: Mapping[str, Any] = {}
        self._counted_tokens = 0

    def __getitem__(self, tokens: slice) -> list[dict[str, Any] | None]:
        """One entry per token sent, at least one: an abort ends a request without a new token.

        The promotions are listed with the last output only: with all of them, the outputs of a
        long streamed answer would add up to its square.
        """
        req = self._req()
        finished = req is not None and req.finished()
        num_tokens = max(0, tokens.stop - tokens.start)
        summary = self._statistics.summary(tokens.stop, promotions=finished)
        if self._metrics is not None:
            growth = max(0, tokens.stop - self._counted_tokens)
            self._metrics.advance(self._counted, summary, growth)
            self._counted, self._counted_tokens = summary, self._counted_tokens + growth
            if finished:
                self._metrics.count_request(self._statistics.lossless)
        return [None] * (num_tokens - 1) + [summary]


def attach_statistics(
    original: Callable[..., None],
    manager: Any,
    meta_info: dict[str, Any],
    state: Any,
    customized_info: dict[str, list[Any]],
    index: int,
    finish_reason: dict[str, Any] | None,
) -> None:
    """Hook around ``TokenizerManager.update_request_meta_info``: set ``meta_info["adaptivespec"]``.

    The value is the newest summary of request ``index``; without one there is no such key.
    Everything else in ``customized_info``, which other requests share, is left to SGLang.
    """
    others = {key: values for key, values in customized_info.items() if key != KEY}
    original(manager, meta_info, state, others, index, finish_reason)
    if KEY in customized_info:
        summary = customized_info[KEY][index][-1:]
        if summary and summary[0] is not None:
            meta_info[KEY] = summary[0]

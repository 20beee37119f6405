"""What the plugin keeps of each request, and what a batch of requests looks like on the device."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError
from adaptivespec.integrations.sglang.config import (
    PluginConfig,
    brings_rule,
    margin_options,
    request_options,
)
from adaptivespec.integrations.sglang.margin import MarginRows, TokenClasses
from adaptivespec.integrations.sglang.penalties import Penalties, PenaltyRows, penalties_of
from adaptivespec.integrations.sglang.sampling import SamplingRows, seed_of, upload
from adaptivespec.integrations.sglang.statistics import RequestStatistics
from adaptivespec.integrations.sglang.vocabulary import (
    check_tokenizer,
    digit_ids,
    protected_ids,
    think_ids,
)
from adaptivespec.verify.limits import Ledger
from adaptivespec.verify.margin import MarginOptions, MarginRule

_STATE = "_adaptivespec"  # attribute of SGLang's Req; a client may use a request id twice


@dataclass
class RequestState:
    """One request.

    Attributes:
        options: its rule.
        penalties: its penalties.
        seed: of its random numbers.
        statistics: what happened so far.
        prefilled: its output tokens at the last prefill, which do not include the one that this
            prefill produced; None once the request was admitted to a slot.
    """

    options: MarginOptions
    penalties: Penalties
    seed: int
    statistics: RequestStatistics
    prefilled: list[int] | None


@dataclass(frozen=True, eq=False)
class BatchRows:
    """A batch's parameters on the device, the same for as long as its composition is.

    Attributes:
        prompt_lens: i64[B].
        sampling, margin, penalties: of each request.
    """

    prompt_lens: Tensor
    sampling: SamplingRows
    margin: MarginRows
    penalties: PenaltyRows


class Vocabulary:
    """What the rule must know of the target's tokens.

    Args:
        tokenizer: SGLang's; None when it has none.
        eos_ids: the model's own.
        size: V, the width of the logits.
        device: where the logits are.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Sequence[int], size: int, device: torch.device | str
    ) -> None:
        self.size, self.device = size, device
        self.tokenizer = tokenizer
        protected = self._mask(protected_ids(tokenizer, eos_ids))
        self._classes = TokenClasses(protected, None, think_ids(tokenizer))

    def classes(self, digits: bool) -> TokenClasses:
        """The masks; that of digits is made when the first request needs it."""
        if digits and self._classes.digits is None:
            mask = self._mask(digit_ids(self.tokenizer, self.size) or frozenset())
            self._classes = replace(self._classes, digits=mask)
        return self._classes

    def _mask(self, ids: frozenset[int]) -> Tensor:
        mask = torch.zeros(self.size, dtype=torch.bool)
        mask[[index for index in ids if 0 <= index < self.size]] = True
        return mask.to(self.device)


class Requests:
    """The requests of a scheduler.

    Args:
        config: the server's settings.
        vocabulary: of the target.
        policy: label of the policy, for statistics.
        temperature: the only one that the server's own rule is for; requests of another that bring
            no rule are verified strictly. None: it is for all.
    """

    def __init__(
        self,
        config: PluginConfig,
        vocabulary: Vocabulary,
        policy: str,
        temperature: float | None = None,
    ) -> None:
        check_tokenizer(margin_options(config), vocabulary.tokenizer, "rule_options")
        self._config, self._vocabulary, self._policy = config, vocabulary, policy
        self._temperature = temperature
        self._composition: list[Any] = []
        self._rows: BatchRows | None = None

    def state(self, request: Any) -> RequestState:
        """What is kept of a request of SGLang's, made when it is first seen."""
        state: RequestState | None = getattr(request, _STATE, None)
        if state is None:
            state = self._new_state(request)
            setattr(request, _STATE, state)
        return state

    def prefilled(self, requests: Sequence[Any]) -> list[Any]:
        """Requests are prefilled, for the first time or again; those that are new."""
        new = [request for request in requests if not hasattr(request, _STATE)]
        for request in requests:
            self.state(request).prefilled = list(request.output_ids)
        return new

    def rows(self, requests: Sequence[Any]) -> BatchRows:
        """Parameters of a batch; the last ones again while the batch is the same."""
        same = len(self._composition) == len(requests)
        same = same and all(map(operator.is_, self._composition, requests))
        if self._rows is None or not same:
            self._composition, self._rows = list(requests), self._build(requests)
        return self._rows

    def ledger(self, request: Any, output_ids: Sequence[int]) -> Ledger:
        """What a request has promoted within ``output_ids`` and the token that comes after them."""
        state, known = self.state(request), len(output_ids)
        think = state.options.think_ids or self._vocabulary.classes(digits=False).think_ids
        start = Ledger()
        if state.options.think_only:
            start = Ledger.start(
                MarginRule(state.options).limits, [*request.origin_input_ids, *output_ids], think
            )
        return replace(
            start,
            outputs=known + 1,
            exact_since=state.statistics.exact_since(known),
            charges=type(start.charges)(state.statistics.charges(known)),
        )

    def _build(self, requests: Sequence[Any]) -> BatchRows:
        states = [self.state(request) for request in requests]
        params = [request.sampling_params for request in requests]
        size, device = self._vocabulary.size, self._vocabulary.device
        options = [state.options for state in states]
        classes = self._vocabulary.classes(any(one.protect_digits for one in options))
        prompt_lens = torch.tensor([len(request.origin_input_ids) for request in requests])
        return BatchRows(
            prompt_lens=upload(prompt_lens, device),
            sampling=SamplingRows.of(
                [one.temperature for one in params],
                [one.top_k for one in params],
                [one.top_p for one in params],
                [one.min_p for one in params],
                [state.seed for state in states],
                size,
                device,
            ),
            margin=MarginRows.of(options, [one.stop_token_ids or () for one in params], classes),
            penalties=PenaltyRows.of([state.penalties for state in states], size, device),
        )

    def _new_state(self, request: Any) -> RequestState:
        options = self._options(request)
        rule, params = MarginRule(options), request.sampling_params
        seed = getattr(params, "sampling_seed", None)
        return RequestState(
            options=options,
            penalties=penalties_of(request),
            seed=seed_of(request.rid, self._config.seed) if seed is None else seed,
            statistics=RequestStatistics(
                rule=rule.label, policy=self._policy, lossless=rule.lossless
            ),
            prefilled=list(request.output_ids)[:-1],
        )

    def _options(self, request: Any) -> MarginOptions:
        """A request's rule. One that cannot be served ends with an error that says why."""
        params = request.sampling_params
        try:
            options = request_options(params.custom_params, self._config)
            if not (brings_rule(params.custom_params) or self._covered(params)):
                return MarginOptions(**MarginRule.presets["strict"])
            check_tokenizer(options, self._vocabulary.tokenizer, "custom_params.adaptivespec")
        except ConfigError as error:
            from sglang.srt.managers.schedule_batch import FINISH_ABORT

            request.to_finish = FINISH_ABORT(str(error), 400, "BadRequestError")
            return MarginOptions(**MarginRule.presets["strict"])
        return options

    def _covered(self, params: Any) -> bool:
        """Whether the server's own rule is for a request of these sampling parameters."""
        greedy = params.top_k == 1  # SGLang turns temperature 0 into top_k 1
        return self._temperature in (None, 0.0 if greedy else params.temperature)

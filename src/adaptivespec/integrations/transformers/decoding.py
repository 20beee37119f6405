"""The callable that ``model.generate(custom_generate=...)`` hands over to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from adaptivespec.core.commit import StopState
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.stats import Statistics
from adaptivespec.draft.base import Drafter
from adaptivespec.draft.eagle3_checkpoint import Eagle3Checkpoint
from adaptivespec.engine.loop import Decoder
from adaptivespec.engine.request import Request, Step
from adaptivespec.engine.session import Session
from adaptivespec.integrations.transformers.arguments import (
    caller_of,
    check_arguments,
    check_rule,
    prompts_of,
    protected_ids,
)
from adaptivespec.integrations.transformers.drafters import drafter_of, target_of
from adaptivespec.integrations.transformers.sampler import HostSampler
from adaptivespec.integrations.transformers.stopping import Stops
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Policy
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import Rule, VerifyState

if TYPE_CHECKING:
    from transformers.generation.streamers import BaseStreamer


def generate(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    streamer: BaseStreamer | None = None,
    draft_model: str | Path | Eagle3Checkpoint | Drafter[Any] | None = None,
    rule: str | Rule | None = None,
    kappa: float | None = None,
    rule_options: Mapping[str, Any] | None = None,
    policy: str | Policy = "auto",
    policy_options: Mapping[str, Any] | None = None,
    **model_kwargs: Any,
) -> Any:
    """Decode speculatively; the first six arguments are those that transformers hands over.

    Logits processors and warpers are run for every node of a draft tree on the node's own prefix,
    stopping criteria on every committed token in turn: what comes after a stop never exists. With
    the default rule greedy output is that of ``model.generate`` itself, and sampled output has its
    law. Random numbers come from torch's generator, so ``torch.manual_seed`` makes them repeat.

    Args:
        draft_model: an EAGLE-3 head made for this model (a directory, a hub id, a checkpoint, or a
            drafter of ``load_drafter``), "ngram", or "HEAD+ngram". None decodes plainly.
        rule: as for ``Engine.generate``; None is "strict", or "margin" where kappa is given.
        kappa: threshold of the margin rule; ``rule_options`` for everything else of a rule.
        policy: as for ``Engine.generate``; "auto" is "dcs" with a drafter, else "none".
            ``policy_options`` for its options.

    Returns:
        i64[rows, L], prompts and answers, padded as transformers pads; with return_dict_in_generate
        a GenerateDecoderOnlyOutput that also has accept_length, lossless, rule, policy, statistics.

    Raises:
        ConfigError: an argument of transformers that cannot be honoured here, or one of ours that
            is wrong; it names the argument.
        CheckpointError, ModelNotFoundError: the head is not one, or not for this model.
        NumericalError: the processed logits of a node are not finite.
    """
    caller = caller_of(model)
    streamer = streamer if streamer is not None else caller.get("streamer")
    check_arguments(model, generation_config, caller, streamer, input_ids.shape[0], model_kwargs)
    chosen_rule = make_rule(rule or ("strict" if kappa is None else "margin"), rule_options, kappa)
    max_length = int(generation_config.max_length)
    target = target_of(model)
    drafter = drafter_of(model, draft_model)
    if policy == "auto" and not policy_options:
        policy = "none" if drafter is None else "dcs"
    chosen_policy = make_policy(policy, policy_options)
    sampling = bool(generation_config.do_sample)
    check_rule(chosen_rule, chosen_policy, sampling, drafter is not None)
    chosen_rule.check_target(str(getattr(model.config, "_name_or_path", "")))

    rows, width = input_ids.shape
    prompts = prompts_of(input_ids, model_kwargs)
    seeds = torch.randint(2**63 - 1, (rows,)).tolist() if sampling else [0] * rows
    temperature = (generation_config.temperature or 1.0) if sampling else 0.0
    vocab = target.limits.vocab_size
    protected = torch.zeros(vocab, dtype=torch.bool)
    protected[protected_ids(generation_config, vocab)] = True
    protected = protected.to(target.device)
    session = Session(target, drafter)
    answers = []
    for row, prompt in enumerate(prompts):
        params = SamplingParams(
            temperature=temperature, seed=seeds[row], max_tokens=max_length - width
        )
        stops = Stops(stopping_criteria, input_ids, row)
        request = Request(
            prompt=prompt,
            params=params,
            rule=chosen_rule,
            policy=chosen_policy,
            # `commit` asks of each token in turn whether it is among them: here, the criteria.
            stop=StopState(
                lambda ids: "",
                stop_ids=cast("frozenset[int]", stops),
                max_tokens=params.max_tokens,
            ),
            eos_ids=frozenset(),
            protected=protected,
        )
        sampler = HostSampler(logits_processor, input_ids, row, params, vocab)
        answers.append(_answer(_HostDecoder(session, request, sampler), streamer))
    if streamer is not None:
        streamer.end()
    sequences = _padded(input_ids, answers, generation_config)
    if not generation_config.return_dict_in_generate:
        return sequences
    from adaptivespec.integrations.transformers.output import SpeculativeOutput

    statistics = Statistics()
    for answer in answers:
        statistics.merge(answer.statistics)
    return SpeculativeOutput(
        sequences=sequences,
        accept_length=statistics.accept_length,
        lossless=chosen_rule.lossless,
        rule=chosen_rule.label,
        policy=chosen_policy.label,
        statistics=statistics.as_dict(),
    )


@dataclass
class _Answer:
    """The tokens after one row's prompt, an ending EOS included, and how they came about."""

    tokens: list[int] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)

    def add(self, step: Step, streamer: BaseStreamer | None) -> None:
        self.tokens.extend(step.verdict.tokens)
        if step.trace is not None:
            self.statistics.add(step.trace)
        if streamer is not None:
            for token in step.verdict.tokens:
                streamer.put(torch.tensor([token]))


class _HostDecoder(Decoder):
    """The decode loop with transformers' processors in the place of our own sampler."""

    def __init__(self, session: Session, request: Request, sampler: HostSampler) -> None:
        super().__init__(session, request)
        self.sampler = sampler
        self.state = VerifyState(request.protected, sampler, self.ledger)


def _answer(decoder: Decoder, streamer: BaseStreamer | None) -> _Answer:
    answer = _Answer()
    step = decoder.read()
    if step is None:  # all of the prompt is read at once
        raise ValueError("the prompt was not read to its end")
    answer.add(step, streamer)
    while not decoder.finished:
        tree = decoder.draft()
        answer.add(decoder.settle(decoder.session.verify(tree)), streamer)
    return answer


def _padded(input_ids: Tensor, answers: list[_Answer], config: Any) -> Tensor:
    """i64[rows, L]: prompts with their answers, shorter ones filled with the pad token."""
    longest = max(len(answer.tokens) for answer in answers)
    pad = config._pad_token_tensor
    if pad is None:
        if any(len(answer.tokens) < longest for answer in answers):
            raise ConfigError(
                "rows end at different lengths and there is nothing to fill them with",
                field="pad_token_id",
                remedy="Give pad_token_id",
            )
        pad = torch.zeros(())
    shape = input_ids.shape[0], longest
    filled = torch.full(shape, int(pad), dtype=input_ids.dtype, device=input_ids.device)
    for row, answer in enumerate(answers):
        tokens = torch.tensor(answer.tokens, dtype=input_ids.dtype, device=input_ids.device)
        filled[row, : len(answer.tokens)] = tokens
    return torch.cat([input_ids, filled], -1)

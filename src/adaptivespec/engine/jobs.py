"""From what a caller asks for to what the loop runs, and from its steps to the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from adaptivespec.core.commit import StopState, flush
from adaptivespec.core.errors import ConfigError, ContextLengthError, PromptError
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.engine.recording import recording_plan
from adaptivespec.engine.request import Request, Step
from adaptivespec.engine.result import Chunk, GenerationResult, TokenInfo
from adaptivespec.engine.target import PrefillProgress
from adaptivespec.engine.weights.progress import READING, ProgressCallback, ProgressEvent
from adaptivespec.policy.base import Policy
from adaptivespec.verify import make_rule
from adaptivespec.verify.base import Rule
from adaptivespec.verify.limits import Ledger

if TYPE_CHECKING:
    from adaptivespec.engine.engine import Engine

#: Alternatives per token that may be asked for.
MOST_TOP_LOGPROBS = 20


@dataclass
class Job:
    """A request that was checked, and the result that fills as it is answered.

    `token_text` is what one token reads as on its own.  `follows_load` allows that less is drafted
    than the policy wants where the job shares passes with others.
    """

    request: Request
    result: GenerationResult
    token_text: Callable[[int], str]
    follows_load: bool = True


class Answer:
    """Collects the steps of one job into its result, and makes chunks of them."""

    def __init__(self, job: Job) -> None:
        self.job, self.result = job, job.result
        self._stop: StopState | None = job.request.stop

    def add(self, step: Step) -> Chunk:
        """Count a step; what it made safe to show. The last chunk brings the result."""
        result, commit = self.result, step.commit
        shown = len(commit.tokens)  # without an ending EOS
        tokens = self._infos(step, shown)
        self._stop = commit.state
        result.text += commit.text
        result.token_ids.extend(commit.tokens)
        result.tokens.extend(tokens)
        result.completion_tokens += commit.kept
        if step.trace is None:
            result.times.prefill_s += step.seconds
        else:
            result.stats.add(step.trace)
            seconds = step.trace.seconds
            result.times.draft_s += seconds["draft"]
            result.times.verify_s += seconds["verify"]
            result.times.host_s += seconds["host"]
            if result.trace is not None:
                result.trace.append(step.trace)
        if step.finish is None:
            return Chunk(commit.text, tokens, step.trace)
        result.finish_reason = step.finish
        result.matched_stop = commit.matched_stop
        return Chunk(commit.text + self.flush(), tokens, step.trace, result)

    def flush(self) -> str:
        """Release held-back text, once."""
        rest = flush(self._stop) if self._stop is not None else ""
        self._stop = None
        self.result.text += rest
        return rest

    def _infos(self, step: Step, shown: int) -> list[TokenInfo]:
        done, text = step.verdict, self.job.token_text
        logprobs: Sequence[float | None] = step.logprobs or [None] * len(done.tokens)
        tops = step.top_logprobs or [[] for _ in done.tokens]
        rows = zip(done.tokens[:shown], done.kinds, done.margins, logprobs, tops, strict=False)
        return [
            TokenInfo(token, text(token), kind, margin, logprob, tuple(top))
            for token, kind, margin, logprob, top in rows
        ]


def make_job(
    engine: Engine,
    prompt: str | Sequence[int],
    *,
    raw: bool = False,
    rule: str | Rule = "strict",
    kappa: float | None = None,
    rule_options: Mapping[str, Any] | None = None,
    policy: str | Policy = "auto",
    policy_options: Mapping[str, Any] | None = None,
    logprobs: bool = False,
    top_logprobs: int = 0,
    trace: bool = False,
    record: tuple[int, int] | None = None,
    progress: ProgressCallback | None = None,
    **sampling: Any,
) -> Job:
    """Check a request, to be answered by `Stream` or together with others.

    Args:
        prompt: text, put into the model's chat template unless `raw`, or token ids as they are.
        rule: "strict" (the default, lossless), "margin", a preset ("paper", "safe"), a spelling
            such as "margin:0.2", or a Rule.
        kappa: threshold of the margin rule; `rule_options` for everything else of a rule.
        policy: "auto", "none", "chain", "static", "eagle2", "dcs", a spelling such as
            "static:5,4,16", or a Policy, with `policy_options`.
        logprobs: give the target's log probability of every token.
        top_logprobs: and that of so many likeliest ones at its place, at most 20.
        trace: keep a record of every step, trees included, in the result.
        record: (width, depth) of a tree drafted at every position, for replay; needs `trace`.
        progress: called with ProgressEvent while the prompt is read.
        sampling: fields of SamplingParams: max_tokens, temperature, top_p, top_k, min_p, seed,
            stop, penalties and so on.

    Raises:
        PromptError, ContextLengthError: the prompt is empty or does not fit.
        ConfigError: an option is unknown or out of bounds.
    """
    params = _params(sampling)
    if not 0 <= top_logprobs <= MOST_TOP_LOGPROBS:
        raise ConfigError(
            f"must be an integer in [0, {MOST_TOP_LOGPROBS}], got {top_logprobs}",
            field="top_logprobs",
        )
    ids = _prompt_ids(engine, prompt, raw)
    chosen_rule = make_rule(rule, rule_options, kappa)
    plan = None
    if record is not None:
        plan = recording_plan(record, chosen_rule, params, policy, trace)
        policy = "static:{},{},{}".format(*plan.triple)  # says what is drafted; needs a drafter
    chosen_policy = engine.make_policy(policy, policy_options)
    _check_rule(chosen_rule, params, chosen_policy)
    chosen_rule.check_target(engine.model_name)
    Ledger.start(chosen_rule.limits, ids, engine.tokenizer.think_ids)  # raises where it cannot be
    if isinstance(policy, str):  # a ready-made Policy brings its own memory
        engine.remember(chosen_policy, chosen_rule)
    if chosen_policy.needs_costs and chosen_policy.costs is None:
        chosen_policy.costs = engine.costs()
    vocab = engine.target.limits.vocab_size
    params.check_ids(vocab)
    eos = frozenset(engine.tokenizer.eos_token_ids)
    stop_ids = params.stop_ids(eos)
    device = engine.target.device
    wants_digits = getattr(chosen_rule.options, "protect_digits", False)
    request = Request(
        prompt=ids,
        params=params,
        rule=chosen_rule,
        policy=chosen_policy,
        stop=StopState.start(params, eos, engine.tokenizer.decode),
        eos_ids=eos,
        protected=(engine.special | mask_of(vocab, stop_ids)).to(device),
        digits=mask_of(vocab, engine.tokenizer.digit_ids).to(device) if wants_digits else None,
        think_ids=engine.tokenizer.think_ids,
        logprobs=logprobs or top_logprobs > 0,
        top_logprobs=top_logprobs,
        record_nodes=trace,
        record_plan=plan,
        progress=_reading(progress),
    )
    result = GenerationResult(
        rule=chosen_rule.label,
        policy=chosen_policy.label,
        lossless=chosen_rule.lossless,
        prompt_tokens=len(ids),
        trace=[] if trace else None,
    )
    return Job(request, result, engine.tokenizer.token_text)


def _prompt_ids(engine: Engine, prompt: str | Sequence[int], raw: bool) -> list[int]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise PromptError("is empty", field="prompt", remedy="Give some text")
        if raw or not engine.tokenizer.has_chat_template:
            ids = engine.tokenizer.encode(prompt)
        else:
            message = {"role": "user", "content": prompt}
            ids = engine.tokenizer.apply_chat_template([message])
    else:
        ids = list(prompt)
        vocab = engine.target.limits.vocab_size
        wrong = [i for i in ids if not isinstance(i, int) or not 0 <= i < vocab]
        if wrong:
            raise PromptError(f"token id {wrong[0]!r} is not in [0, {vocab})", field="prompt")
    limit = engine.target.limits.max_model_len
    if not ids:
        raise PromptError("is empty", field="prompt", remedy="Give at least one token")
    if len(ids) >= limit:
        raise ContextLengthError(
            f"has {len(ids)} tokens; with at least one token of answer it must fit into {limit}",
            field="prompt",
            remedy="Shorten it, or raise max_model_len up to the model's own limit",
        )
    return ids


def _reading(progress: ProgressCallback | None) -> PrefillProgress | None:
    if progress is None:
        return None
    return lambda done, total: progress(ProgressEvent(READING, done, total))


def _check_rule(rule: Rule, params: SamplingParams, policy: Policy) -> None:
    """Raise ConfigError where a rule is not defined for the temperature or the trees."""
    if not (rule.sampling or params.greedy):
        raise ConfigError(
            f"rule '{rule.name}' is defined at temperature 0 only",
            field="temperature",
            remedy="Set temperature to 0, or use another rule",
        )
    check_shape(rule, policy)


def check_shape(rule: Rule, policy: Policy) -> None:
    """Raise ConfigError where a rule draws its drafts and the trees depend on what is drawn."""
    if rule.sampled_drafts and policy.needs_draft and not policy.fixed_shape:
        raise ConfigError(
            f"rule '{rule.name}' draws its drafts, so the shape of a tree must not depend on them, "
            f"and that of '{policy.label}' does",
            field="policy",
            remedy="Use chain (without an early stop), medusa or sequoia",
        )


def _params(sampling: Mapping[str, Any]) -> SamplingParams:
    names = SamplingParams.__dataclass_fields__
    unknown = [name for name in sampling if name not in names]
    if unknown:
        raise ConfigError("is no option", field=unknown[0], remedy=f"Options: {', '.join(names)}")
    return SamplingParams(**sampling)


def mask_of(size: int, ids: frozenset[int]) -> torch.Tensor:
    """bool[size], true at the ids that are below it."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[[i for i in ids if i < size]] = True
    return mask

"""Sampling parameters, and the sampler that turns raw logits of a tree into the target's law.

Meanings follow vLLM: presence and frequency penalties count output tokens, the repetition penalty
counts prompt and output, and logit bias and min_tokens come before the penalties.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptivespec.core.errors import ConfigError, NumericalError
from adaptivespec.core.law import Law, filtered, greedy_law, sampled_law
from adaptivespec.core.tree import DraftTree

_SEED_MASK = 2**64 - 1
_UNIFORM_BLOCK = 256  # output positions whose random numbers are drawn at once


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen and when to stop. Every bound is checked; ConfigError names the field.

    Attributes:
        temperature: 0 = greedy.
        top_p: mass of the nucleus, in (0, 1].
        top_k: 0 = off; 1 = greedy.
        min_p: smallest share of the largest probability, in [0, 1].
        repetition_penalty: divides positive and multiplies negative logits of tokens seen; 1 = off.
        presence_penalty, frequency_penalty: subtracted once, and per occurrence, in [-2, 2].
        logit_bias: token id -> number in [-100, 100] added to its logit.
        seed: any integer; None = a fresh one for each request.
        max_tokens: most tokens to produce, an ending EOS included.
        min_tokens: nothing stops the output before this many tokens.
        stop: strings that end the output and are cut from it.
        stop_token_ids: ids that end the output, besides the model's own EOS ids.
        ignore_eos: treat EOS as any other token.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        _number("temperature", self.temperature, low=0.0)
        _number("top_p", self.top_p, low=0.0, high=1.0, low_open=True)
        _integer("top_k", self.top_k, low=0)
        _number("min_p", self.min_p, low=0.0, high=1.0)
        _number("repetition_penalty", self.repetition_penalty, low=0.0, low_open=True)
        _number("presence_penalty", self.presence_penalty, low=-2.0, high=2.0)
        _number("frequency_penalty", self.frequency_penalty, low=-2.0, high=2.0)
        if self.seed is not None:
            _integer("seed", self.seed)
        _integer("max_tokens", self.max_tokens, low=1)
        _integer("min_tokens", self.min_tokens, low=0, high=self.max_tokens)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise ConfigError(f"must hold non-empty strings, got {text!r}", field="stop")
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, low=0)
        if self.logit_bias is not None:
            object.__setattr__(self, "logit_bias", dict(self.logit_bias))
            for token, bias in self.logit_bias.items():
                _integer("logit_bias", token, low=0)
                _number(f"logit_bias[{token}]", bias, low=-100.0, high=100.0)

    @property
    def greedy(self) -> bool:
        """True when the argmax is taken and no random number is drawn."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        """True when logits depend on the tokens before them beyond what the model saw."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def check_ids(self, vocab_size: int) -> None:
        """ConfigError when a token id lies outside a vocabulary of `vocab_size`."""
        _ids("stop_token_ids", self.stop_token_ids, vocab_size)
        _ids("logit_bias", list(self.logit_bias or ()), vocab_size)

    def stop_ids(self, eos_ids: frozenset[int]) -> frozenset[int]:
        """Every token id that ends the output."""
        return frozenset(self.stop_token_ids) | (frozenset() if self.ignore_eos else eos_ids)


class Sampler:
    """One request's sampler: its penalties, its masks and its two random streams.

    The request's stream holds one uniform number for each output position, shared by all nodes of
    one depth. So the tokens of a seeded request do not depend on the trees that were drafted, and
    plain decoding and strict verification agree token for token at any temperature. Promotions draw
    from a stream of their own. At temperature 0 neither stream is ever created.

    Args:
        params: checked sampling parameters.
        vocab_size: V, the width of the logits.
        eos_ids: the model's own end ids.
        prompt_ids: the prompt, for the repetition penalty.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        eos_ids: frozenset[int],
        prompt_ids: Sequence[int],
    ) -> None:
        self.params = params
        self.vocab_size = vocab_size
        self.stop_ids = params.stop_ids(eos_ids)
        seed = secrets.randbits(64) if params.seed is None else params.seed & _SEED_MASK
        self._seed = seed
        self._uniform = torch.empty(0, dtype=torch.float64)
        self._generator: torch.Generator | None = None
        self._promotions: torch.Generator | None = None
        self._drafts: torch.Generator | None = None
        self._banned = _ids("stop_token_ids", sorted(self.stop_ids), vocab_size)
        bias = params.logit_bias or {}
        self._bias_ids = _ids("logit_bias", list(bias), vocab_size)
        self._bias = torch.tensor(list(bias.values()), dtype=torch.float32)
        self._prompt_counts: Tensor | None = None
        if params.repetition_penalty != 1:
            self._prompt_counts = _counts(prompt_ids, vocab_size)

    def law(self, logits: Tensor, tree: DraftTree, output_ids: Sequence[int], step: int) -> Law:
        """What the target says at every node of an unbatched tree.

        Args:
            logits: [N, V], raw. The root's row predicts output position len(output_ids), the row of
                a node at depth d position len(output_ids) + d.
            tree: the N nodes; the root is the last token of prompt + output.
            output_ids: tokens committed so far.
            step: the decode step, for error messages.

        Raises NumericalError, with step and node, on NaN, on +inf and on a row that is all -inf.
        """
        if logits.shape != (tree.num_nodes, self.vocab_size):
            want = (tree.num_nodes, self.vocab_size)
            raise ValueError(f"logits must have shape {want}, got {tuple(logits.shape)}")
        z = self._process(logits, tree, output_ids)
        if self.params.greedy:
            law = greedy_law(z)
        else:
            p = self.params
            uniform = self._uniforms(tree, len(output_ids))
            law = sampled_law(z, uniform, p.temperature, p.top_k, p.top_p, p.min_p)
        if not math.isfinite(float(law.peak.sum())):
            _raise_numerical(law.peak, step)
        return law

    def untouched(self, num_outputs: int) -> bool:
        """Whether the law of trees after so many output tokens is the argmax of the raw logits."""
        params = self.params
        early = num_outputs < params.min_tokens and bool(self.stop_ids)
        return params.greedy and not (early or params.has_penalties or params.logit_bias)

    def promotion_noise(self, n: int, device: torch.device | str | None = None) -> Tensor:
        """f32[n] uniform in [0, 1), the next numbers of the promotion stream."""
        if self._promotions is None:
            # The seed with a fixed odd constant (golden ratio): the streams are unrelated.
            self._promotions = _generator((self._seed ^ 0x9E3779B97F4A7C15) & _SEED_MASK)
        return torch.rand(n, generator=self._promotions).to(device)

    def draw_drafts(self, logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw k distinct drafts for each row from the drafter's law, without replacement.

        The law is the softmax of logits / T after this request's top-k, top-p and min-p, one-hot at
        the argmax when it is greedy. Tokens it excludes are drawn last and carry log q = -inf.

        Args:
            logits: f32[R, Vd] of the drafter.

        Returns i64[R, k] indices in the order drawn (Gumbel top-k), f32[R, k] their log q, and
        f32[R, Vd], the law q.
        """
        p = self.params
        if p.greedy:
            index = logits.topk(k, -1).indices
            q = torch.zeros_like(logits).scatter_(-1, index[:, :1], 1.0)
            return index, q.gather(-1, index).log(), q
        scaled = (logits - logits.amax(-1, keepdim=True)) / max(p.temperature, 1e-30)
        scaled, weight = filtered(scaled, p.top_k, p.top_p, p.min_p)
        q = weight / weight.sum(-1, keepdim=True)
        if self._drafts is None:
            self._drafts = _generator((self._seed ^ 0xD1B54A32D192ED03) & _SEED_MASK)
        # Gumbel top-k as a race of exponentials. Float64 uniforms, because those of float32 come in
        # steps of 2^-24 and would hardly ever draw the many tokens that are rarer than that.
        noise = torch.rand(logits.shape, generator=self._drafts, dtype=torch.float64)
        finish = noise.log().neg().float().to(logits.device)
        index = (q / finish).topk(k, -1).indices
        return index, q.gather(-1, index).log(), q

    def _uniforms(self, tree: DraftTree, start: int) -> Tensor:
        """f64[N]: the request's random number of each node's output position."""
        while self._uniform.numel() <= start + tree.max_depth:
            if self._generator is None:
                self._generator = _generator(self._seed)
            more = torch.rand(_UNIFORM_BLOCK, generator=self._generator, dtype=torch.float64)
            self._uniform = torch.cat([self._uniform, more])
        window = self._uniform[start : start + tree.max_depth + 1].to(tree.device)
        return window[tree.depth]

    def _process(self, logits: Tensor, tree: DraftTree, output_ids: Sequence[int]) -> Tensor:
        """Bias, min_tokens mask and penalties; the tensor as given when none of them applies."""
        params, start = self.params, len(output_ids)
        early = start < params.min_tokens and bool(self.stop_ids)
        if not (early or params.has_penalties or params.logit_bias):
            return logits
        z = logits.to(torch.float32, copy=True)
        if params.logit_bias:
            z[:, self._bias_ids.to(z.device)] += self._bias.to(z.device)
        if early:
            rows = (tree.depth + start < params.min_tokens).unsqueeze(-1)  # [N, 1]
            banned = self._banned.to(z.device)
            z[:, banned] = torch.where(rows, -math.inf, z[:, banned])
        if params.has_penalties:
            z = self._penalise(z, tree, output_ids)
        return z

    def _penalise(self, z: Tensor, tree: DraftTree, output_ids: Sequence[int]) -> Tensor:
        """Penalties by the counts of each node's own path: committed tokens plus its ancestors."""
        params = self.params
        # The root is a committed token, already counted in the prompt or the output.
        drafted = tree.ancestor_mask() & tree.is_child  # [N, N]
        counts = _counts(output_ids, self.vocab_size).to(z.device).repeat(tree.num_nodes, 1)
        counts.scatter_add_(1, tree.token_index.expand_as(drafted), drafted.float())
        if self._prompt_counts is not None:
            seen = (counts > 0) | (self._prompt_counts.to(z.device) > 0)
            penalty = params.repetition_penalty
            z = torch.where(seen, torch.where(z > 0, z / penalty, z * penalty), z)
        z -= params.frequency_penalty * counts
        z -= params.presence_penalty * (counts > 0)
        return z


def _counts(ids: Sequence[int], vocab_size: int) -> Tensor:
    """f32[V]: how often each id occurs."""
    return torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=vocab_size).float()


def _generator(seed: int) -> torch.Generator:
    # manual_seed takes an unsigned 64-bit integer at most
    return torch.Generator().manual_seed(seed)


def _ids(field: str, ids: Sequence[int], vocab_size: int) -> Tensor:
    """Token ids as a tensor; ConfigError when one lies outside the vocabulary."""
    for token in ids:
        _integer(field, token, low=0, high=vocab_size - 1)
    return torch.tensor(ids, dtype=torch.int64)


def _raise_numerical(peak: Tensor, step: int) -> None:
    """Name the first bad row; there is none when only the sum of the peaks overflowed."""
    bad = (~torch.isfinite(peak)).nonzero()
    if bad.numel():
        node = int(bad[0, -1])
        value = float(peak[node])
        what = "are NaN" if math.isnan(value) else "are all -inf" if value < 0 else "hold +inf"
        raise NumericalError(
            f"{what} at step {step}, node {node}", step=step, node=node, field="logits"
        )


def _number(
    field: str,
    value: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
) -> None:
    """ConfigError unless ``value`` is a finite number in the interval."""
    legal = isinstance(value, int | float) and not isinstance(value, bool)
    above = legal and (value > low if low_open else value >= low)
    if not (legal and math.isfinite(value) and above and value <= high):
        left = "(" if low_open or low == -math.inf else "["
        right = ")" if high == math.inf else "]"
        raise ConfigError(
            f"must be a number in {left}{low:g}, {high:g}{right}, got {value!r}", field=field
        )


def _integer(field: str, value: int, *, low: int | None = None, high: int | None = None) -> None:
    """ConfigError unless ``value`` is an integer in the interval."""
    legal = isinstance(value, int) and not isinstance(value, bool)
    if not legal or (low is not None and value < low) or (high is not None and value > high):
        left = "(-inf" if low is None else f"[{low}"
        right = "inf)" if high is None else f"{high}]"
        raise ConfigError(f"must be an integer in {left}, {right}, got {value!r}", field=field)

"""A sampler whose law is that of transformers' logits processors, node by node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from adaptivespec.core.errors import NumericalError
from adaptivespec.core.law import Law, greedy_law, sampled_law
from adaptivespec.core.sampling import Sampler, SamplingParams
from adaptivespec.core.tree import DraftTree


class HostSampler(Sampler):
    """Runs the processors for every node on the true ids before it: prompt, output, its path.

    Margins are those of the logits before the warpers (temperature, top-k, top-p, ...), as in our
    own sampler, so that a kappa means the same here; tokens are drawn from the law after them.

    Args:
        processors: a LogitsProcessorList, the warpers last when sampling.
        input_ids: i64[rows, L], padding included: processors see what they see in transformers.
        row: the one that is decoded. Processors get all rows, each with this row's ids, and only
            this row of what they return is used: some tell rows apart by their place.
        params: temperature > 0 for sampling, and the seed.
        vocab_size: V, the width of the logits.
    """

    def __init__(
        self,
        processors: Any,
        input_ids: Tensor,
        row: int,
        params: SamplingParams,
        vocab_size: int,
    ) -> None:
        super().__init__(params, vocab_size, frozenset(), ())
        self._prompt, self._row, self._rows = input_ids[row], row, input_ids.shape[0]
        start = len(processors)
        while not params.greedy and start and _is_warper(processors[start - 1]):
            start -= 1
        self._processors = type(processors)(processors[:start])
        self._warpers = type(processors)(processors[start:])

    def untouched(self, num_outputs: int) -> bool:
        """Whether the law is the argmax of the raw logits: greedy and without processors."""
        return self.params.greedy and not self._processors

    def law(self, logits: Tensor, tree: DraftTree, output_ids: Sequence[int], step: int) -> Law:
        """As in ``Sampler``, by the processors; [N, V] in float32, as transformers has it."""
        asked = self._processors or self._warpers
        prefixes = self._prefixes(tree, output_ids) if asked else []
        z = self._run(self._processors, prefixes, logits.float(), self._rows)
        if self.params.greedy:
            law = greedy_law(z)
        else:
            warped = self._run(self._warpers, prefixes, z, rows=1)  # they look at scores alone
            law = sampled_law(warped, self._uniforms(tree, len(output_ids)), 1.0)
            law = replace(law, logits=z, peak=z.amax(-1))
        if not bool(torch.isfinite(law.peak).all()):
            node = int((~torch.isfinite(law.peak)).nonzero()[0, 0])
            value = float(law.peak[node])
            what = "are NaN" if math.isnan(value) else f"have the maximum {value}"
            raise NumericalError(
                f"{what} at step {step}, node {node}", step=step, node=node, field="logits"
            )
        return law

    def _prefixes(self, tree: DraftTree, output_ids: Sequence[int]) -> list[Tensor]:
        """The ids up to and with each node; the root is the last of prompt and output."""
        like = self._prompt
        output = torch.tensor(output_ids, dtype=like.dtype, device=like.device)
        prefixes = [torch.cat([like, output])]
        for parent, token in zip(tree.parent.tolist()[1:], tree.token.tolist()[1:], strict=True):
            last = torch.tensor([token], dtype=like.dtype, device=like.device)
            prefixes.append(torch.cat([prefixes[parent], last]))
        return prefixes

    def _run(
        self, processors: Any, prefixes: Sequence[Tensor], logits: Tensor, rows: int
    ) -> Tensor:
        """One call per node, because nodes differ in the length of their prefix."""
        if not processors:
            return logits
        done = []
        for ids, scores in zip(prefixes, logits.to(self._prompt.device), strict=True):
            every = scores.repeat(rows, 1)  # a copy: processors may write into it
            done.append(processors(ids.repeat(rows, 1), every)[self._row % rows])
        return torch.stack(done).to(logits.device)


def _is_warper(processor: Any) -> bool:
    """Whether transformers puts it last, and looks at scores alone in it."""
    name = type(processor).__name__
    return name.endswith("LogitsWarper") or name == "LogitNormalization"

"""What the training of a head needs of its target besides the features."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from adaptivespec.core.errors import ConfigError


@dataclass(frozen=True)
class Teacher:
    """The frozen parts of a target with vocabulary `V` and hidden size `H`.

    Attributes:
        embedding: `[V, H]`, float32 or bfloat16.
        output: `[V, H]`, the output layer's rows with the final norm's gain folded in.
        rms_norm_eps: of the final norm.
        eos_token_ids: tokens that end an answer.
    """

    embedding: Tensor
    output: Tensor
    rms_norm_eps: float
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.embedding.dim() != 2 or self.embedding.shape != self.output.shape:
            raise ConfigError(
                f"must be [V, H] like the embedding {list(self.embedding.shape)}, "
                f"got {list(self.output.shape)}",
                field="output",
            )

    @property
    def vocab_size(self) -> int:
        return self.embedding.shape[0]

    @property
    def hidden_size(self) -> int:
        return self.embedding.shape[1]

    def rows(self, target_ids: Tensor) -> Tensor:
        """Output rows `[len(target_ids), H]` for a draft vocabulary, gain folded in."""
        return self.output[target_ids]

    def normed(self, final: Tensor) -> Tensor:
        """`f32[R, H]`: the residual stream `final` that leaves the last layer, without gain."""
        return F.rms_norm(final.float(), (self.hidden_size,), None, self.rms_norm_eps)

"""Root-mean-square normalisation whose gain lives in the next linear layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class RMSNorm:
    """`x / sqrt(mean(x^2) + eps)` over the last dimension `[R, hidden]`, statistics in float32.

    The learned gain is folded into the linear layer that follows (`fold_gain`), which is exact up
    to rounding and saves a pass over the activations.
    """

    def __init__(self, hidden_size: int, eps: float, device: torch.device | None = None) -> None:
        self.hidden_size, self.epsilon = hidden_size, eps
        self.inverse_size = 1.0 / hidden_size
        self.eps = torch.tensor(eps, dtype=torch.float32, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        if x.device.type == "cuda":  # one kernel there, and here slower than these
            return F.rms_norm(x, (self.hidden_size,), eps=self.epsilon)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self.eps, norm, norm, value=self.inverse_size).rsqrt_()
        return x * scale.to(x.dtype)


def fold_gain(weight: Tensor, gain: Tensor) -> Tensor:
    """Scale the columns of `weight [out, in]` by `gain [in]`, in float32."""
    return weight.float() * gain.float()

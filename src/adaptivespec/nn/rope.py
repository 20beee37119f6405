"""Rotary position embedding (Su et al., 2104.09864) with Llama 3's and linear scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Rope:
    """Cosine and sine tables `[max_positions, head_dim]`; rotates the two halves of a head.

    Tables are computed in float32 and stored in `dtype`, as Hugging Face models do.
    """

    def __init__(
        self,
        head_dim: int,
        theta: float,
        max_positions: int,
        dtype: torch.dtype,
        scaling: Mapping[str, Any] | None = None,
        device: torch.device | None = None,
    ) -> None:
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
        frequency = _scaled(frequency, scaling)
        angle = torch.outer(torch.arange(max_positions).float(), frequency)
        self.cos = torch.cat((angle.cos(), angle.cos()), -1).to(dtype=dtype, device=device)
        # The sign of the rotated half is in the table, so that rotating is a swap.
        self.sin = torch.cat((-angle.sin(), angle.sin()), -1).to(dtype=dtype, device=device)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the tables for `positions [R]`: `[R, 1, head_dim]`, to broadcast over heads."""
        return self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotation to `x [R, heads, head_dim]`."""
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), -1)
    return torch.addcmul(x * cos, swapped, sin)


def _scaled(frequency: Tensor, scaling: Mapping[str, Any] | None) -> Tensor:
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if scaling is None or kind == "default":
        return frequency
    factor = float(scaling["factor"])
    if kind == "linear":
        return frequency / factor
    # "llama3": long wavelengths are slowed by `factor`, short ones kept, a ramp between.
    original = float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = original * frequency / (2 * math.pi)
    ramp = ((turns - low) / (high - low)).clamp(0, 1)
    return frequency * (ramp + (1 - ramp) / factor)

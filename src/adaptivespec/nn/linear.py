"""Linear layers over weights laid out once for the CPU's matrix kernels.

oneDNN reorders a weight into its own tiled layout before every product; doing it once at load
saves about a third of a decode pass.  The two operators used are private to PyTorch, so they are
tried on a small product first and `torch.nn.functional.linear` serves where they are missing or
disagree.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

#: Number of rows the packed layout is tuned for: a typical verify pass.
ROWS_HINT = 16


class Linear:
    """`y = x @ weight.T`, plus `bias [out]` if there is one; the weight packed where possible.

    Call it with `x [R, in]` of the weight's dtype; the result is `[R, out]`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.packed = weight.device.type == "cpu" and packing_works(weight.dtype)
        self.bias = bias
        self.weight = _pack(weight.contiguous()) if self.packed else weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)


@functools.cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether the packed product exists here for `dtype` and agrees with `F.linear`."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 64, generator=generator).to(dtype)
    weight = torch.randn(96, 64, generator=generator).to(dtype)
    try:
        got = torch.ops.mkldnn._linear_pointwise(x, _pack(weight), None, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    tolerance = 1e-4 if dtype == torch.float32 else 0.25
    return bool(torch.allclose(got.float(), F.linear(x, weight).float(), atol=tolerance))

"""The CPU operators of `sgl_kernel` that SGLang needs to serve EAGLE trees, written in torch.

No package on PyPI carries `sgl_kernel` for a CPU. SGLang imports some operators by name and calls
others through `torch.ops.sgl_kernel`; the names and the order of their parameters are SGLang's.
For tests: the arithmetic is float32 and the speed is not the aim.
"""

from __future__ import annotations

from .attention import build_draft_decode_metadata_cpu, decode_attention_cpu, extend_attention_cpu
from .kv import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__version__ = "0.0.0+torch"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def _register() -> None:
    import torch

    for operator in (decode_attention_cpu, extend_attention_cpu):
        setattr(torch.ops.sgl_kernel, operator.__name__, operator)


_register()

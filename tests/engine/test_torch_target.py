"""The torch backend by itself; test_target_contract.py has what every backend promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from adaptivespec.core.tree import DraftTree
from fakes import tiny

PROMPT = [5, 9, 11, 2, 40]


def reference(weights: dict[str, Any], config: Any, ids: list[int]) -> torch.Tensor:
    """Logits `[len(ids), vocab]` by the textbook formulas, one head at a time, float64."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    n, d = len(ids), config.head_dim
    inv = 1.0 / config.rope_theta ** (torch.arange(0, d, 2).double() / d)
    angle = torch.outer(torch.arange(n).double(), inv)
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt() * gain

    def turn(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    x = w["model.embed_tokens.weight"][ids]
    hidden = torch.full((n, n), float("-inf")).triu(1).double()
    for i in range(config.num_layers):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"])
        heads = []
        for head in range(config.num_heads):
            kv = head // (config.num_heads // config.num_kv_heads)
            q = turn(h @ w[p + "self_attn.q_proj.weight"][head * d : (head + 1) * d].T)
            k = turn(h @ w[p + "self_attn.k_proj.weight"][kv * d : (kv + 1) * d].T)
            v = h @ w[p + "self_attn.v_proj.weight"][kv * d : (kv + 1) * d].T
            heads.append((q @ k.T / d**0.5 + hidden).softmax(-1) @ v)
        x = x + torch.cat(heads, -1) @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"])
        gate = F.silu(h @ w[p + "mlp.gate_proj.weight"].T)
        x = x + (gate * (h @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
    out = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, w["model.norm.weight"]) @ out.T


@pytest.mark.parametrize("tied", [True, False])
def test_forward_equals_the_textbook(tied: bool) -> None:
    config = replace(tiny.CONFIG, tie_word_embeddings=tied)
    target = tiny.target(config)
    got = target.prefill(target.new_cache(8), PROMPT).logits[0]
    want = reference(tiny.weights(config), config, PROMPT)[-1]
    assert torch.allclose(got.double(), want, atol=1e-4)


@pytest.mark.parametrize("path", [[0], [0, 2], [0, 2, 5], [0, 1, 3]])
def test_cache_after_a_step_equals_a_fresh_prefill(path: list[int]) -> None:
    target = tiny.target()
    tree = DraftTree.from_parents([7, 3, 4, 8, 8, 9], [-1, 0, 0, 1, 2, 2])
    cache, fresh = target.new_cache(6), target.new_cache(64)
    target.prefill(cache, PROMPT)
    target.verify(cache, tree)
    target.commit(cache, path)
    target.prefill(fresh, [*PROMPT, *(int(tree.token[i]) for i in path)])
    rows = len(PROMPT) + len(path)
    assert cache.length == fresh.length == rows
    assert torch.allclose(cache.k[:, :, :rows], fresh.k[:, :, :rows], atol=1e-5)
    assert torch.allclose(cache.v[:, :, :rows], fresh.v[:, :, :rows], atol=1e-5)

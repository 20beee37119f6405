"""Packed linear, norm, rope, cache and masks against plain torch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from adaptivespec.nn import linear
from adaptivespec.nn.attention import additive_mask, attend, causal
from adaptivespec.nn.kv import KVCache
from adaptivespec.nn.linear import Linear
from adaptivespec.nn.norm import RMSNorm, fold_gain
from adaptivespec.nn.rope import Rope, rotate


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 65])
def test_linear_equals_torch(rows: int) -> None:
    weight, x = torch.randn(48, 33), torch.randn(rows, 33)
    assert torch.allclose(Linear(weight)(x), F.linear(x, weight), atol=1e-5)


def test_linear_falls_back_when_the_private_operator_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(weight: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(linear, "_pack", gone)
    linear.packing_works.cache_clear()
    try:
        layer = Linear(torch.ones(4, 3))
        assert not layer.packed
        assert layer(torch.ones(2, 3)).tolist() == [[3.0] * 4] * 2
    finally:
        linear.packing_works.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_with_folded_gain_equals_rms_norm(dtype: torch.dtype) -> None:
    x, gain, weight = torch.randn(5, 24).to(dtype), torch.randn(24), torch.randn(7, 24)
    want = F.linear(F.rms_norm(x.float(), (24,), gain, 1e-5), weight)
    got = F.linear(RMSNorm(24, 1e-5)(x).float(), fold_gain(weight, gain))
    assert torch.allclose(got, want, atol=1e-4 if dtype == torch.float32 else 0.2)
    assert RMSNorm(24, 1e-5)(torch.zeros(1, 24)).abs().max() == 0


def test_rope_turns_pairs_by_position() -> None:
    rope = Rope(4, 100.0, 16, torch.float32)
    x = torch.tensor([[[1.0, 0.0, 0.0, 1.0]]])
    got = rotate(x, *rope.at(torch.tensor([3])))[0, 0]
    slow = 3 * 100.0**-0.5
    want = [math.cos(3), -math.sin(slow), math.sin(3), math.cos(slow)]
    assert got.tolist() == pytest.approx(want, abs=1e-6)


def test_rope_scalings() -> None:
    plain = Rope(8, 1e4, 64, torch.float32)
    half = Rope(8, 1e4, 64, torch.float32, {"rope_type": "linear", "factor": 2.0})
    assert torch.allclose(half.cos[10], plain.cos[5], atol=1e-6)
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    scaled = Rope(8, 1e4, 64, torch.float32, llama3)
    # The shortest wave (6.3 positions) is kept, the longest (6283) slowed by the factor.
    assert torch.allclose(scaled.cos[:, 0], plain.cos[:, 0])
    assert torch.allclose(scaled.sin[8, 3], plain.sin[1, 3], atol=1e-6)


@pytest.mark.parametrize("groups", [1, 3])
def test_attention_equals_a_loop_over_heads(groups: int) -> None:
    rows, kv_heads, dim, prefix = 4, 2, 8, 3
    q = torch.randn(rows, groups * kv_heads, dim)
    k, v = torch.randn(2, kv_heads, prefix + rows, dim).unbind(0)
    visible = causal(rows)
    got = attend(q, k, v, additive_mask(visible, prefix, groups, torch.float32))
    for row in range(rows):
        for h in range(groups * kv_heads):
            seen = prefix + row + 1
            weight = (k[h // groups, :seen] @ q[row, h] / dim**0.5).softmax(0)
            want = weight @ v[h // groups, :seen]
            assert torch.allclose(got.view(rows, -1, dim)[row, h], want, atol=1e-5)


def test_cache_keeps_the_chosen_rows_in_order() -> None:
    cache = KVCache(2, 1, 4, 8, torch.float32)
    rows = torch.arange(2 * 8 * 4).view(2, 1, 8, 4).float()
    cache.k[:], cache.v[:] = rows, -rows
    cache.commit([0, 1])
    assert cache.length == 2
    cache.commit([0, 2, 5])
    assert cache.length == 5
    assert torch.equal(cache.k[:, :, 2:5], rows[:, :, [2, 4, 7]])
    assert torch.equal(cache.v[:, :, 2:5], -rows[:, :, [2, 4, 7]])
    cache.reserve(100)
    assert cache.capacity >= 100
    assert torch.equal(cache.k[:, :, 2:5], rows[:, :, [2, 4, 7]])
    cache.truncate(1)
    cache.truncate(9)
    assert cache.length == 1

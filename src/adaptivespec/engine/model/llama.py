"""Llama and its descendants in plain torch: a stateless forward over rows, a cache and a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.engine.devices import CPU
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.nn.attention import attend
from adaptivespec.nn.kv import Rows
from adaptivespec.nn.linear import Linear
from adaptivespec.nn.norm import RMSNorm, fold_gain
from adaptivespec.nn.rope import Rope, rotate


class LlamaLayer:
    """One decoder block with q/k/v and gate/up fused and the norm gains folded in.

    `head_gain [heads + kv_heads, head_dim]` are the gains of a Qwen3's norms, one row per query
    and key head; they cannot be folded, as the rotation follows. None where there are no norms.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        prefix: str,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def w(name: str) -> Tensor:
            return weights[f"{prefix}.{name}.weight"].to(device)

        qkv, bias = torch.cat([w(f"self_attn.{name}_proj") for name in "qkv"]), None
        if config.qkv_bias:
            bias = torch.cat([weights[f"{prefix}.self_attn.{n}_proj.bias"] for n in "qkv"])
            bias = bias.to(device, dtype)
        self.head_gain: Tensor | None = None
        if config.head_norms:
            gains = [w("self_attn.q_norm")] * config.num_heads
            gains += [w("self_attn.k_norm")] * config.num_kv_heads
            self.head_gain = torch.stack(gains).to(dtype)
        gate_up = torch.cat([w("mlp.gate_proj"), w("mlp.up_proj")])
        self.qkv = Linear(fold_gain(qkv, w("input_layernorm")).to(dtype), bias)
        self.o = Linear(w("self_attn.o_proj").to(dtype))
        self.gate_up = Linear(fold_gain(gate_up, w("post_attention_layernorm")).to(dtype))
        self.down = Linear(w("mlp.down_proj").to(dtype))


class Llama:
    """Llama 2/3-style decoder (RMSNorm, rotary positions, grouped queries, SwiGLU).

    With the biases of Qwen2 or the norms of heads of Qwen3 where the config says so.

    Args:
        weights: tensors under Hugging Face names, in any float dtype.
        config: sizes and constants.
        dtype: of weights, activations and cache.
        max_positions: length of the rotary tables.
        device: where it runs. The weights are brought there a layer at a time.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        config: ModelConfig,
        dtype: torch.dtype,
        max_positions: int,
        device: torch.device = CPU,
    ) -> None:
        self.config, self.dtype = config, dtype
        self.embedding = weights["model.embed_tokens.weight"].to(device, dtype)
        self.layers = [
            LlamaLayer(weights, f"model.layers.{i}", config, dtype, device)
            for i in range(config.num_layers)
        ]
        # Lent to heads only: it stays where it was read.
        self.output = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        head = (
            weights["model.embed_tokens.weight"] if self.output is self.embedding else self.output
        )
        gain = weights["model.norm.weight"].to(device)
        self.lm_head = Linear(fold_gain(head.to(device), gain).to(dtype))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, device)
        self.head_norm = RMSNorm(config.head_dim, config.rms_norm_eps, device)
        self.rope = Rope(
            config.head_dim,
            config.rope_theta,
            max_positions,
            dtype,
            config.rope_scaling,
            device,
        )

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        place: Rows,
        mask: Tensor | None,
        tap_layers: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor]:
        """Run rows, whose keys and values go to `place`.

        Args:
            tokens: `[R]` ids.
            positions: `[R]` positions.
            mask: additive `[groups * R, T]` over the T rows that `place` has in sight, or None when
                all see all.
            tap_layers: layers whose incoming residual stream is returned.

        Returns:
            The residual stream `[R, hidden]` and the taps `[R, len(tap_layers) * hidden]`.
        """
        c = self.config
        rows = tokens.shape[0]
        q_end, k_end = c.num_heads, c.num_heads + c.num_kv_heads
        cos, sin = self.rope.at(positions)
        x = F.embedding(tokens, self.embedding)  # [R, H]
        taps: dict[int, Tensor] = {}
        for i, layer in enumerate(self.layers):
            if i in tap_layers:
                taps[i] = x
            qkv = layer.qkv(self.norm(x)).view(rows, k_end + c.num_kv_heads, c.head_dim)
            qk = qkv[:, :k_end]
            if layer.head_gain is not None:
                qk = self.head_norm(qk) * layer.head_gain
            qk = rotate(qk, cos, sin)
            k, v = place.store(i, qk[:, q_end:], qkv[:, k_end:])
            x = x + layer.o(attend(qk[:, :q_end], k, v, mask))
            gate, up = layer.gate_up(self.norm(x)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        return x, torch.cat([x[:, :0], *(taps[i] for i in tap_layers)], -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """`[R, vocab]` from the residual stream `[R, hidden]` that leaves the last layer."""
        return self.lm_head(self.norm(hidden))

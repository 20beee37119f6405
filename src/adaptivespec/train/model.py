"""The EAGLE-3 head as a trainable module and its training-time test (2503.01840, section 3.1).

The head is unrolled as it will be used: at step 0 it reads the target's features, afterwards its
own output in their place, each step one token further.  Attention sees the causal keys of step 0
and, for every later step, the key at the same place only, which is what a drafted chain sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint, Eagle3Config
from adaptivespec.nn.rope import Rope, rotate

#: Rows of the loss computed together, so that its temporaries stay in the processor's cache.
LOSS_ROWS = 64


class SoftCrossEntropy(torch.autograd.Function):
    """Mean over rows of `-sum_x p(x) log softmax(logits)(x)` with `p = softmax(target)`.

    Inputs: `logits [>= n, V]`, rows beyond n count for nothing; `target [m, V]`, logits;
    `index i64[n]`, the row of `target` that belongs to each row; `best i64[m]`, the argmax of
    `target`.  Returns the loss and the share of rows whose argmax agrees.  The gradient is made on
    the way, a few rows at a time.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, index: Tensor, best: Tensor
    ) -> tuple[Tensor, Tensor]:
        rows = index.shape[0]
        grad = torch.empty_like(logits)
        grad[rows:] = 0
        loss, hits = torch.zeros(()), torch.zeros(())
        for start in range(0, rows, LOSS_ROWS):
            part = slice(start, min(start + LOSS_ROWS, rows))
            at = index[part]
            z = logits[part].float()
            hits += (z.gather(-1, best[at, None])[:, 0] == z.amax(-1)).sum()
            p = target[at].float().softmax(-1)
            z = z.log_softmax(-1)
            loss -= torch.dot(p.view(-1), z.view(-1))
            grad[part] = z.exp_().sub_(p)
        ctx.save_for_backward(grad)
        ctx.rows = rows
        share = hits / rows
        ctx.mark_non_differentiable(share)
        return loss / rows, share

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,) = ctx.saved_tensors
        return grad.mul_(grads[0] / ctx.rows), None, None, None


class Eagle3Module(nn.Module):
    """Parameters under their checkpoint names (dots become `__` inside torch).

    Args:
        checkpoint: where to start from.
        embedding: the target's token embedding `[vocab, H]`, frozen.
        max_positions: length of the rotary tables.
    """

    def __init__(self, checkpoint: Eagle3Checkpoint, embedding: Tensor, max_positions: int) -> None:
        super().__init__()
        c = self.config = checkpoint.config
        self.target_ids = checkpoint.target_ids
        self.embedding = embedding.bfloat16()
        frozen = {"d2t", "t2d", "embed_tokens.weight"}
        self.weights = nn.ParameterDict(
            {
                name.replace(".", "__"): nn.Parameter(tensor.float().clone())
                for name, tensor in checkpoint.tensors.items()
                if name not in frozen
            }
        )
        self.rope = Rope(c.head_dim, c.rope_theta, max_positions, torch.bfloat16, c.rope_scaling)

    def w(self, name: str) -> Tensor:
        return self.weights[f"{name}.weight".replace(".", "__")]

    def checkpoint(self) -> Eagle3Checkpoint:
        """A copy of the current weights."""
        tensors = {name.replace("__", "."): p.detach().clone() for name, p in self.weights.items()}
        return Eagle3Checkpoint(self.config, tensors, self.target_ids)

    def unroll(self, taps: Tensor, tokens: Tensor, steps: int) -> Iterator[Tensor]:
        """Yield the normed outputs `[B, T, H]` of `steps` steps.

        Args:
            taps: `bf16[B, T, taps * H]` features of positions 0..T-1.
            tokens: `i64[B, T + steps]`; step k reads `tokens[:, k + 1 : k + 1 + T]`, and its
                output at t is about the token at t + k + 2.
        """
        c = self.config
        batch, length, _ = taps.shape
        groups = c.num_heads // c.num_kv_heads
        eye = torch.eye(length, dtype=torch.bool)
        visible = torch.ones_like(eye).tril()
        x = F.linear(taps, self.w("fc"))
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for step in range(steps):
            cos, sin = (t.squeeze(1) for t in self.rope.at(torch.arange(step, step + length)))
            embedded = F.embedding(tokens[:, step + 1 : step + 1 + length], self.embedding)
            q, k, v = self._qkv(x, embedded, cos, sin)
            k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
            keys.append(k)
            values.append(v)
            out = F.scaled_dot_product_attention(
                q, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=visible
            )
            visible = torch.cat((visible, eye), 1)
            out = out.transpose(1, 2).reshape(batch, length, -1)
            x = x + F.linear(out, self.w(f"{LAYER}.self_attn.o_proj"))
            y = self._norm(x, f"{LAYER}.post_attention_layernorm")
            gate = F.silu(F.linear(y, self.w(f"{LAYER}.mlp.gate_proj")))
            up = F.linear(y, self.w(f"{LAYER}.mlp.up_proj"))
            x = x + F.linear(gate * up, self.w(f"{LAYER}.mlp.down_proj"))
            yield self._norm(x, "norm")

    def logits(self, normed: Tensor) -> Tensor:
        """Draft-vocabulary logits of rows `normed [R, H]`."""
        return F.linear(normed, self.w("lm_head"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        gain = self.w(name).to(x.dtype)
        return F.rms_norm(x, (x.shape[-1],), gain, self.config.rms_norm_eps)

    def _qkv(
        self, x: Tensor, embedded: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        c = self.config
        both = torch.cat(
            (
                self._norm(embedded, f"{LAYER}.input_layernorm"),
                self._norm(x.to(embedded.dtype), f"{LAYER}.hidden_norm"),
            ),
            -1,
        )

        def heads(name: str, count: int) -> Tensor:
            y = F.linear(both, self.w(f"{LAYER}.self_attn.{name}_proj"))
            return y.view(*y.shape[:2], count, c.head_dim).transpose(1, 2)

        q, k = heads("q", c.num_heads), heads("k", c.num_kv_heads)
        return rotate(q, cos, sin), rotate(k, cos, sin), heads("v", c.num_kv_heads)


def initial_checkpoint(
    config: Eagle3Config, target: Mapping[str, Tensor], num_layers: int, target_ids: Tensor
) -> Eagle3Checkpoint:
    """A head to train from nothing: the target's last layer, `fc` near identity on the last tap.

    `target` holds the target's weights under Hugging Face names.
    """
    generator = torch.Generator().manual_seed(0)
    h, last = config.hidden_size, f"model.layers.{num_layers - 1}."
    tensors: dict[str, Tensor] = {}
    for name, shape in config.shapes().items():
        if name in ("d2t", "t2d", "embed_tokens.weight"):
            continue
        source = target.get(name.replace(f"{LAYER}.", last))
        if source is not None and tuple(source.shape) == shape:
            tensors[name] = source.float().clone()
        elif len(shape) == 1:
            tensors[name] = torch.ones(shape)
        else:
            bound = shape[1] ** -0.5
            tensors[name] = (torch.rand(shape, generator=generator) * 2 - 1) * bound
    fc = tensors["fc.weight"].mul_(0.05)
    fc[:, -h:] += torch.eye(h)
    tensors[f"{LAYER}.hidden_norm.weight"] = target[f"{last}input_layernorm.weight"].float()
    tensors[f"{LAYER}.input_layernorm.weight"] = torch.ones(h)
    tensors["norm.weight"] = target["model.norm.weight"].float().clone()
    for name in "qkv":
        weight = tensors[f"{LAYER}.self_attn.{name}_proj.weight"]
        source = target[f"{last}self_attn.{name}_proj.weight"]
        weight[:, :h].mul_(0.3)
        if weight[:, h:].shape == source.shape:
            weight[:, h:] = source.float()
    head = target.get("lm_head.weight", target["model.embed_tokens.weight"])
    tensors["lm_head.weight"] = head[target_ids].float()
    return Eagle3Checkpoint(config, tensors, target_ids)

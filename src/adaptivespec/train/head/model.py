"""The EAGLE-3 head as a trainable module and its training-time test (2503.01840, section 3.1).

The head is unrolled as it will be used: at step 0 it reads the target's features, afterwards its
own output in their place, each step one token further.  Attention sees the causal keys of step 0
and, for every later step, the key at the same place only, which is what a drafted chain sees.

Rows of the prompt do not draft.  Of them only keys and values are made, once; everything else is
computed on the packed rows of the responses (`Pack`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint, Eagle3Config
from adaptivespec.nn.rope import Rope
from adaptivespec.train.head.attention import UnrolledAttention
from adaptivespec.train.head.ops import Linear, RmsNorm, Rotate, SwiGlu, Take, Weight
from adaptivespec.train.head.pack import Pack

ATTENTION, MLP = f"{LAYER}.self_attn", f"{LAYER}.mlp"


class Eagle3Module(nn.Module):
    """Float32 parameters under their checkpoint names (dots become `__` inside torch).

    The forward computes in the dtype of `embedding`, on copies that `refresh` makes of the
    matrices: call it after every change of the parameters.

    Args:
        checkpoint: where to start from.
        embedding: the target's token embedding `[vocab, H]`, frozen.
        max_positions: length of the rotary tables.
        dtype: of the copies and activations.
        frozen: names of tensors that do not learn.

    Raises:
        CheckpointError: the head normalises in places that this module does not know of.
    """

    def __init__(
        self,
        checkpoint: Eagle3Checkpoint,
        embedding: Tensor,
        max_positions: int,
        dtype: torch.dtype = torch.bfloat16,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        c = self.config = checkpoint.config
        c.require_plain("training")
        self.target_ids = checkpoint.target_ids
        self.embedding = embedding.to(dtype)
        absent = {"d2t", "t2d", "embed_tokens.weight"}
        self.weights = nn.ParameterDict(
            {
                name.replace(".", "__"): nn.Parameter(
                    tensor.float().clone(), requires_grad=name not in frozen
                )
                for name, tensor in checkpoint.tensors.items()
                if name not in absent
            }
        )
        self.rope = Rope(c.head_dim, c.rope_theta, max_positions, dtype, c.rope_scaling)
        self.matrices = {
            name: Weight()
            for name in ("fc", "qkv_e", "qkv_h", "o_proj", "gate_up", "down_proj", "lm_head")
        }
        heads, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        self.q_rows, self.kv_rows = (0, heads), (heads, heads + 2 * kv)

    def w(self, name: str) -> nn.Parameter:
        """The parameter of a checkpoint's `name.weight`."""
        return self.weights[f"{name}.weight".replace(".", "__")]

    def learning(self) -> list[nn.Parameter]:
        """The parameters that are not frozen."""
        return [p for p in self.parameters() if p.requires_grad]

    def checkpoint(self, weights: Mapping[str, Tensor] | None = None) -> Eagle3Checkpoint:
        """A copy of the current weights, or of `weights` (named as in `self.weights`)."""
        source = weights or self.weights
        tensors = {name.replace("__", "."): p.detach().clone() for name, p in source.items()}
        return Eagle3Checkpoint(self.config, tensors, self.target_ids)

    def sibling(self) -> Eagle3Module:
        """A module of another thread: it shares the matrices and has gradients of its own.

        It computes with what `follow` takes over.
        """
        other = copy.copy(self)
        other._modules = dict(self._modules)
        other.weights = nn.ParameterDict(
            {
                name: p
                if p.dim() > 1
                else nn.Parameter(p.detach().clone(), requires_grad=p.requires_grad)
                for name, p in self.weights.items()
            }
        )
        other.matrices = {name: Weight() for name in self.matrices}
        return other

    @torch.no_grad()
    def follow(self, other: Eagle3Module) -> None:
        """Compute with the weights of a sibling, as its last `refresh` left them."""
        for name, matrix in self.matrices.items():
            matrix.value, matrix.uses = other.matrices[name].value, {}
        for name, p in self.weights.items():
            if p.dim() == 1:
                p.copy_(other.weights[name])
                p.grad = None

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the matrices into compute precision and clear all gradients."""
        h, dtype = self.config.hidden_size, self.embedding.dtype
        qkv = torch.cat([self.w(f"{ATTENTION}.{name}_proj") for name in "qkv"])
        values = {
            "fc": self.w("fc"),
            "qkv_e": qkv[:, :h],
            "qkv_h": qkv[:, h:],
            "o_proj": self.w(f"{ATTENTION}.o_proj"),
            "gate_up": torch.cat((self.w(f"{MLP}.gate_proj"), self.w(f"{MLP}.up_proj"))),
            "down_proj": self.w(f"{MLP}.down_proj"),
            "lm_head": self.w("lm_head"),
        }
        for name, value in values.items():
            self.matrices[name].set(value, dtype)
        for p in self.parameters():
            if p.dim() == 1:  # those of matrices are noted elsewhere
                p.grad = None

    @torch.no_grad()
    def gradients(self) -> dict[str, Tensor]:
        """The gradients of all that learns after `backward`, named as in `self.weights`.

        `lm_head` has one where its uses were noted, by whoever made the logits.
        """
        m = self.matrices
        heads, end = self.q_rows[1], self.kv_rows[1]
        middle = (heads + end) // 2
        qkv = torch.cat((m["qkv_e"].gradient(), m["qkv_h"].gradient()), 1)
        gate, up = m["gate_up"].gradient().chunk(2)
        found = {
            f"{ATTENTION}.q_proj": qkv[:heads],
            f"{ATTENTION}.k_proj": qkv[heads:middle],
            f"{ATTENTION}.v_proj": qkv[middle:end],
            f"{ATTENTION}.o_proj": m["o_proj"].gradient(),
            f"{MLP}.gate_proj": gate,
            f"{MLP}.up_proj": up,
            f"{MLP}.down_proj": m["down_proj"].gradient(),
            "fc": m["fc"].gradient(),
        }
        if m["lm_head"].uses:
            found["lm_head"] = m["lm_head"].gradient()
        named = {f"{name}.weight".replace(".", "__"): value for name, value in found.items()}
        gains = {n: p.grad for n, p in self.weights.items() if p.dim() == 1 and p.grad is not None}
        return named | gains

    def run(self, pack: Pack, taps: Tensor, tokens: Tensor) -> Iterator[Tensor]:
        """Yield the outputs before the final norm, `[pack.rows, H]`, of `pack.steps` steps.

        Args:
            taps: `[count * length, taps * H]` features of all positions, 0 beyond a text.
            tokens: `i64[count * length]`, at t the token of position t + 1, any id beyond.

        At step k the row of position t reads the token t + k + 1 and its output is about the
        token t + k + 2.  Rows that would read beyond their text hold nothing of use.
        """
        c = self.config
        kv_size = c.num_kv_heads * c.head_dim
        x = self._linear(taps.to(self.embedding.dtype), "fc", "fc")
        h = self._norm(x, f"{LAYER}.hidden_norm")
        e = self._norm(F.embedding(tokens, self.embedding), f"{LAYER}.input_layernorm")
        keys, values = self._text_keys(pack, e, h)
        x, h, e = (Take.apply(t, pack.place, pack.real) for t in (x, h, e))
        # The part of q, k, v that the embeddings give is the same at all steps, shifted by a row.
        from_tokens = self._linear(e, "qkv_e", f"{ATTENTION}.q_proj")
        own: list[Tensor] = []
        for step in range(pack.steps):
            cos, sin = self.rope.at(pack.position + step)
            if step == 0:
                q = from_tokens[:, : self.q_rows[1]]
                q = self._linear(h, "qkv_h", f"{ATTENTION}.q_proj", self.q_rows, q)
                q = Rotate.apply(q.view(pack.rows, -1, c.head_dim), cos, sin)
            else:
                h = self._norm(x, f"{LAYER}.hidden_norm")
                said = F.pad(from_tokens[step:], (0, 0, 0, step))
                qkv = self._linear(h, "qkv_h", f"{ATTENTION}.q_proj", addend=said)
                qk = qkv[:, :-kv_size].view(pack.rows, -1, c.head_dim)
                qk = Rotate.apply(qk, cos, sin)
                q, k = qk[:, : c.num_heads], qk[:, c.num_heads :]
                own += [k, qkv[:, -kv_size:].view(pack.rows, -1, c.head_dim)]
            out = UnrolledAttention.apply(pack, q, keys, values, *own)
            x = x + self._linear(out, "o_proj", f"{ATTENTION}.o_proj")
            y = self._norm(x, f"{LAYER}.post_attention_layernorm")
            y = SwiGlu.apply(self._linear(y, "gate_up", f"{MLP}.gate_proj"))
            x = x + self._linear(y, "down_proj", f"{MLP}.down_proj")
            yield x

    def unroll(self, taps: Tensor, tokens: Tensor, steps: int) -> Iterator[Tensor]:
        """Yield the normed outputs `[B, T, H]` of `steps` steps where every position drafts.

        Args:
            taps: `[B, T, taps * H]` features of positions 0..T-1.
            tokens: `i64[B, T + steps]`; step k reads `tokens[:, k + 1 : k + 1 + T]`.
        """
        self.refresh()
        batch, length, _ = taps.shape
        # The last steps read tokens behind the features, so there are rows for these as well.
        reach = length + steps - 1
        pack = Pack.of([reach] * batch, [0] * batch, steps, self.embedding.dtype)
        taps = F.pad(taps, (0, 0, 0, pack.length - length)).flatten(0, 1)
        tokens = F.pad(tokens[:, 1 : reach + 1], (0, pack.length - reach)).flatten()
        for x in self.run(pack, taps, tokens):
            yield self.norm(x[: pack.real].view(batch, reach, -1)[:, :length].flatten(0, 1)).view(
                batch, length, -1
            )

    def norm(self, x: Tensor) -> Tensor:
        """The final norm of outputs `[R, H]`."""
        return self._norm(x, "norm")

    def logits(self, normed: Tensor) -> Tensor:
        """Draft-vocabulary logits of rows `normed [R, H]`."""
        return F.linear(normed, self.matrices["lm_head"].value)

    def _text_keys(self, pack: Pack, e: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values `[count * kv, length + steps - 1, D]` of all positions at step 0."""
        c = self.config
        rows = self.kv_rows
        kv = self._linear(e, "qkv_e", f"{ATTENTION}.k_proj", rows)
        kv = self._linear(h, "qkv_h", f"{ATTENTION}.k_proj", rows, kv)
        k, v = kv.view(-1, 2, c.num_kv_heads, c.head_dim).unbind(1)
        k = Rotate.apply(k, *self.rope.at(torch.arange(pack.length).repeat(pack.count)))

        def columns(t: Tensor) -> Tensor:
            t = t.view(pack.count, pack.length, c.num_kv_heads, c.head_dim).transpose(1, 2)
            return F.pad(t, (0, 0, 0, pack.steps - 1)).flatten(0, 1)

        return columns(k), columns(v)

    def _linear(
        self,
        x: Tensor,
        matrix: str,
        anchor: str,
        rows: tuple[int, int] | None = None,
        addend: Tensor | None = None,
    ) -> Tensor:
        weight = self.matrices[matrix]
        span = rows or (0, weight.value.shape[0])
        return Linear.apply(x, weight, span, self.w(anchor), addend)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return RmsNorm.apply(x, self.w(name), self.config.rms_norm_eps)


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

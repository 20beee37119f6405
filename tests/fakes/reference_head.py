"""An EAGLE-3 head computed from its description alone: no cache, no folding, no tree.

The reference for norm flags: `chain` follows the papers' equations; `chain_through_drafter` asks
the package's drafter for the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint
from adaptivespec.nn.rope import Rope, rotate
from fakes import tiny

#: Tokens that are committed (the last is the root), and two that are drafted after it.
COMMITTED, DRAFTED = [9, 11, 2, 40, 7], [33, 18]


def flagged(**flags: bool) -> Eagle3Checkpoint:
    """A random float32 head with norm flags and an embedding of its own; gains are not all 1."""
    config = tiny.head(**flags).config
    generator = torch.Generator().manual_seed(11)
    # Drawn for the head with everything, so that heads that differ by a flag share their weights.
    whole = tiny.head(norm_before_fc=True).config.shapes() | tiny.head(fc_norm=True).config.shapes()
    drawn = {
        name: torch.randn(shape, generator=generator) * 0.3
        if len(shape) > 1
        else 0.6 + torch.rand(shape, generator=generator)
        for name, shape in sorted(whole.items())
    }
    kept = config.shapes().keys() - {"d2t", "t2d"}
    return Eagle3Checkpoint(
        config,
        {name: tensor for name, tensor in drawn.items() if name in kept},
        torch.arange(config.draft_vocab_size) * 2 + 3,
    )


def taps(width: int) -> Tensor:
    """Features of the committed positions `[5, width]`."""
    return torch.randn(len(COMMITTED), width, generator=torch.Generator().manual_seed(5)) * 2


def chain(head: Eagle3Checkpoint, drafted: Sequence[int] = DRAFTED) -> Tensor:
    """Logits `[1 + drafted, draft vocab]` after the root and after each drafted token."""
    c, t = head.config, {name: tensor.float() for name, tensor in head.tensors.items()}

    def rms(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps).sqrt() * gain

    rows = taps(c.num_taps * c.hidden_size)
    if c.norm_before_fc:
        rows = rms(rows, t["input_norm.weight"])
    if c.fc_norm:
        parts = rows.chunk(c.num_taps, -1)
        rows = torch.cat([rms(x, t[f"fc_norm.{i}.weight"]) for i, x in enumerate(parts)], -1)
    features = rows @ t["fc.weight"].T
    tokens, found = list(COMMITTED), []
    rope = Rope(c.head_dim, c.rope_theta, 64, torch.float32, c.rope_scaling)
    for step in range(len(drafted) + 1):
        embedded = t["embed_tokens.weight"][tokens]
        if c.use_input_layernorm_in_first_layer:
            embedded = rms(embedded, t[f"{LAYER}.input_layernorm.weight"])
        normed = rms(features, t[f"{LAYER}.hidden_norm.weight"])
        residual = normed if c.norm_before_residual else features
        both = torch.cat((embedded, normed), -1)
        hidden = residual + _attention(c, t, both, rope)
        inner = rms(hidden, t[f"{LAYER}.post_attention_layernorm.weight"])
        gate = F.silu(inner @ t[f"{LAYER}.mlp.gate_proj.weight"].T)
        up = inner @ t[f"{LAYER}.mlp.up_proj.weight"].T
        hidden = hidden + (gate * up) @ t[f"{LAYER}.mlp.down_proj.weight"].T
        output = rms(hidden, t["norm.weight"]) if c.use_last_layernorm else hidden
        found.append(output[-1] @ t["lm_head.weight"].T)
        if step < len(drafted):
            features = torch.cat((features, (output if c.norm_output else hidden)[-1:]))
            tokens.append(drafted[step])
    return torch.stack(found)


def _attention(c: object, t: dict[str, Tensor], x: Tensor, rope: Rope) -> Tensor:
    rows, d = x.shape[0], c.head_dim  # type: ignore[attr-defined]

    def heads(name: str) -> Tensor:
        return (x @ t[f"{LAYER}.self_attn.{name}_proj.weight"].T).view(rows, -1, d)

    table = rope.at(torch.arange(rows))
    q, k = rotate(heads("q"), *table), rotate(heads("k"), *table)
    groups = q.shape[1] // k.shape[1]
    k, v = (y.repeat_interleave(groups, 1) for y in (k, heads("v")))
    scores = torch.einsum("qhd,khd->hqk", q, k) / d**0.5
    future = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(rows, -1)
    return mixed @ t[f"{LAYER}.self_attn.o_proj.weight"].T


def ready(head: Eagle3Checkpoint) -> tuple[Eagle3Drafter, Any]:
    """A drafter beside a target of 30 layers, and a state that has observed what is committed."""
    model = tiny.target().model
    drafter = Eagle3Drafter(head, model.embedding, 30, tiny.MAX_LEN, torch.float32, model.output)
    state = drafter.new_state(16)
    drafter.observe(state, COMMITTED, taps(head.config.num_taps * head.config.hidden_size))
    return drafter, state


def chain_through_drafter(head: Eagle3Checkpoint) -> Tensor:
    """The same numbers from the drafter, level by level."""
    drafter, state = ready(head)
    hidden, logits = drafter._read(state)
    found = [logits[0]]
    cache = state.cache
    for step, token in enumerate(DRAFTED):
        at = cache.length + step
        cache.reserve(at + 1)
        feature = drafter._fed_back(hidden)
        place = torch.tensor([at])
        hidden = drafter._pass(feature, torch.tensor([token]), place, cache.behind(step), None)
        found.append(drafter._logits(hidden)[0])
    return torch.stack(found)

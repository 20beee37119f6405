"""What an EAGLE-3 head is (Li et al., 2503.01840): sizes, norms, tapped layers and tensors.

Every dialect of the checkpoints in the wild (`draft/dialects/`) is read into this one description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from adaptivespec.core.errors import CheckpointError

LAYER = "midlayer"
#: Taps of a head that names none: entering layers 2, L // 2 and L - 3 of a target with L layers.
USUAL_TAPS = 3
#: Fields that say where a head normalises; their defaults are those of the paper's head.
FLAGS = (
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
)


@dataclass(frozen=True)
class Eagle3Config:
    """Sizes, constants and norms of a head.

    `tap_layers` are the target layers whose *incoming* residual stream feeds `fc`; None means the
    usual (2, L // 2, L - 3) of a target with L layers. `max_position_embeddings` is the target's:
    SGLang refuses a head that serves fewer positions than its target, and takes a head that says
    nothing to serve 2048.

    Attributes:
        norm_before_residual: the residual of the layer is the normed feature, not the feature.
        norm_before_fc: one RMSNorm over the concatenated taps, before `fc`.
        fc_norm: an RMSNorm of its own for each tap, before `fc` (EAGLE 3.1).
        norm_output: what is fed back as the next feature is the normed output (EAGLE 3.1).
        use_input_layernorm_in_first_layer: the embedding is normed.
        use_last_layernorm: the output is normed before `lm_head`.
        tie_word_embeddings: where there is no `lm_head`, the head's own embedding serves.
        target_name: of the model the head was made for, where the checkpoint says so.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    rope_scaling: Mapping[str, Any] | None = None
    tap_layers: tuple[int, ...] | None = None
    max_position_embeddings: int | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    use_input_layernorm_in_first_layer: bool = True
    use_last_layernorm: bool = True
    tie_word_embeddings: bool = False
    target_name: str | None = None

    @property
    def num_taps(self) -> int:
        """Target layers that feed `fc`."""
        return len(self.tap_layers) if self.tap_layers else USUAL_TAPS

    def flags(self) -> dict[str, bool]:
        """The norm flags that differ from the paper's head, by name; empty for most heads."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: getattr(self, name) for name in FLAGS if getattr(self, name) != usual[name]}

    def require_plain(self, what: str) -> None:
        """Raise CheckpointError where a norm flag is set, for `what` that knows none of them."""
        if self.flags():
            raise CheckpointError(
                f"{what} does not know these flags of the head: {spelled(self.flags())}",
                field="draft_model",
                remedy="Use a head without them; the engine's torch drafter runs all of them",
            )

    def taps_for(self, num_layers: int) -> tuple[int, ...]:
        """The tapped layers of a target with `num_layers`; CheckpointError if out of range."""
        taps = self.tap_layers or (2, num_layers // 2, num_layers - 3)
        if any(not 0 <= i < num_layers for i in taps) or sorted(set(taps)) != list(taps):
            raise CheckpointError(
                f"the head taps target layers {list(taps)}, the target has layers 0 to "
                f"{num_layers - 1}",
                field="draft_model",
                remedy="Use a head trained for this target, or set "
                "eagle_aux_hidden_state_layer_ids in its config.json",
            )
        return tuple(taps)

    def mismatches(self, vocab_size: int, hidden_size: int, num_layers: int) -> list[str]:
        """Why the head does not fit a target of these sizes, one sentence each; empty if it does.

        Args:
            vocab_size, hidden_size, num_layers: of the target.
        """
        problems = [
            f"{name}: the head wants {wanted}, the target has {found}"
            for name, wanted, found in (
                ("vocab_size", self.vocab_size, vocab_size),
                ("hidden_size", self.hidden_size, hidden_size),
            )
            if wanted != found
        ]
        try:
            self.taps_for(num_layers)
        except CheckpointError as error:
            problems.append(error.message)
        return problems

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor a checkpoint may hold and its shape."""
        h, f, d = self.hidden_size, self.intermediate_size, self.head_dim
        taps = self.num_taps
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (h, taps * h),
            f"{LAYER}.input_layernorm.weight": (h,),
            f"{LAYER}.hidden_norm.weight": (h,),
            f"{LAYER}.post_attention_layernorm.weight": (h,),
            f"{LAYER}.self_attn.q_proj.weight": (self.num_heads * d, 2 * h),
            f"{LAYER}.self_attn.k_proj.weight": (self.num_kv_heads * d, 2 * h),
            f"{LAYER}.self_attn.v_proj.weight": (self.num_kv_heads * d, 2 * h),
            f"{LAYER}.self_attn.o_proj.weight": (h, self.num_heads * d),
            f"{LAYER}.mlp.gate_proj.weight": (f, h),
            f"{LAYER}.mlp.up_proj.weight": (f, h),
            f"{LAYER}.mlp.down_proj.weight": (h, f),
            "norm.weight": (h,),
            "lm_head.weight": (self.draft_vocab_size, h),
            "d2t": (self.draft_vocab_size,),
            "t2d": (self.vocab_size,),
            "embed_tokens.weight": (self.vocab_size, h),
        }
        if not self.use_input_layernorm_in_first_layer:
            del shapes[f"{LAYER}.input_layernorm.weight"]
        if not self.use_last_layernorm:
            del shapes["norm.weight"]
        if self.norm_before_fc:
            shapes["input_norm.weight"] = (taps * h,)
        if self.fc_norm:
            shapes |= {f"fc_norm.{i}.weight": (h,) for i in range(taps)}
        return shapes

    def optional(self) -> set[str]:
        """Tensors a checkpoint may leave out: the target lends them or they are implied."""
        same_vocabulary = self.draft_vocab_size == self.vocab_size
        implied = {"d2t", "lm_head.weight"} if same_vocabulary else set()
        return {"t2d", "embed_tokens.weight"} | implied


def spelled(flags: Mapping[str, bool]) -> str:
    """`name = true` for each, as a configuration spells them."""
    return ", ".join(f"{name} = {str(value).lower()}" for name, value in flags.items())

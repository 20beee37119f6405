"""Heads of all dialects: what is read, what is refused, and what a tap means."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adaptivespec.core.errors import (
    AdaptiveSpecError,
    CheckpointError,
    ModelNotFoundError,
)
from adaptivespec.draft.dialects import dialect_of
from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.draft.eagle3_checkpoint import LAYER, Eagle3Checkpoint
from adaptivespec.draft.heads import Head
from adaptivespec.draft.proposal import read_proposal
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.policy.base import TreePlan
from fakes import head_dialects, tiny
from fakes.reference_head import chain_through_drafter as logits_of

NUM_LAYERS = 8
TARGET = replace(tiny.CONFIG, num_layers=NUM_LAYERS)
PROMPT = [5, 9, 11, 2, 40, 7, 33]
#: What each dialect's own numbers mean, as layers entered.
TAPS = {
    "official": (2, 4, 5),
    "sglang": (1, 3, 6),
    "speculators": (1, 3, 6),
    "speculators_flags": (1, 3, 6),
    "nvidia": (2, 4, 5),
}
DIALECT = {name: "speculators" if "speculators" in name else name for name in TAPS}


def made(name: str, path: Path) -> Path:
    return head_dialects.WHOLE[name](path / name)


def load(path: Path) -> Eagle3Checkpoint:
    return Eagle3Checkpoint.load(path, allow_pickles=True)


@pytest.mark.parametrize("name", TAPS)
def test_every_dialect_is_read_and_drafts(name: str, tmp_path: Path) -> None:
    head = Head.open(made(name, tmp_path), allow_pickles=True)
    assert head.dialect.name == DIALECT[name]
    checkpoint = Eagle3Checkpoint.of(head)
    config = checkpoint.config
    assert (config.hidden_size, config.num_kv_heads, config.head_dim) == (32, 2, 16)
    assert (config.vocab_size, config.draft_vocab_size) == (61, 23)
    assert config.rope_theta == (10000.0 if name == "official" else 500000.0)
    assert (config.rope_scaling is not None) == (name not in ("official", "sglang"))
    assert f"{LAYER}.mlp.up_proj.weight" in checkpoint.tensors
    assert checkpoint.target_ids.tolist() == [2 * i + 3 for i in range(23)]
    target = tiny.target(TARGET)
    drafter = drafter_of(checkpoint, target)
    assert drafter.tap_layers == TAPS[name]
    state = drafter.new_state(8)
    taps = target.prefill(target.new_cache(16), PROMPT[:-1], drafter.tap_layers).taps
    drafter.observe(state, PROMPT[1:], taps)
    assert drafter.draft(state, TreePlan(3, 2, 8)).tree.validate().num_nodes == 8


def drafter_of(checkpoint: Eagle3Checkpoint, target: TorchTarget) -> Eagle3Drafter:
    model, layers = target.model, target.limits.num_layers
    return Eagle3Drafter(
        checkpoint, model.embedding, layers, tiny.MAX_LEN, torch.float32, model.output
    )


def counting_target() -> TorchTarget:
    """A target whose layer i outputs the constant i + 2; the embedding is 1."""
    weights = tiny.weights(TARGET)
    step = torch.nn.functional.silu(torch.ones(1)).item() * TARGET.intermediate_size
    for name, tensor in weights.items():
        tensor.fill_(1.0 if tensor.dim() == 1 or "embed" in name else 0.0)
        if "gate_proj" in name or "up_proj" in name:
            tensor.fill_(1 / TARGET.hidden_size)  # of a constant, the normed sum is 1
        if "down_proj" in name:
            tensor.fill_(1 / step)
    return TorchTarget(Llama(weights, TARGET, torch.float32, tiny.MAX_LEN), tiny.MAX_LEN)


@pytest.mark.parametrize("name", TAPS)
def test_the_captured_triple_is_what_the_dialect_means(name: str, tmp_path: Path) -> None:
    target = counting_target()
    drafter = drafter_of(load(made(name, tmp_path)), target)
    taps = target.prefill(target.new_cache(8), [1, 2, 3], drafter.tap_layers).taps
    outputs = taps.unflatten(-1, (3, -1)).mean((0, 2)) - 2
    assert outputs.tolist() == pytest.approx([layer - 1 for layer in TAPS[name]], abs=1e-3)


@pytest.mark.parametrize("name", TAPS)
def test_too_few_layers(name: str, tmp_path: Path) -> None:
    config = load(made(name, tmp_path)).config
    with pytest.raises(CheckpointError, match="has layers 0 to 3"):
        config.taps_for(4)


def test_lists_of_layers_that_contradict_each_other(tmp_path: Path) -> None:
    path = made("sglang", tmp_path)
    head_dialects.edit_config(path, eagle_aux_hidden_state_layer_ids=[1, 3, 6])
    assert load(path).config.tap_layers == (1, 3, 6)
    head_dialects.edit_config(path, eagle_aux_hidden_state_layer_ids=[0, 2, 5])
    with pytest.raises(CheckpointError, match="eagle_aux_hidden_state_layer_ids"):
        load(path)


def test_a_single_file(tmp_path: Path) -> None:
    path = made("nvidia", tmp_path)
    assert load(path / "model.safetensors").config == load(path).config
    save_file(load_file(path / "model.safetensors"), path / "other.safetensors")
    with pytest.raises(ModelNotFoundError, match="found 2"):
        load(path)
    assert load(path / "other.safetensors").config.vocab_size == 61
    (path / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        load(path / "other.safetensors")


class Evil:
    """Runs code where a pickle is read without care."""

    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_pickles_are_refused_unless_allowed(tmp_path: Path, capsys: Any) -> None:
    path = made("official", tmp_path)
    with pytest.raises(CheckpointError, match=r"pickle.*convert-head"):
        Eagle3Checkpoint.load(path)
    whole = Eagle3Checkpoint.load(path, allow_pickles=True)
    wanted = load(head_dialects.official(tmp_path / "safe", pickled=False))
    assert whole.tensors.keys() == wanted.tensors.keys()
    assert all(torch.equal(t, wanted.tensors[name]) for name, t in whole.tensors.items())
    weights = path / "pytorch_model.bin"
    torch.save({"fc.weight": Evil()}, weights)
    for content in (weights.read_bytes(), pickle.dumps(Evil()), b"", b"\x80nonsense"):
        weights.write_bytes(content)
        with pytest.raises(CheckpointError, match="cannot be read"):
            Eagle3Checkpoint.load(path, allow_pickles=True)
    torch.save([torch.ones(1)], weights)
    with pytest.raises(CheckpointError, match="more than named tensors"):
        Eagle3Checkpoint.load(path, allow_pickles=True)
    assert "run" not in capsys.readouterr().out


def test_everything_missing_and_foreign_is_named(tmp_path: Path) -> None:
    path = head_dialects.incomplete(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        load(path)
    for name in ("k_proj.weight", "norm.weight", "q_norm.weight"):
        assert f"{name}" in str(caught.value)
    head = Head.open(path)
    assert head.missing == ["midlayer.self_attn.k_proj.weight", "norm.weight"]
    assert head.unexpected == ["midlayer.self_attn.q_norm.weight"]


def test_no_tensor_can_go_missing_unseen(tmp_path: Path) -> None:
    path = made("speculators_flags", tmp_path)
    whole = load_file(path / "model.safetensors")
    for name in whole.keys() - {"t2d"}:
        save_file({n: t for n, t in whole.items() if n != name}, path / "model.safetensors")
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            load(path)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("d2t", torch.zeros(23), "d2t float32"),
        ("norm.weight", torch.zeros(32, dtype=torch.int8), "norm.weight int8"),
    ],
)
def test_types_that_tensors_cannot_have(
    name: str, wrong: Any, message: str, tmp_path: Path
) -> None:
    path = made("sglang", tmp_path)
    save_file(load_file(path / "model.safetensors") | {name: wrong}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load(path)


def test_a_layer_under_both_names(tmp_path: Path) -> None:
    path = made("sglang", tmp_path)
    more = {"layers.0.mlp.up_proj.weight": torch.zeros(40, 32)}
    save_file(load_file(path / "model.safetensors") | more, path / "model.safetensors")
    with pytest.raises(CheckpointError, match="both"):
        load(path)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_hidden_layers": 2}, "num_hidden_layers"),
        ({"draft_vocab_size": 62}, "draft_vocab_size"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type"),
        ({"rope_scaling": {"low_freq_factor": None}}, "low_freq_factor"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention"]}, "layer_types"),
        ({"quantization_config": {"quant_algo": "FP8"}}, "quantization_config"),
        ({"target_hidden_size": 64}, "target_hidden_size"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
        ({"eagle_config": {"use_mtp_layernorm": True}}, "use_mtp_layernorm"),
        ({"eagle_config": {"parallel_draft_step": 2}}, "parallel_draft_step"),
        ({"eagle_config": {"use_last_layernorm": "no"}}, "use_last_layernorm"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, "2"]}}, "layer_ids"),
        ({"norm_before_fc": True, "fc_norm": True}, "fc_norm"),
        ({"norm_output": True, "eagle_config": {"use_last_layernorm": False}}, "norm_output"),
        ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "Eagle3DeepseekV2ForCausalLM"),
        ({"speculators_model_type": "dflash", "architectures": ["X"]}, "dflash"),
    ],
)
def test_configs_that_no_drafter_here_runs(
    values: dict[str, Any], named: str, tmp_path: Path
) -> None:
    path = made("nvidia", tmp_path)
    head_dialects.edit_config(path, **values)
    with pytest.raises(CheckpointError, match=named):
        load(path)


ODD: tuple[Any, ...] = (None, True, -1, 0, 3, 1e400, "x", [], ["x"], [3, 5], {}, {"a": 1})


@pytest.mark.parametrize("name", TAPS)
def test_odd_values_give_typed_errors(name: str, tmp_path: Path) -> None:
    data = json.loads((made(name, tmp_path) / "config.json").read_text())
    data.setdefault("eagle_config", {}), data.setdefault("rope_scaling", {})
    places = [data, *(value for value in data.values() if isinstance(value, dict))]
    fields = []
    for place in places:
        for key in list(place):
            kept = place[key]
            for place[key] in ODD:
                try:
                    config = dialect_of(data, "config.json").read(data, "config.json")
                    config.taps_for(NUM_LAYERS)
                    config.shapes()
                    read_proposal(data, "config.json")
                except AdaptiveSpecError as error:
                    fields.append(error.field)
            place[key] = kept
    assert len(fields) > 50
    assert set(fields) == {"draft_model"}


def test_equal_vocabularies_leave_out_what_the_target_lends(tmp_path: Path) -> None:
    path = made("sglang", tmp_path)
    tensors = load_file(path / "model.safetensors")
    for name in ("d2t", "t2d", "lm_head.weight"):
        del tensors[name]
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"2 missing: lm_head\.weight, d2t"):
        load(path)
    head_dialects.edit_config(path, draft_vocab_size=None)
    head = Head.open(path)
    assert head.borrowed == ["embed_tokens.weight", "lm_head.weight"]
    checkpoint = Eagle3Checkpoint.of(head)
    assert checkpoint.target_ids.tolist() == list(range(61))
    checkpoint.save_as(tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["draft_vocab_size"] is None
    assert load(tmp_path / "again").config == checkpoint.config
    assert logits_of(checkpoint).shape == (3, 61)


def test_a_tied_head_uses_its_own_embedding(tmp_path: Path) -> None:
    path = made("sglang", tmp_path)
    tensors = load_file(path / "model.safetensors")
    for name in ("d2t", "t2d", "lm_head.weight"):
        del tensors[name]
    own = torch.randn(61, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    save_file(tensors | {"embed_tokens.weight": own}, path / "model.safetensors")
    head_dialects.edit_config(path, draft_vocab_size=None, tie_word_embeddings=True)
    tied = load(path)
    spelled_out = replace(tied, tensors=tied.tensors | {"lm_head.weight": own})
    torch.testing.assert_close(logits_of(tied), logits_of(spelled_out))
    untied = replace(tied, config=replace(tied.config, tie_word_embeddings=False))
    assert not torch.allclose(logits_of(tied), logits_of(untied))

"""Every family, and models of none, against transformers itself on checkpoints that it saved."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from adaptivespec.core.errors import CheckpointError, ConfigError, FallbackWarning
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.loading import Backend, context_limit, drafter_for, read_config
from adaptivespec.engine.model.transformers_model import load_model
from adaptivespec.engine.model.transformers_target import TransformersTarget
from adaptivespec.engine.target import Target
from adaptivespec.engine.tokens import Tokenizer
from engine.family_golden import lineage, logits, reference
from fakes import families, targets, tiny
from fakes.other_models import OTHERS, save_other
from fakes.scripted import COSTS, ScriptedDrafter

transformers = pytest.importorskip("transformers", reason="needs transformers, to compare with it")

PROMPT = [(37 * i + 3) % families.VOCAB for i in range(24)]
TAPS = (0, 1, 2)


def load(path: Path, backend: str = "torch", dtype: str = "float32") -> Target[Any]:
    """As Engine.from_pretrained does it."""
    config = read_config(path)
    limit = context_limit(None, config.max_position_embeddings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        chosen = Backend.choose(backend, dtype).for_model(config, limit)
    return chosen.load(path, config, limit, None)[0]


def assert_equal(target: Target[Any], model: Any, tree: DraftTree, tolerance: float) -> None:
    """Prefill, steps, taps, and every node of the tree, against whole passes of the model."""
    cache = target.new_cache(4)
    out = target.prefill(cache, PROMPT, TAPS)
    assert targets.deviation(out.logits[0], logits(model, PROMPT)[-1]) < tolerance
    with torch.inference_mode():
        states = model(
            input_ids=torch.tensor([PROMPT]), output_hidden_states=True, use_cache=False
        ).hidden_states
    want = torch.cat([states[layer][0] for layer in TAPS], -1)
    assert targets.deviation(out.taps, want) < tolerance
    steps, ids = target.new_cache(4), PROMPT[:6]
    got = [target.prefill(steps, [token]).logits for token in ids]
    assert targets.deviation(torch.cat(got), logits(model, ids)) < tolerance
    tokens, parents = tree.token.tolist(), tree.parent.tolist()
    found = target.verify(cache, tree, TAPS)
    for node in range(tree.num_nodes):
        path = [*PROMPT, *(tokens[i] for i in lineage(parents, node))]
        assert targets.deviation(found.logits[node], logits(model, path)[-1]) < tolerance
    kept = lineage(parents, tree.num_nodes - 1)
    target.commit(cache, kept)
    after = target.verify(cache, DraftTree.root_only(9)).logits[0]
    path = [*PROMPT, *(tokens[i] for i in kept), 9]
    assert targets.deviation(after, logits(model, path)[-1]) < tolerance


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Random trees of up to 9 nodes in a topological order."""
    n = draw(st.integers(0, 8))
    parents = [-1, *(draw(st.integers(0, i)) for i in range(n))]
    tokens = [draw(st.integers(0, families.VOCAB - 1)) for _ in range(n + 1)]
    return DraftTree.from_parents(tokens, parents)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each family by save_pretrained."""
    made = {}
    for family in families.FAMILIES:
        made[family] = tmp_path_factory.mktemp(family)
        reference(families.CONFIGS[family]).save_pretrained(made[family])
        families.write_tokenizer(made[family])
    return made


@pytest.mark.parametrize("backend", ["torch", "native", "transformers"])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_family_answers_as_transformers_does(
    saved: dict[str, Path], family: str, backend: str
) -> None:
    """On our forwards through Engine.from_pretrained, and through the fallback as well."""
    model = transformers.AutoModelForCausalLM.from_pretrained(saved[family])
    if backend == "transformers":
        target: Target[Any] = TransformersTarget(load_model(saved[family], torch.float32), 128)
    elif backend == "native":
        targets.native()
        target = Engine.from_pretrained(saved[family], backend="native", dtype="exact").target
    else:
        target = Engine.from_pretrained(saved[family], backend="torch", dtype="float32").target

    @given(tree=trees())
    @settings(max_examples=3, database=None)
    def check(tree: DraftTree) -> None:
        assert_equal(target, model, tree, 2e-2 if backend == "native" else 1e-4)

    check()


@pytest.mark.parametrize("kind", OTHERS)
def test_the_fallback_answers_as_transformers_does(kind: str, tmp_path: Path) -> None:
    path = save_other(kind, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    target = load(path)
    assert target.backend == "transformers"
    assert load(path, dtype="bfloat16").precision == "bfloat16"  # is not taken for unfit

    @given(tree=trees())
    @settings(max_examples=3, database=None)
    def check(tree: DraftTree) -> None:
        assert_equal(target, model, tree, 1e-4)

    check()


def test_a_scaled_rope_that_ours_lack_falls_back(tmp_path: Path) -> None:
    """And a family of ours with biases that ours lack."""
    for name, changes in {
        "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "biased": {"attention_bias": True},
    }.items():
        torch.manual_seed(0)
        config = transformers.LlamaConfig(**(families.CONFIGS["llama-2"] | changes))
        model = transformers.LlamaForCausalLM(config).float().eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.15)
        model.save_pretrained(tmp_path / name)
        target = load(tmp_path / name)
        assert target.backend == "transformers"
        assert_equal(target, model, DraftTree.from_parents([7, 8, 9, 4], [-1, 0, 0, 2]), 1e-4)


def test_it_is_said_once_and_native_by_name_is_refused(tmp_path: Path) -> None:
    path = save_other("gpt_neox", tmp_path)
    config = read_config(path)
    for backend, dtype, precision in (
        ("torch", "float32", "float32"),
        ("auto", "exact", "float32"),
    ):
        with pytest.warns(FallbackWarning, match="transformers serves.*'gpt_neox'") as told:
            chosen = Backend.choose(backend, dtype).for_model(config, 128)
        assert len(told) == 1
        assert chosen.load(path, config, 128, None)[0].precision == precision
    targets.native()
    with pytest.raises(ConfigError, match=r"native does not serve.*'gpt_neox'.*torch or auto"):
        Backend.choose("native", "exact").for_model(config, 128)


@pytest.mark.parametrize("kind", ["gpt_neox", "gemma2"])
def test_strict_speculation_equals_plain_decoding(kind: str, tmp_path: Path) -> None:
    """In a session too, whose rows are those of earlier turns: with a random head, and with a
    drafter that knows two tokens of three, as the root's second child."""
    path = save_other(kind, tmp_path)
    target, tokenizer = load(path), Tokenizer.from_dir(path)
    whole: list[int] = []

    def nodes(prefix: tuple[int, ...]) -> list[tuple[int, int]]:
        at = len(prefix) + 1
        right = [(token + (at % 3 == 0)) % families.VOCAB for token in (whole[at : at + 2])]
        wrong = [(7, -1), (8, 0)]
        return [*wrong, *((token, -1 if i == 0 else 1 + i) for i, token in enumerate(right))]

    head = tiny.head(
        hidden_size=64, vocab_size=families.VOCAB, draft_vocab_size=140, tap_layers=(0, 1, 2)
    )
    options: dict[str, Any] = {"raw": True, "max_tokens": 20, "ignore_eos": True}
    for drafter in (drafter_for(target, head), ScriptedDrafter(nodes)):
        engine = Engine(target, tokenizer, drafter, "tiny")
        engine._costs = COSTS
        session, text, accepted = engine.session(), "One, two", 0
        for policy in ("static:2,20,90", "chain", "dcs", "static:3,4,14"):
            plain = engine.generate(text, policy="none", **options)
            whole[:] = [*tokenizer.encode(text), *plain.token_ids]
            for where in ({}, {"session": session}):
                got = engine.generate(text, policy=policy, **options, **where)
                assert got.token_ids == plain.token_ids
                accepted += got.stats.num_accepted_draft_tokens
            text += " and three"
    assert accepted > 20


def test_rows_are_copied_cut_and_forgotten(tmp_path: Path) -> None:
    target = load(save_other("gemma2", tmp_path))
    cache, other, ids = target.new_cache(4), target.new_cache(4), PROMPT[:12]
    target.prefill(other, ids)
    target.verify(other, DraftTree.chain([4, 5, 6]))  # tentative rows are not copied
    target.prefill(cache, [3, 1, 4])
    assert target.copy(cache, other, 7)
    target.truncate(other, 0)
    target.prefill(other, [9] * 20)
    target.verify(cache, DraftTree.chain([4, 5, 6]))
    target.truncate(cache, 6)
    assert target.length(cache) == 6
    got = target.prefill(cache, ids[6:]).logits
    assert targets.deviation(got, target.prefill(target.new_cache(4), ids).logits) < 1e-4


@pytest.mark.parametrize(
    ("kind", "sizes", "match"),
    [
        ("bloom", {"n_layer": 2, "n_head": 4}, "takes no position_ids|max_position_embeddings"),
        ("mamba", {"max_position_embeddings": 128}, "takes no|layers of"),
        ("falcon_h1", {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16}, "a falcon_h1"),
        ("recurrent_gemma", {"lru_width": 64, "max_position_embeddings": 128}, "recurrent_gemma"),
    ],
)
def test_a_state_that_no_rows_can_be_taken_from_is_refused(
    kind: str, sizes: dict[str, Any], match: str, tmp_path: Path
) -> None:
    common = {"vocab_size": 288, "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96}
    config = transformers.AutoConfig.for_model(kind, **(common | sizes))
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=match):
        load(tmp_path)


def test_a_model_that_heeds_no_mask_is_found_out(tmp_path: Path) -> None:
    model = load_model(save_other("gpt_neox", tmp_path), torch.float32)
    inner = model.gpt_neox.forward
    model.gpt_neox.forward = lambda *a, **k: inner(*a, **(k | {"attention_mask": None}))
    with pytest.raises(ConfigError, match="answers a tree otherwise") as caught:
        TransformersTarget(model, 128)
    assert caught.value.field == "model"
    model.gpt_neox.forward = lambda *a, **k: inner(*a, **(k | {"position_ids": None}))
    with pytest.raises(ConfigError, match="answers a tree otherwise"):
        TransformersTarget(model, 128)


def test_tensors_are_never_made_up(tmp_path: Path) -> None:
    path = save_other("gpt_neox", tmp_path)
    tensors = load_file(path / "model.safetensors")
    lost = "gpt_neox.layers.1.mlp.dense_h_to_4h.weight"
    save_file({k: v for k, v in tensors.items() if k != lost}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"1 missing: {lost}"):
        load(path)
    save_file(tensors | {"extra": torch.ones(2)}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match="1 unexpected: extra"):
        load(path)
    save_file(tensors | {lost: torch.ones(2, 3)}, path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=rf"1 mis-shaped: {lost} \[2, 3\] instead of \[96, 64\]"
    ):
        load(path)
    (path / "model.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(CheckpointError, match="cannot load the weights"):
        load(path)
    torch.save(tensors, path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="pickled weights are not read"):
        load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "x"},
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 2},
        {"hidden_act": "nonsense"},
        {"rope_parameters": 3},
        {"rope_parameters": {"rope_type": "nonsense"}},
        {"vocab_size": None},
        {"model_type": "t5"},
        {"model_type": ["gpt_neox"]},
    ],
)
def test_a_config_that_no_model_fits_is_a_typed_error(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    path = save_other("gpt_neox", tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises((ConfigError, CheckpointError)) as caught:
        load(path)
    assert caught.value.remedy


def test_code_of_a_model_is_never_run(tmp_path: Path) -> None:
    config = families.CONFIGS["llama-2"] | {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"},
    }
    families.write_dir(tmp_path, config, {"x": torch.ones(1)})
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ConfigError, match=r"'mine' is not supported.*code of their own"):
        read_config(tmp_path)


def test_a_rotation_that_changes_with_the_text_is_refused(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0}
    families.write_dir(tmp_path, families.CONFIGS["llama-2"] | {"rope_scaling": rope}, {})
    with pytest.raises(ConfigError, match="changes with the text's length"):
        read_config(tmp_path)


def test_an_engine_of_it_is_had_as_of_any_model(tmp_path: Path) -> None:
    path = save_other("gpt_neox", tmp_path)
    with pytest.warns(FallbackWarning, match=r"transformers serves.*'gpt_neox'"):
        engine = Engine.from_pretrained(path, dtype="float32")
    assert engine.target.backend == "transformers"
    assert engine.generate("what?", raw=True, max_tokens=5, ignore_eos=True).text

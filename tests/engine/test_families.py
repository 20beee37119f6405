"""Every family on both backends from every file format, against what transformers answered."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.core.tree import DraftTree
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.loading import read_config
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.engine.target import Target
from adaptivespec.engine.tokens import Tokenizer
from engine.family_golden import FILE, KEPT, PROMPT, TREE, lineage
from fakes import families, targets
from native.formats import random_tensor

GOLDEN: dict[str, Any] = json.loads(FILE.read_text())
#: Of the logits' spread, per backend: float32, and activations of 16 bits.
TOLERANCES = {"torch": 1e-4, "native": 2e-2}
BACKENDS = {
    "torch": {"backend": "torch", "dtype": "float32"},
    "native": {"backend": "native", "dtype": "exact"},
}
each_family = pytest.mark.parametrize("family", families.FAMILIES)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def load(path: Path, backend: str, **options: Any) -> Engine:
    """The engine as a user loads it; the test is skipped where there is no native one."""
    if backend == "native":
        targets.native()
    return Engine.from_pretrained(path, **BACKENDS[backend], **options)


def golden_deviation(target: Target[Any], family: str) -> float:
    """Largest distance from the golden logits of prompt and tree, in their spreads."""
    cache, tree = target.new_cache(8), DraftTree.from_parents(*TREE)
    got = [target.prefill(cache, PROMPT).logits, target.verify(cache, tree).logits]
    want = torch.tensor([GOLDEN[family]["prompt"], *GOLDEN[family]["tree"]])
    return targets.deviation(torch.cat(got)[:, :KEPT], want)


def test_the_golden_file_is_of_these_models() -> None:
    """Else it is to be written anew: see engine/family_golden.py."""
    assert {family: kept["config"] for family, kept in GOLDEN.items()} == families.CONFIGS


@each_backend
@each_family
def test_answers_as_transformers_did(family: str, backend: str, tmp_path: Path) -> None:
    engine = load(families.write_dir(tmp_path, families.CONFIGS[family]), backend)
    assert golden_deviation(engine.target, family) < TOLERANCES[backend]


@each_backend
@pytest.mark.parametrize("family", ["llama-2", "qwen2.5", "qwen3"])
def test_steps_equal_a_prefill_and_a_kept_branch_its_path(
    family: str, backend: str, tmp_path: Path
) -> None:
    target = load(families.write_dir(tmp_path, families.CONFIGS[family]), backend).target
    tokens, parents = TREE
    for leaf in (3, 5):
        cache, path = target.new_cache(4), lineage(parents, leaf)
        for token in PROMPT:
            last = target.prefill(cache, [token]).logits
        whole = target.prefill(target.new_cache(4), PROMPT).logits
        assert targets.deviation(last, whole) < 1e-4
        target.verify(cache, DraftTree.from_parents(*TREE))
        target.commit(cache, path)
        got = target.verify(cache, DraftTree.root_only(9)).logits
        ids = [*PROMPT, *(tokens[node] for node in path), 9]
        want = target.prefill(target.new_cache(4), ids).logits
        assert targets.deviation(got, want) < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_backend
def test_sharded_half_precision_files_give_their_own_weights(
    backend: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """As a model whose float32 weights are the rounded ones."""
    config = families.CONFIGS["qwen2.5"] | {"dtype": str(dtype).removeprefix("torch.")}
    rounded = {name: t.to(dtype).float() for name, t in families.weights(config).items()}
    sharded = families.write_dir(tmp_path / "sharded", config, dtype=dtype, shards=3)
    whole = families.write_dir(tmp_path / "whole", config | {"dtype": "float32"}, rounded)
    got, want = (targets.logits(load(path, backend).target, PROMPT) for path in (sharded, whole))
    assert targets.deviation(got, want) < (1e-6 if backend == "torch" else 2e-2)


@each_backend
@each_family
def test_gguf_gives_the_same_model(family: str, backend: str, tmp_path: Path) -> None:
    """Row orders, names, metadata: for Llama's ropes that GGUF can spell, the golden logits."""
    config = families.CONFIGS[family]
    path = tmp_path / "model.gguf"
    families.write_gguf(path, config)
    scaled = "llama3" in json.dumps(config)
    if scaled:  # its divisors are another tensor, which test_gguf.py has
        config = {k: v for k, v in config.items() if k not in ("rope_scaling", "rope_parameters")}
        config |= {"rope_theta": 500000.0}
    engine = load(path, backend)
    if not scaled:
        assert golden_deviation(engine.target, family) < TOLERANCES[backend]
    plain = load(families.write_dir(tmp_path / "plain", config), backend).target
    got, want = (targets.logits(target, PROMPT) for target in (engine.target, plain))
    assert targets.deviation(got, want) < TOLERANCES[backend]


@each_backend
@pytest.mark.parametrize("family", ["mistral", "qwen2"])
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"])
def test_quantised_gguf_equals_its_decoded_weights(
    family: str, kind: str, backend: str, tmp_path: Path
) -> None:
    config = families.CONFIGS[family]
    decoded = families.write_gguf(tmp_path / "model.gguf", config, gguf.GGMLQuantizationType[kind])
    made = families.model_config(config)
    dense = TorchTarget(Llama(decoded, made, torch.float32, 64), 64)
    got = targets.logits(load(tmp_path / "model.gguf", backend).target, PROMPT)
    assert targets.deviation(got, targets.logits(dense, PROMPT)) < TOLERANCES[backend]


@each_backend
@pytest.mark.parametrize("family", ["qwen3"])
@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_k_quants_equal_their_decoded_weights(
    family: str, kind: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of random blocks, as nothing here makes such quants; a block has 256 columns."""

    def quantise(rows: Any, kind: gguf.GGMLQuantizationType) -> Any:
        return random_tensor(kind.name, *rows.shape, spread=0.1).data.reshape(len(rows), -1)

    monkeypatch.setattr(gguf.quants, "quantize", quantise)
    sizes = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64, "num_hidden_layers": 1}
    config, path = families.CONFIGS[family] | sizes, tmp_path / "model.gguf"
    decoded = families.write_gguf(path, config, gguf.GGMLQuantizationType[kind])
    made = families.model_config(config)
    dense = TorchTarget(Llama(decoded, made, torch.float32, 64), 64)
    got = targets.logits(load(path, backend).target, PROMPT)
    assert targets.deviation(got, targets.logits(dense, PROMPT)) < TOLERANCES[backend]


@each_family
def test_bfloat16_is_near(family: str, tmp_path: Path) -> None:
    path = families.write_dir(tmp_path, families.CONFIGS[family])
    target = Engine.from_pretrained(path, backend="torch", dtype="bfloat16").target
    assert golden_deviation(target, family) < 0.2


def test_the_tokenizer_of_a_gguf_cuts_as_qwen_does(tmp_path: Path) -> None:
    """One digit at a time, and composed characters; a kind that is not known is refused."""
    path = tmp_path / "model.gguf"
    families.write_gguf(path, families.CONFIGS["qwen3"])
    tokenizer = Tokenizer.from_gguf(path)
    pieces = tokenizer._backend.pre_tokenizer.pre_tokenize_str("it's 2026\n\n  ok")
    assert [piece for piece, _ in pieces] == [
        "it", "'s", "\u0120", "2", "0", "2", "6", "\u010a\u010a", "\u0120", "\u0120ok"
    ]  # fmt: skip
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\xe9")
    assert tokenizer.encode("<|im_start|>") == [1]
    families.write_gguf(path, families.CONFIGS["qwen3"], pre="tekken")
    with pytest.raises(CheckpointError, match=r"pre 'tekken'.*qwen2"):
        Tokenizer.from_gguf(path)


@each_backend
def test_a_window_shorter_than_the_text_is_refused(backend: str, tmp_path: Path) -> None:
    config = families.CONFIGS["mistral"] | {"sliding_window": 64}
    families.write_dir(tmp_path, config)
    with pytest.raises(ConfigError, match=r"sees 64 positions.*128 tokens.*at most 64") as caught:
        load(tmp_path, backend)
    assert caught.value.field == "max_model_len"
    target = load(tmp_path, backend, max_model_len=64).target
    assert golden_deviation(target, "mistral") < TOLERANCES[backend]


def test_without_transformers_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    families.write_dir(tmp_path, families.CONFIGS["llama-2"] | {"model_type": "gpt_neox"}, {})
    with pytest.raises(ConfigError, match=r"'gpt_neox' is not supported.*not installed") as caught:
        read_config(tmp_path)
    assert caught.value.remedy == (
        "pip install transformers. What runs without: llama, mistral, qwen2, qwen3"
    )


@each_backend
def test_a_text_is_that_of_the_greedy_choices(backend: str, tmp_path: Path) -> None:
    engine = load(families.write_dir(tmp_path, families.CONFIGS["qwen3"]), backend)
    assert engine.tokenizer.think_ids == (3, 4)
    result = engine.generate("what?", raw=True, max_tokens=12, ignore_eos=True)
    ids = engine.tokenizer.encode("what?")
    for _ in range(12):
        ids.append(int(targets.logits(engine.target, ids)[-1].argmax()))
    assert list(result.token_ids) == ids[-12:]

"""GGUF: names, row order, quantisations, metadata, tokenizers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptivespec.core.errors import CheckpointError, ConfigError
from adaptivespec.engine.tokens import Tokenizer
from adaptivespec.engine.weights.config import ModelConfig
from adaptivespec.engine.weights.gguf_config import llama3_factors
from adaptivespec.engine.weights.gguf_file import GgufFile, canonical_name, unpermute_rope
from adaptivespec.engine.weights.load import load_weights
from fakes.tiny_gguf import (
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    MIXED,
    SPECIALS,
    hf_weights,
    permute,
    to_gguf_rows,
    vocabulary,
)

Kind = gguf.GGMLQuantizationType
SCORES = "tokenizer.ggml.scores"


@given(
    heads=st.integers(1, 6),
    half=st.integers(1, 8),
    columns=st.integers(1, 5),
    seed=st.integers(0, 2**16),
)
def test_unpermute_inverts_the_row_by_row_permutation(heads, half, columns, seed):
    shape = (heads * 2 * half, columns)
    weight = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(unpermute_rope(permute(weight, heads), heads), weight)


def test_unpermuted_queries_rotate_as_the_permuted_ones_do(make_gguf):
    """Half-split rotation of the loaded rows is the interleaved rotation of the stored rows."""
    path = make_gguf()
    stored = to_gguf_rows("q_proj", hf_weights()["model.layers.0.self_attn.q_proj.weight"])
    loaded = load_weights(path, ModelConfig.from_gguf(path))[
        "model.layers.0.self_attn.q_proj.weight"
    ].numpy()
    x = np.random.default_rng(1).standard_normal(stored.shape[1])
    angle = 3 * 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    turn = np.exp(1j * angle)
    pairs = (stored @ x).reshape(HEADS, HEAD_DIM // 2, 2)
    interleaved = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
    halves = (loaded @ x).reshape(HEADS, 2, HEAD_DIM // 2)
    split = (halves[:, 0] + 1j * halves[:, 1]) * turn
    np.testing.assert_allclose(split, interleaved, rtol=1e-5)


def test_float32_weights_come_back_exactly(make_gguf):
    path = make_gguf()
    weights = load_weights(path, ModelConfig.from_gguf(path))
    assert set(weights) == set(hf_weights())
    for name, expected in hf_weights().items():
        np.testing.assert_array_equal(weights[name].numpy(), expected, err_msg=name)


@pytest.mark.parametrize(
    ("kinds", "tolerance"),
    [
        pytest.param(MIXED, 0.5, id="as-embedded"),
        pytest.param({"": Kind.F16}, 2e-3, id="F16"),
        pytest.param({"": Kind.BF16}, 2e-2, id="BF16"),
        pytest.param({"": Kind.Q8_0}, 3e-2, id="Q8_0"),
        pytest.param({"": Kind.Q4_0}, 0.5, id="Q4_0"),
        pytest.param({"": Kind.Q5_1}, 0.2, id="Q5_1"),
    ],
)
def test_quantised_weights_are_dequantised_before_rows_move(make_gguf, kinds, tolerance):
    path = make_gguf(kinds=kinds)
    weights = load_weights(path, ModelConfig.from_gguf(path))
    for name, expected in hf_weights().items():
        kind = next((kind for part, kind in kinds.items() if part in name), None)
        if kind is not None and expected.ndim == 2:
            rows = to_gguf_rows(name, expected)
            rows = gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)
            heads = HEADS if "q_proj" in name else KV_HEADS
            expected_rows = np.asarray(rows, dtype=np.float32)
            found = weights[name].numpy()
            found = permute(found, heads) if "q_proj" in name or "k_proj" in name else found
            np.testing.assert_array_equal(found, expected_rows, err_msg=name)
        assert np.abs(weights[name].numpy() - expected).max() < tolerance


def test_dtype_is_honoured_and_tensors_are_writable(tiny_gguf):
    weights = load_weights(tiny_gguf, ModelConfig.from_dir(tiny_gguf), torch.bfloat16)
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    load_weights(tiny_gguf, ModelConfig.from_dir(tiny_gguf))["model.norm.weight"].add_(1)
    again = load_weights(tiny_gguf, ModelConfig.from_dir(tiny_gguf))["model.norm.weight"]
    np.testing.assert_array_equal(again.numpy(), hf_weights()["model.norm.weight"])


def test_config_from_metadata(tiny_gguf):
    assert ModelConfig.from_dir(tiny_gguf) == ModelConfig(
        vocab_size=len(vocabulary()),
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rope_theta=10000.0,
        rope_scaling=None,
        rms_norm_eps=1e-5,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_ids=(0,),
        bos_token_id=1,
    )


def test_untied_embeddings(make_gguf):
    path = make_gguf(tied=False)
    config = ModelConfig.from_gguf(path)
    assert not config.tie_word_embeddings
    expected = hf_weights(tied=False)["lm_head.weight"]
    np.testing.assert_array_equal(load_weights(path, config)["lm_head.weight"].numpy(), expected)


def test_linear_rope_scaling(make_gguf):
    extra = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = ModelConfig.from_gguf(make_gguf(extra=extra))
    assert config.rope_scaling == {"rope_type": "linear", "factor": 4.0}


def test_llama3_rope_scaling_is_recovered_from_its_divisors(make_gguf):
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    extra = {"llama.rope.freq_base": 500000.0}
    factors = llama3_factors(scaling, 500000.0, HEAD_DIM)
    assert factors[0] == 1
    assert factors[-1] == 32
    path = make_gguf(extra=extra, extra_tensors={"rope_freqs.weight": factors})
    config = ModelConfig.from_gguf(path)
    assert config.rope_scaling == scaling
    assert "rope_freqs.weight" not in load_weights(path, config)
    odd = make_gguf(extra=extra, extra_tensors={"rope_freqs.weight": factors[::-1].copy()})
    with pytest.raises(ConfigError, match="rope_freqs"):
        ModelConfig.from_gguf(odd)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"architecture": "gemma2"}, "'gemma2' is not supported.*llama, qwen2, qwen3"),
        ({"architecture": "qwen3moe"}, "'qwen3moe' is not supported"),
        ({"extra": {"llama.attention.sliding_window": 64}}, "sliding window of 64 positions"),
        ({"extra": {"llama.expert_count": 8}}, "mixtures of experts"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, "'yarn' is not supported.*linear"),
        ({"extra": {"llama.rope.dimension_count": 4}}, "4 of 8 dimensions"),
        ({"extra": {"llama.attention.head_count": [4, 2]}}, "differs by layer"),
    ],
)
def test_unsupported_models_are_refused(make_gguf, changes, match):
    path = make_gguf(**changes)
    with pytest.raises(ConfigError, match=match) as caught:
        ModelConfig.from_gguf(path)
    assert caught.value.field == str(path)


def test_missing_metadata_is_named(make_gguf):
    with pytest.raises(CheckpointError, match=r"llama\.feed_forward_length is missing"):
        ModelConfig.from_gguf(make_gguf(drop=("llama.feed_forward_length",)))


def test_missing_and_unexpected_tensors_are_listed(make_gguf):
    path = make_gguf(
        drop_tensors=("model.norm.weight", "model.layers.1.self_attn.k_proj.weight"),
        extra_tensors={
            "blk.0.attn_q.bias": np.zeros(32, np.float32),
            "mystery.weight": np.zeros(3, np.float32),
        },
    )
    with pytest.raises(CheckpointError) as caught:
        load_weights(path, ModelConfig.from_gguf(path))
    text = str(caught.value)
    assert "2 missing: model.layers.1.self_attn.k_proj.weight, model.norm.weight" in text
    assert "2 unexpected: model.layers.0.self_attn.q_proj.bias, mystery.weight" in text


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a gguf file at all" * 10])
def test_foreign_files(tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a readable GGUF file") as caught:
        ModelConfig.from_dir(path)
    assert caught.value.field == str(path)
    assert caught.value.remedy


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.6, 0.9, 0.999])
def test_truncated_files(tiny_gguf, tmp_path, keep):
    content = tiny_gguf.read_bytes()
    path = tmp_path / "short.gguf"
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(CheckpointError, match=r"short\.gguf"):
        load_weights(path, ModelConfig.from_dir(path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        GgufFile.open(tmp_path / "none.gguf")


def test_a_replaced_file_is_read_anew(tmp_path, make_gguf):
    path = make_gguf()
    assert ModelConfig.from_gguf(path).max_position_embeddings == 128
    make_gguf(extra={"llama.context_length": 512})
    assert ModelConfig.from_gguf(path).max_position_embeddings == 512


def test_names():
    assert canonical_name("blk.17.ffn_down.weight") == "model.layers.17.mlp.down_proj.weight"
    assert canonical_name("output.weight") == "lm_head.weight"
    assert canonical_name("blk.0.ssm_in.weight") == "blk.0.ssm_in.weight"


class TestTokenizer:
    def test_digits_are_single_and_not_glued_to_space(self, tiny_gguf: Path):
        tokenizer = Tokenizer.from_dir(tiny_gguf)
        vocab = vocabulary()
        assert [vocab[i] for i in tokenizer.encode("hello  12")] == [
            "hello",
            "\u0120\u0120",
            "1",
            "2",
        ]

    @pytest.mark.parametrize(
        ("pre", "pieces"),
        [
            ("gpt-2", ["hello", "\u0120", "\u0120", "12"]),
            ("llama-bpe", ["hello", "\u0120", "\u0120", "12"]),
        ],
    )
    def test_other_pre_tokenizers(self, make_gguf, pre: str, pieces: list[str]):
        tokenizer = Tokenizer.from_gguf(make_gguf(pre=pre))
        ids = tokenizer.encode("hello  12")
        assert [vocabulary()[i] for i in ids] == pieces
        assert tokenizer.decode(ids) == "hello  12"

    @pytest.mark.parametrize(
        ("text", "pieces"),
        [
            # "el" has the best score and is joined first, so no "he" is left to join.
            ("hello", ["\u2581h", "el", "lo"]),
            ("hehe lo", ["\u2581", "he", "he", "\u2581", "lo"]),
            ("  h", ["\u2581", "\u2581", "\u2581h"]),
            ("h\n", ["\u2581h", "<0x0A>"]),
            ("h<|end|>h", ["\u2581h", "<|end|>", "\u2581h"]),
        ],
    )
    def test_sentencepiece(self, make_gguf, text: str, pieces: list[str]):
        """Best score first, bytes for what is no piece, a space before each run of text."""
        scored = {"el": -1.0, "he": -2.0, "lo": -3.0, "\u2581h": -4.0}
        tokens = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *"\u2581helo", *scored]
        scores = [scored.get(token, -100.0) for token in tokens]
        spec = {"tokenizer_model": "llama", "tokens": tokens, "merges": []}
        path = make_gguf(**spec, extra={SCORES: scores})
        tokenizer = Tokenizer.from_gguf(path)
        ids = tokenizer.encode(text)
        assert [tokens[i] for i in ids] == pieces
        if "<|" not in text:
            assert tokenizer.decode(ids) == text
        unprefixed = Tokenizer.from_gguf(
            make_gguf(**spec, extra={SCORES: scores, "tokenizer.ggml.add_space_prefix": False})
        )
        assert unprefixed.encode("h") == [tokens.index("h")]
        assert unprefixed.decode(unprefixed.encode(" h")) == " h"

    def test_special_tokens_and_template(self, tiny_gguf: Path):
        tokenizer = Tokenizer.from_gguf(tiny_gguf)
        assert tokenizer.special_ids == {0, 1, 2}
        assert tokenizer.eos_token_ids == (0,)
        ids = tokenizer.apply_chat_template([{"role": "u", "content": "hello"}])
        assert (ids[0], ids[-1]) == (1, 0)
        assert tokenizer.decode(ids, skip_special_tokens=False) == "<|start|>u: hello<|end|>"

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"pre": "tekken"}, "pre 'tekken'.*cannot be rebuilt.*smollm"),
            ({"tokenizer_model": "bert"}, "model 'bert'.*Hugging Face directory.*llama, and gpt2"),
            ({"tokenizer_model": "llama"}, r"tokenizer\.ggml\.scores is missing"),
            ({"tokenizer_model": "llama", "extra": {SCORES: [1.0]}}, "does not match"),
            ({"merges": ["l l", "x y z"]}, "merges name no token, first 'x y z'"),
            ({"tokens": ["a", "a", "b"], "merges": ["a b"]}, "twice"),
            ({"extra": {"tokenizer.ggml.eos_token_id": 99999}}, "eos_token_id 99999"),
        ],
    )
    def test_what_cannot_be_rebuilt_is_refused(self, make_gguf, changes, match):
        with pytest.raises(CheckpointError, match=match):
            Tokenizer.from_gguf(make_gguf(**changes))

"""The native backend: what it computes and refuses, and that strict is plain in every mode."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from adaptivespec import Engine
from adaptivespec.cli.main import app
from adaptivespec.core.errors import ConfigError
from adaptivespec.core.tree import DraftTree
from adaptivespec.draft.eagle3 import Eagle3Drafter
from adaptivespec.engine.costs import machine_key
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.engine.model.torch_target import TorchTarget
from adaptivespec.native import binding
from adaptivespec.native.build import NativeBuildError
from adaptivespec.native.library import Mode, NativeError, load_library
from fakes import targets, tiny, tiny_engine
from fakes.scripted import COSTS
from fakes.targets import deviation, logits

PROMPT = [5, 9, 11, 2, 40]
MODES = ("A8", "A16")
POLICIES = ("chain:1", "chain:5", "static:3,3,9", "eagle2:4,2,7", "dcs")
KIND = gguf.GGMLQuantizationType


def q8_0(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The nearest weights that the native engine keeps as they are."""
    quantise, decode = gguf.quants.quantize, gguf.quants.dequantize
    return {
        name: w
        if w.dim() == 1
        else torch.from_numpy(np.array(decode(quantise(w.numpy(), KIND.Q8_0), KIND.Q8_0)))
        for name, w in weights.items()
    }


CONFIGS = {
    "tied": targets.CONFIG,
    "untied": replace(targets.CONFIG, tie_word_embeddings=False),
    "linear": replace(targets.CONFIG, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama3": replace(
        targets.CONFIG,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "heads": replace(targets.CONFIG, num_heads=6, num_kv_heads=1, head_dim=32, num_layers=2),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_it_computes_what_torch_computes(name: str) -> None:
    config = CONFIGS[name]
    weights = q8_0(tiny.weights(config))
    want = logits(TorchTarget(Llama(weights, config, torch.float32, 128), 128), PROMPT)
    packed = targets.native_weights(weights)
    for mode, most in ((Mode.A16, 0.005), (Mode.A8, 0.2)):
        got = logits(NativeTarget(packed, config, 128, mode), PROMPT)
        assert deviation(got, want) < most


def test_threads_change_no_bit() -> None:
    one, two = (targets.native("A8", threads=threads) for threads in (1, 2))
    assert torch.equal(logits(one, PROMPT), logits(two, PROMPT))


def test_threads_of_python_may_share_a_model() -> None:
    target = targets.native("A8", threads=2)

    def decode(start: int) -> list[int]:
        cache, text = target.new_cache(4), [start]
        for _ in range(30):
            out = target.prefill(cache, text[-1:])
            text.append(int(out.logits.argmax()))
        return text

    alone = [decode(start) for start in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(decode, range(6))) == alone


@pytest.mark.parametrize("bad", [[5, 61], [5, -1]])
def test_a_bad_token_is_refused_and_harms_nothing(bad: list[int]) -> None:
    target = targets.native()
    cache = target.new_cache(4)
    target.prefill(cache, PROMPT)
    with pytest.raises(NativeError, match="token"):
        target.verify(cache, DraftTree.chain(bad))
    with pytest.raises(NativeError):
        target.verify(cache, DraftTree.root_only(3), (99,))
    assert target.length(cache) == len(PROMPT)
    got = target.verify(cache, DraftTree.root_only(3)).logits
    assert torch.equal(got[0], logits(target, [*PROMPT, 3])[-1])


def test_rows_beyond_the_context_are_refused() -> None:
    target = targets.native()
    cache = target.new_cache(4)
    target.prefill(cache, [1] * tiny.MAX_LEN)
    with pytest.raises(NativeError):
        target.verify(cache, DraftTree.root_only(3))
    with pytest.raises(ValueError, match="at least one"):
        target.prefill(cache, [])


# Decoding


@pytest.fixture(scope="module", params=MODES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """The tiny model with a torch drafter, in every mode."""
    target = targets.native(request.param)
    drafter = Eagle3Drafter(
        tiny.head(), target.embedding, 5, tiny.MAX_LEN, torch.float32, target.output
    )
    tokenizer: Any = tiny_engine.EndlessTokenizer()
    made = Engine(target, tokenizer, drafter, "tiny")
    made._costs = COSTS
    return made


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_strict_equals_plain(engine: Engine, policy: str, temperature: float) -> None:
    for prompt in ([3], PROMPT, list(range(30))):
        options = {"max_tokens": 50, "temperature": temperature, "seed": 5, "logprobs": True}
        plain = engine.generate(prompt, policy="none", **options)
        strict = engine.generate(prompt, policy=policy, **options)
        assert strict.token_ids == plain.token_ids
        assert [t.logprob for t in strict.tokens] == [t.logprob for t in plain.tokens]


@pytest.mark.parametrize("rule", ["margin:0.5", "safe"])
def test_lossy_rules_and_sessions_run(engine: Engine, rule: str) -> None:
    session = engine.session()
    first = engine.generate(PROMPT, rule=rule, policy="dcs", max_tokens=30, session=session)
    again = engine.generate(PROMPT, rule=rule, policy="dcs", max_tokens=30)
    assert first.token_ids == again.token_ids
    assert len(first.token_ids) == 30
    more = [*PROMPT, *first.token_ids, 4]
    kept = engine.generate(more, policy="dcs", max_tokens=9, session=session)
    assert kept.token_ids == engine.generate(more, policy="none", max_tokens=9).token_ids


def test_a_recording_wider_than_a_pass_is_the_plain_text(engine: Engine) -> None:
    plain = engine.generate(PROMPT, policy="none", max_tokens=12)
    recorded = engine.generate(PROMPT, trace=True, record=(6, 4), max_tokens=12)
    assert recorded.token_ids == plain.token_ids


def test_its_precision_has_a_name(engine: Engine) -> None:
    assert engine.dtype in MODES
    assert engine.dtype in machine_key(engine.target, "tiny", "")


# Refusals


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"intermediate_size": 48}, "intermediate_size"),
        ({"hidden_size": 40}, "hidden_size"),
        ({"head_dim": 24}, "head_dim"),
        ({"head_dim": 272}, "head_dim"),
    ],
)
def test_a_model_that_it_does_not_serve_is_refused(change: dict[str, int], named: str) -> None:
    config = replace(targets.CONFIG, **change)  # type: ignore[arg-type]
    weights = targets.native_weights(tiny.weights(config))
    with pytest.raises(ConfigError, match=named) as caught:
        NativeTarget(weights, config, 128)
    assert caught.value.field == "backend"
    assert "torch" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("options", "field", "remedy"),
    [
        ({"backend": "jax"}, "backend", "native"),
        ({"backend": "torch", "dtype": "exact"}, "dtype", "float32"),
        ({"backend": "native", "dtype": "bfloat16"}, "dtype", "exact"),
        ({"backend": "native", "dtype": "float32"}, "dtype", "torch"),
        ({"backend": "native", "dtype": "int3"}, "dtype", "auto"),
    ],
)
def test_what_makes_no_sense_together_is_refused(
    options: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Engine.from_pretrained("/nowhere", **options)
    assert caught.value.field == field
    assert remedy in str(caught.value.remedy)


def test_the_command_line_knows_it_too() -> None:
    done = CliRunner().invoke(
        app, ["generate", "-p", "x", "--backend", "native", "--dtype", "float32"]
    )
    assert done.exit_code != 0
    assert "dtype" in done.stderr
    assert "exact" in done.stderr


def test_without_a_compiler_the_remedy_is_said_before_a_model_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> Path:
        raise NativeBuildError("there is no C++ compiler", field="backend", remedy="Install g++")

    monkeypatch.setattr(binding, "library_path", none)
    load_library.cache_clear()
    try:
        with pytest.raises(NativeBuildError, match="Install g"):
            Engine.from_pretrained("/nowhere", backend="native")
    finally:
        load_library.cache_clear()


def test_a_foreign_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.so"
    path.write_bytes(b"no library")
    with pytest.raises(NativeError, match="Delete that file"):
        binding.Library(str(path))


# The embedded model


@pytest.mark.network
def test_the_command_answers_as_float32_does(model_cache: str | None) -> None:
    """A16 is practically float32, and speculation over it is exact, through the command line."""
    arguments = ["generate", "-p", "Name three rivers.", "--max-tokens", "24", "--offline", "-q"]
    command = [str(Path(sys.executable).with_name("adaptivespec")), *arguments]

    def answer(*options: str) -> str:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    targets.native()  # skips without a compiler
    exact = answer("--backend", "native", "--dtype", "exact")
    assert exact == answer("--dtype", "float32")
    assert len(exact) > 20
    assert len(answer("--backend", "native")) > 20


@pytest.mark.network
def test_strict_equals_plain_on_the_embedded_model(model_cache: str | None) -> None:
    targets.native()
    made = Engine.from_pretrained(backend="native", cache_dir=model_cache, local_files_only=True)
    prompt = "A baker sells 24 muffins a day for 3 dollars each. How much does he make in a week?"
    plain = made.generate(prompt, policy="none", max_tokens=48, logprobs=True)
    for policy in ("dcs", "static:5,4,16"):
        strict = made.generate(prompt, policy=policy, max_tokens=48, logprobs=True)
        assert strict.token_ids == plain.token_ids
        assert [t.logprob for t in strict.tokens] == [t.logprob for t in plain.tokens]
    assert all(math.isfinite(token.logprob) for token in plain.tokens)

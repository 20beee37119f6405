"""`--device cuda` without a GPU: nothing of a step may mix tensors of the host with the device's.

The device is `fakes.pretend_cuda`, its graphs are `fakes.tape`. What a real one does is asked in
test_cuda.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptivespec import Engine
from adaptivespec.core.errors import ConfigError, DeviceMemoryError
from adaptivespec.draft.eagle3_static import StaticEagle3Drafter
from adaptivespec.draft.graft import GraftDrafter
from adaptivespec.draft.ngram import NgramDrafter
from adaptivespec.draft.small_lm import SmallLMDrafter
from adaptivespec.engine import loading
from adaptivespec.engine.batch import Batch
from adaptivespec.engine.costs import machine_key
from adaptivespec.engine.devices import find_device, precision
from adaptivespec.engine.identity import backend_of
from adaptivespec.engine.loading import Backend
from adaptivespec.engine.model.llama import Llama
from adaptivespec.engine.model.static_target import StaticTarget
from adaptivespec.policy import POLICIES
from adaptivespec.verify import RULES
from fakes import families, tiny, tiny_engine
from fakes.pretend_cuda import CUDA, Far, pretend_cuda
from fakes.random_head import with_head
from fakes.scripted import COSTS
from fakes.tape import Tape

#: It repeats itself, for n-grams.
PROMPT = [3, 4, 5, 3, 4, 5, 3, 4, 5, 6, 7]
VOCAB, HIDDEN = tiny.CONFIG.vocab_size, tiny.CONFIG.hidden_size
#: Their trees depend on what passes took, so that no two runs are alike; tokens must be.
BY_CLOCK = ("bandit", "priced")
DRAFTERS = ("head", "ngram", "graft", "small")


def drafter(kind: str, target: StaticTarget) -> Any:
    model = target.model
    lent = model.embedding, 5, tiny.MAX_LEN, torch.float32, model.output
    ngram = NgramDrafter(VOCAB, target.device)
    if kind == "ngram":
        return ngram
    if kind == "small":
        return SmallLMDrafter(static_target(target.device, seed=1), VOCAB)
    head = StaticEagle3Drafter(tiny.head(), *lent)
    return GraftDrafter(head, ngram) if kind == "graft" else head


def static_target(device: torch.device, seed: int = 0) -> StaticTarget:
    weights = tiny.weights(seed=seed)
    model = Llama(weights, tiny.CONFIG, torch.float32, tiny.MAX_LEN, device)
    return StaticTarget(model, tiny.MAX_LEN)


def engine_on(device: torch.device, kind: str = "head") -> Engine:
    tokenizer: Any = tiny_engine.NumberTokenizer()
    target = static_target(device)
    made = Engine(target, tokenizer, drafter(kind, target), "none")
    made._costs = COSTS
    return made


@pytest.fixture
def tape() -> Iterator[Tape]:
    with pretend_cuda() as tape:
        yield tape


def seen(result: Any, statistics: bool = True) -> Any:
    about = result.stats.details() if statistics else {}
    about.pop("regret_nats", None)
    return result.token_ids, about


def compare(kind: str, asked: list[dict[str, Any]], tape: Tape) -> None:
    """The same requests on the host and on the pretended device."""
    near, far = engine_on(torch.device("cpu"), kind), engine_on(CUDA, kind)
    assert isinstance(far.target.model.embedding, Far)
    for options in asked:
        rule = options.pop("rule", "strict")
        rules = [with_head(RULES.create(rule), VOCAB, HIDDEN) for _ in range(2)]
        given = {"max_tokens": 7, "ignore_eos": True, **options}
        want = near.generate(PROMPT, rule=rules[0], **given)
        got = far.generate(PROMPT, rule=rules[1], **given)
        statistics = options.get("policy") not in BY_CLOCK
        assert seen(got, statistics) == seen(want, statistics), options
        for one, two in zip(got.tokens, want.tokens, strict=True):
            assert one.logprob == pytest.approx(two.logprob, abs=1e-4)
            assert [t for t, _ in one.top_logprobs] == [t for t, _ in two.top_logprobs]
    assert tape.replays > tape.captures > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_rule(temperature: float, tape: Tape) -> None:
    rules = [name for name in RULES.names() if temperature == 0 or RULES.load(name).sampling]
    assert {"strict", "margin", "judge", "semantic"} <= set(rules)
    compare(
        "head",
        [
            {
                "rule": name,
                "policy": "chain:3" if RULES.load(name).sampled_drafts else "static:3,3,8",
                "temperature": temperature,
                "seed": 3,
            }
            for name in rules
        ],
        tape,
    )


def test_every_policy(tape: Tape) -> None:
    compare("head", [{"policy": name} for name in POLICIES.names()], tape)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_every_drafter(kind: str, tape: Tape) -> None:
    compare(
        kind,
        [
            {"policy": "dcs"},
            {"policy": "static:4,3,12", "rule": "margin"},
            {"policy": "chain:3", "rule": "rejection", "temperature": 1.0, "seed": 5},
        ],
        tape,
    )


def test_every_way_to_ask(tape: Tape) -> None:
    drawn = {"temperature": 0.8, "top_p": 0.8, "top_k": 9, "min_p": 0.02, "seed": 4}
    weighed = {"frequency_penalty": 1.0, "repetition_penalty": 1.3, "logit_bias": {5: 3.0}}
    compare(
        "head",
        [
            {"policy": "eagle2:4,3,20", **drawn},
            {"policy": "dcs", "rule": "margin", "top_logprobs": 3, "min_tokens": 5, **weighed},
            {"policy": "static:3,2,7", "trace": True, **drawn, **weighed},
            {"trace": True, "record": (3, 3)},
        ],
        tape,
    )


def test_a_batch_and_rows_copied_within_it(tape: Tape) -> None:
    engine = engine_on(CUDA)
    asked = [(PROMPT * 3, "dcs"), ([*PROMPT * 3, 8, 9], "static:3,2,7")]
    given: dict[str, Any] = {"max_tokens": 10, "ignore_eos": True}
    alone = [engine.generate(prompt, policy=policy, **given) for prompt, policy in asked]
    batch = Batch(engine.target)
    members = [
        batch.add(engine.job(prompt, policy=policy, **given), engine.session())
        for prompt, policy in asked
    ]
    while batch.members:
        batch.step()
    assert [member.error for member in members] == [None, None]
    assert [m.answer.result.token_ids for m in members] == [r.token_ids for r in alone]
    assert max(member.decoder.cached_tokens for member in members) > 20


def test_costs_are_measured_and_kept_apart(tape: Tape, tmp_path: Path) -> None:
    engine, near = engine_on(CUDA), engine_on(torch.device("cpu"))
    engine._costs, engine._cache_dir = None, tmp_path
    waits = tape.waits
    assert engine.costs(full=False).verify
    assert tape.waits > waits  # a pass that has only been begun is not timed
    keys = [machine_key(each.target, "tiny", "") for each in (engine, near)]
    assert keys[0] != keys[1]
    assert "Pretended GPU" in keys[0]
    assert backend_of(engine) == "torch on Pretended GPU"
    assert backend_of(near) == "torch"


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama-3.2"])
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_model_is_loaded_there(family: str, device: str, tmp_path: Path, tape: Tape) -> None:
    """Biases, norms of heads, tied embeddings."""
    path = families.write_dir(tmp_path, families.CONFIGS[family])
    given: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "policy": "chain:3"}
    loaded = {"draft_model": "ngram", "dtype": "float32"}
    near = Engine.from_pretrained(path, backend="torch", **loaded)
    far = Engine.from_pretrained(path, device=device, **loaded)
    assert isinstance(far.target, StaticTarget)
    assert far.target.device == CUDA
    got, want = far.generate([5, 6, 5, 6, 5], **given), near.generate([5, 6, 5, 6, 5], **given)
    assert got.token_ids == want.token_ids


@pytest.mark.network
def test_the_embedded_model_and_its_head(tape: Tape, model_cache: str | None) -> None:
    loaded: dict[str, Any] = {"dtype": "float32", "cache_dir": model_cache}
    near = Engine.from_pretrained(backend="torch", **loaded)
    far = Engine.from_pretrained(device="cuda", **loaded)
    assert isinstance(far.drafter, StaticEagle3Drafter)
    for rule in ("strict", "margin:0.2"):
        want, got = (
            each.generate("What is 3 + 4?", rule=rule, policy="dcs", max_tokens=16)
            for each in (near, far)
        )
        assert seen(got) == seen(want)
        assert got.stats.num_accepted_draft_tokens > 0


def test_too_little_memory_is_said(
    tmp_path: Path, tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 8.00 GiB"
        )

    path = families.write_dir(tmp_path, families.CONFIGS["qwen2"])
    engine = Engine.from_pretrained(path, device="cuda", dtype="float32")
    session = engine.session()
    with monkeypatch.context() as patched:
        patched.setattr(StaticTarget, "_make", full)
        with pytest.raises(DeviceMemoryError) as caught:
            engine.generate([5, 6, 7], session=session, max_tokens=9)
    assert "Pretended GPU has too little memory (Tried to allocate 9.00 GiB" in str(caught.value)
    assert "--max-model-len" in str(caught.value.remedy)
    assert engine.generate([5, 6, 7], session=session, max_tokens=9).token_ids
    monkeypatch.setattr(loading, "Llama", full)
    with pytest.raises(DeviceMemoryError):
        Engine.from_pretrained(path, device="cuda", dtype="float32")


def test_a_closed_engine_leaves_nothing_behind(tape: Tape) -> None:
    engine = engine_on(CUDA)
    engine.generate(PROMPT, max_tokens=9, ignore_eos=True)
    kept = [weakref.ref(engine.target), weakref.ref(engine.drafter)]
    engine.close()
    assert [reference() for reference in kept] == [None, None]


class TestDevices:
    @pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CUDA", "mps", "cuda:-1", ""])
    def test_unknown_names(self, name: str) -> None:
        with pytest.raises(ConfigError, match=r"device: unknown device .*Use cpu, cuda or cuda:N"):
            find_device(name)

    def test_none_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.version, "cuda", None)
        with pytest.raises(ConfigError, match=r"built without CUDA. Install .*docs/cuda.md"):
            find_device("cuda")
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        with pytest.raises(ConfigError, match=r"finds no GPU. Check that nvidia-smi .*CUDA 12.8"):
            find_device("cuda:0")

    def test_one_too_few(self, tape: Tape) -> None:
        assert find_device("cuda") == find_device("cuda:0") == CUDA
        with pytest.raises(ConfigError, match=r"no cuda:1: GPUs here: 1"):
            find_device("cuda:1")

    def test_native_stays_on_the_cpu(self, tape: Tape) -> None:
        with pytest.raises(ConfigError, match="backend: the native backend runs on the CPU"):
            Backend.choose("native", "auto", device=CUDA)
        with pytest.raises(ConfigError, match="dtype: 'exact' belongs to the native backend"):
            Backend.choose("auto", "exact", device=CUDA)
        assert Backend.choose("auto", "auto", device=CUDA).name == "torch"

    def test_bfloat16_where_the_gpu_has_it(
        self, tape: Tape, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert precision("auto", CUDA) == torch.bfloat16
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
        assert precision("auto", CUDA) == torch.float32
        assert precision("bfloat16", CUDA) == torch.bfloat16


class TestPretence:
    """The stand-in finds what a device would refuse."""

    def test_it_computes(self, tape: Tape) -> None:
        x = torch.arange(4, device="cuda:0") + torch.tensor([1], device=CUDA)
        assert isinstance(x, Far)
        assert x.device == CUDA
        assert x[1:3].tolist() == [2, 3]
        assert int(x.sum()) == 10
        assert not isinstance(x.cpu(), Far)
        assert x.cpu().device.type == "cpu"

    @pytest.mark.parametrize(
        "mix",
        [
            lambda far, near: far + near,
            lambda far, near: torch.cat((far, near)),
            lambda far, near: far.gather(0, near),
            lambda far, near: near[far],
            lambda far, near: torch.where(far > 0, far, near),
            lambda far, near: far.index_select(0, near),
        ],
    )
    def test_places_are_not_mixed(self, mix: Any, tape: Tape) -> None:
        with pytest.raises(AssertionError, match="mixes a tensor of the host"):
            mix(torch.arange(3, device=CUDA), torch.arange(3))

    def test_lists_are_no_index(self, tape: Tape) -> None:
        with pytest.raises(AssertionError, match="index by a tensor"):
            torch.arange(3, device=CUDA)[[0, 2]]

    def test_no_array_without_a_copy(self, tape: Tape) -> None:
        with pytest.raises(TypeError, match="can't convert"):
            torch.arange(3, device=CUDA).numpy()

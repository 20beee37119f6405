"""The engine on native target and drafter: strict is plain, and the native walk changes nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from adaptivespec.core.errors import NumericalError
from adaptivespec.draft.eagle3_native import NativeEagle3Drafter
from adaptivespec.engine.engine import Engine
from adaptivespec.engine.model.native_target import NativeTarget
from adaptivespec.native.library import Mode
from adaptivespec.policy import POLICIES
from adaptivespec.verify import RULES
from fakes import targets, tiny
from fakes.random_head import with_head
from fakes.scripted import COSTS
from fakes.tiny_engine import EndlessTokenizer

PROMPT = [5, 9, 11, 2, 40]
TOKENS = 40


@cache
def engine(mode: str = "A8", threads: int = 1) -> Engine:
    target = targets.native(mode, threads=threads)
    checkpoint = tiny.head(hidden_size=32, intermediate_size=64)
    layers = target.limits.num_layers
    drafter = NativeEagle3Drafter(
        checkpoint, target.model, layers, tiny.MAX_LEN, Mode[mode], threads
    )
    tokenizer: Any = EndlessTokenizer()
    made = Engine(target, tokenizer, drafter, "none")  # what random probes are trained for
    made._costs = COSTS
    return made


def rule(name: str) -> Any:
    return with_head(RULES.load(name)(), tiny.CONFIG.vocab_size, 32)


def generate(on: Engine, **options: Any) -> Any:
    return on.generate(PROMPT, max_tokens=TOKENS, **options)


@pytest.mark.parametrize("mode", ["A8", "A16"])
@pytest.mark.parametrize("policy", [*POLICIES.names(), "static:3,8,40", "static:2,16,100"])
def test_strict_is_plain_under_every_policy(policy: str, mode: str) -> None:
    on = engine(mode)
    want = generate(on, policy="none").token_ids
    got = generate(on, policy=policy, trace=True)
    assert got.token_ids == want
    assert len(want) == TOKENS


def test_threads_change_nothing() -> None:
    runs = [
        generate(engine("A8", threads), rule="margin:0.3", policy="static:3,4,12", trace=True)
        for threads in (1, 2, 3)
    ]
    assert len({tuple(run.token_ids) for run in runs}) == 1
    assert len({tuple(step.num_verified for step in run.trace) for run in runs}) == 1


@pytest.mark.parametrize("policy", ["static:3,8,40", "dcs", "ema"])
@pytest.mark.parametrize(
    "name", ["strict", "margin", "margin:0.01", "margin:0.5,exact_between=true", "cascade"]
)
def test_the_native_walk_decides_as_the_rule_does(
    name: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = 0
    native = NativeTarget.follow

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal walks
        walks += 1
        return native(self, *arguments)

    monkeypatch.setattr(NativeTarget, "follow", counted)
    fast = generate(engine(), rule=name, policy=policy)
    assert walks == fast.stats.num_spec_steps + 1  # the prompt is a walk of one node
    monkeypatch.setattr(NativeTarget, "follow", lambda *_: None)
    slow = generate(engine(), rule=name, policy=policy)
    assert fast.token_ids == slow.token_ids
    assert fast.stats == slow.stats


@pytest.mark.parametrize("name", RULES.names())
def test_every_rule_runs(name: str) -> None:
    chosen = rule(name)
    policy = "static:3,4,12" if chosen.tree and not chosen.sampled_drafts else "chain"
    for temperature in (0.0, 1.0) if chosen.sampling else (0.0,):
        got = generate(engine(), rule=chosen, policy=policy, temperature=temperature, seed=3)
        assert len(got.token_ids) == TOKENS


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.8, "seed": 1},
        {"repetition_penalty": 1.3},
        {"logit_bias": {7: 5.0}},
        {"logprobs": True},
    ],
)
def test_requests_that_need_the_whole_law_get_it(options: dict[str, Any]) -> None:
    on = engine()
    want = generate(on, policy="none", **options)
    got = generate(on, policy="static:3,8,40", **options)
    assert got.token_ids == want.token_ids


def test_a_row_that_is_not_finite_names_step_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    on = engine()
    verify = NativeTarget.verify

    def spoilt(self: Any, cache: Any, tree: Any, *rest: Any) -> Any:
        out = verify(self, cache, tree, *rest)
        out.logits[0, 3] = float("nan")
        return out

    monkeypatch.setattr(NativeTarget, "verify", spoilt)
    with pytest.raises(NumericalError, match="step 0") as caught:
        generate(on, policy="static:2,2,5")
    assert (caught.value.step, caught.value.node) == (0, 0)

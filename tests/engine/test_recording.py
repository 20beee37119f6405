"""Recordings: the greedy text, one token a step, with the same wide tree at every position."""

from __future__ import annotations

from typing import Any

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.engine import Engine
from fakes import growing, tiny, tiny_engine


def test_a_recording_is_the_greedy_text_with_a_tree_at_every_position() -> None:
    engine = growing.engine(seed=3)
    plain = engine.generate([1], policy="none", max_tokens=20)
    result = engine.generate([1], trace=True, record=(3, 4), max_tokens=20)
    assert result.token_ids == plain.token_ids
    assert result.policy == "static:num_steps=4,topk=3,num_draft_tokens=31"
    steps = result.trace or []
    assert [step.position for step in steps] == list(range(1, 20))
    assert {step.committed for step in steps} == {1}
    # 1 root, 3 on the first level, 9 on each of the others; only at the end nothing is drafted.
    assert [step.num_verified for step in steps] == [30] * 18 + [0]
    assert all(step.root_confidence is not None for step in steps[:-1])


def test_a_recording_stops_where_the_text_stops() -> None:
    engine = tiny_engine.engine(eos=tuple(range(0, 61, 3)))
    plain = engine.generate([9, 4], policy="none", max_tokens=40)
    result = engine.generate([9, 4], trace=True, record=(2, 2), max_tokens=40)
    assert plain.finish_reason == "stop"
    assert result.token_ids == plain.token_ids
    assert result.completion_tokens == plain.completion_tokens


def test_top_k_1_is_greedy_and_a_lossless_lossy_rule_will_do() -> None:
    engine = growing.engine(seed=3)
    options: dict[str, Any] = {"trace": True, "record": (2, 2), "max_tokens": 4}
    greedy = engine.generate([1], **options)
    same = engine.generate([1], temperature=0.9, top_k=1, rule="margin:1", **options)
    assert same.token_ids == greedy.token_ids


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"record": (0, 3)}, "record_width"),
        ({"record": (17, 3)}, "record_width"),
        ({"record": (4, 0)}, "record_depth"),
        ({"record": (4, 65)}, "record_depth"),
        ({"trace": False}, "trace"),
        ({"rule": "margin:0.2"}, "rule"),
        ({"rule": "rejection"}, "rule"),
        ({"temperature": 0.5}, "temperature"),
        ({"policy": "none"}, "policy"),
        ({"policy": "dcs"}, "policy"),
        ({"policy_options": {"alpha": 0.2}}, "policy_options.alpha"),
    ],
)
def test_refusals(options: dict[str, Any], field: str) -> None:
    engine = growing.engine(seed=3)
    with pytest.raises(ConfigError) as caught:
        engine.stream([1], **{"trace": True, "record": (2, 3), **options})
    assert caught.value.field == field


def test_without_a_drafter_there_is_nothing_to_record() -> None:
    tokenizer: Any = tiny_engine.NumberTokenizer()
    plain = Engine(tiny.target(), tokenizer, None, "tiny")
    with pytest.raises(ConfigError, match="no drafter"):
        plain.stream([3], trace=True, record=(2, 3))

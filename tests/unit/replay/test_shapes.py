"""Which fixed shape would be quickest: recorded on real answers, priced by the machine's costs."""

from __future__ import annotations

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.engine.weights.progress import ProgressEvent
from adaptivespec.policy import make_policy
from adaptivespec.policy.costs import CostProfile
from adaptivespec.policy.plan import available_nodes
from adaptivespec.replay.shapes import fixed_shapes, triples
from fakes import tiny_engine

FREE = CostProfile.parse("free:verify=10,draft=0")
DEAR = CostProfile.parse("dear:verify=[[1,10],[2,90],[16,900]],draft=5")
PROMPTS = ("abcd", "hfg")


def test_every_triple_can_be_asked_for_and_uses_its_steps() -> None:
    found = triples()
    assert len(set(found)) == len(found) > 30
    for steps, topk, nodes in found:
        assert make_policy(f"static:{steps},{topk},{nodes}").largest().triple == (
            steps,
            topk,
            nodes,
        )
        assert steps < nodes <= available_nodes(steps, topk)


def test_free_nodes_are_taken_and_dear_ones_are_not() -> None:
    engine = tiny_engine.endless()
    free = fixed_shapes(engine, FREE, PROMPTS, max_tokens=12)
    dear = fixed_shapes(engine, DEAR, PROMPTS, max_tokens=12)
    assert len(free) == len(dear) == len(triples()) + 1
    for arms in (free, dear):
        assert [arm.ms_per_token for arm in arms] == sorted(arm.ms_per_token for arm in arms)
        assert all(arm.exactness.startswith("exact") for arm in arms)
    longest = max(arm.stats.accept_length for arm in free)
    assert longest > 1
    assert free[0].stats.accept_length == longest
    assert dear[0].policy.name == "none"
    assert dear[0].speedup == 1


def test_a_prediction_is_what_the_engine_does() -> None:
    """Steps and tokens of a real run with the winning shape are those of its replay."""
    engine = tiny_engine.endless()
    best = fixed_shapes(engine, FREE, PROMPTS[:1], max_tokens=16)[0]
    shape = "static:{},{},{}".format(*best.policy.largest().triple)
    ran = engine.generate(PROMPTS[0], policy=shape, max_tokens=16, trace=True)
    assert [step.committed for step in ran.trace] == best.committed[0]


def test_progress_is_reported_per_answer() -> None:
    events: list[ProgressEvent] = []
    fixed_shapes(tiny_engine.endless(), FREE, PROMPTS, max_tokens=2, progress=events.append)
    assert [(event.done, event.total) for event in events] == [(0, 2), (1, 2), (2, 2)]


def test_without_a_drafter_there_is_nothing_to_choose() -> None:
    engine = tiny_engine.endless()
    engine.drafter = None
    with pytest.raises(ConfigError, match="no drafter") as caught:
        fixed_shapes(engine, FREE)
    assert caught.value.field == "suggest"

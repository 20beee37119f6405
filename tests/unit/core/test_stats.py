import json
import math

import pytest
import torch

from adaptivespec.core.commit import StopState, commit
from adaptivespec.core.draft import Draft
from adaptivespec.core.sampling import SamplingParams
from adaptivespec.core.stats import Statistics
from adaptivespec.core.trace import StepTrace, nodes_of
from adaptivespec.core.tree import DraftTree
from adaptivespec.core.verdict import Choice, Kind, Verdict

E, P, B = Kind.EXACT, Kind.PROMOTED, Kind.BONUS
EOS = 99


def chain_verdict(tokens, kinds, drop=0.5):
    drops = [drop if kind is P else 0.0 for kind in kinds]
    n = len(tokens)
    return Verdict(list(range(n)), list(tokens), list(kinds), drops, list(tokens), [0.0] * n)


def trace(verdict, kept=None, verified=4, **kwargs):
    kept = len(verdict.tokens) if kept is None else kept
    fixed = {"step": 0, "position": 0, "plan": (4, 1, 5), "num_verified": verified}
    return StepTrace.of(verdict, kept, **{**fixed, **kwargs})


def test_the_worked_example():
    """Drafted 4, 4, 4; accepted 4, 0, 1 with EOS first: 7 tokens in 3 steps."""
    stop = StopState.start(SamplingParams(), frozenset({EOS}), lambda ids: "x" * len(ids))
    steps = [
        chain_verdict([1, 2, 3, 4, 5], [E, E, E, E, B]),
        chain_verdict([6], [B]),
        chain_verdict([EOS, 7, 8, 9], [E, E, E, B]),
    ]
    stats = Statistics()
    for verdict in steps:
        done = commit(verdict.tokens, stop)
        stop = done.state
        stats.add(trace(verdict, done.kept))
    assert stats.num_committed_tokens == 7
    assert stats.accept_length == pytest.approx(7 / 3)
    assert stats.acceptance_rate == pytest.approx(5 / 12)
    assert stats.acceptance_histogram == {4: 1, 0: 1, 1: 1}
    assert stats.accepted_per_pos == [2, 1, 1, 1]
    assert stats.kind_counts == {"exact": 5, "bonus": 2}


def test_as_dict_has_exactly_the_agreed_keys():
    stats = Statistics()
    stats.add(trace(chain_verdict([1, 2, 3], [E, P, B])))
    assert stats.as_dict() == {
        "accept_length": 3.0,
        "num_spec_steps": 1,
        "num_draft_tokens": 4,
        "num_accepted_draft_tokens": 2,
        "num_promoted_tokens": 1,
        "regret_nats": 0.5,
        "mean_tree_nodes": 5.0,
        "accepted_per_pos": [1, 1],
    }


def test_zero_steps_give_none():
    stats = Statistics()
    figures = stats.as_dict()
    assert figures["accept_length"] is None
    assert figures["mean_tree_nodes"] is None
    assert stats.acceptance_rate is None
    assert figures["accepted_per_pos"] == []
    assert "NaN" not in json.dumps(stats.details())


def test_plain_decoding_has_no_rate_but_a_length_of_one():
    stats = Statistics()
    for _ in range(3):
        stats.add(trace(chain_verdict([1], [B]), verified=0))
    assert (stats.accept_length, stats.acceptance_rate, stats.num_drafts) == (1.0, None, 0)
    assert stats.mean_tree_nodes == 1.0


def test_promotions_that_a_stop_removed_do_not_exist():
    stats = Statistics()
    stats.add(trace(chain_verdict([1, EOS, 3, 4], [E, E, P, B]), kept=2))
    assert (stats.num_promoted_tokens, stats.regret_nats) == (0, 0.0)
    assert (stats.num_accepted_draft_tokens, stats.promoted_per_pos) == (2, [0, 0])


def test_details_and_merge():
    one, two, both = Statistics(), Statistics(), Statistics()
    steps = [
        trace(chain_verdict([1, 2, 3], [E, P, B])),
        trace(chain_verdict([1], [B])),
        trace(chain_verdict([1, 2, 3, 4], [P, E, E, B])),
    ]
    one.add(steps[0])
    for step in steps[1:]:
        two.add(step)
    for step in steps:
        both.add(step)
    one.merge(two)
    assert one == both
    details = both.details()
    assert details["promoted_per_pos"] == [1, 1, 0]
    assert details["accepted_per_pos"] == [2, 2, 1]
    assert details["kind_counts"] == {"exact": 3, "promoted": 2, "bonus": 3}
    assert details["acceptance_histogram"] == {0: 1, 2: 1, 3: 1}
    assert details["num_committed_tokens"] == 8
    assert set(both.as_dict()) < set(details)


def test_a_trace_is_json():
    tree = DraftTree.from_parents([9, 1, 2], [-1, 0, 1], [0.0, -0.5, -1.0])
    target, drop = torch.tensor([1, 7, 3]), torch.tensor([math.inf, 0.0, 0.5])
    choice = Choice(target, target, drop, torch.zeros(3))
    nodes = nodes_of(Draft(tree), choice)
    row = trace(
        chain_verdict([1, 2, 3], [E, P, B]),
        root_confidence=0.75,
        num_drafted=6,
        nodes=nodes,
        reason={"stopped": "depth"},
        seconds={"draft": 0.1, "verify": 0.2, "host": 0.3},
    ).to_json()
    again = json.loads(json.dumps(row))
    assert again["plan"] == [4, 1, 5]
    assert again["kinds"] == ["exact", "promoted", "bonus"]
    assert again["margins"] == pytest.approx([1.0, math.exp(-0.5), 1.0])
    assert again["nodes"] == nodes
    assert again["nodes"]["target"] == [1, 7, 3]
    assert again["nodes"]["margin"] == pytest.approx([0.0, 1.0, math.exp(-0.5)])
    assert again["nodes"]["rank"] == [0, 0, 0]
    assert again["reason"] == {"stopped": "depth"}
    assert again["nodes"]["parent"] == [-1, 0, 1]
    assert (again["committed"], again["num_accepted"], again["num_promoted"]) == (3, 2, 1)
    assert again["seconds"] == {"draft": 0.1, "verify": 0.2, "host": 0.3}
    assert set(again) >= {"step", "position", "root_confidence", "num_drafted", "num_verified"}
    assert set(again) >= {"regret", "tokens", "strict", "path"}

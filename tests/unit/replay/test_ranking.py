"""Several rules and policies on the same traces, in their order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import POLICIES
from adaptivespec.policy.costs import CostProfile
from adaptivespec.replay.ranking import default_policies, ranked, split_specs, to_json
from adaptivespec.replay.trace_file import TraceError
from fakes.traces import trace

FLAT = CostProfile.parse("flat:verify=10,draft=0.1")
STEEP = CostProfile.parse("steep:verify=[[1,10],[2,30],[3,50]],draft=5")


def test_specs_are_separated_by_semicolons() -> None:
    assert split_specs("static:5,4,16; dcs ;;chain:3;dcs", "policies") == [
        *("static:5,4,16", "dcs", "chain:3"),
    ]
    with pytest.raises(ConfigError) as caught:
        split_specs(" ; ", "policies")
    assert caught.value.field == "policies"


def test_by_default_every_policy_is_tried() -> None:
    assert default_policies([FLAT]) == POLICIES.names()
    assert set(POLICIES.names()) - set(default_policies([])) >= {"priced"}


def test_without_costs_the_longest_steps_come_first() -> None:
    arms = ranked([trace()], ["strict"], ["none", "chain:1", "chain:2"])
    assert [arm.policy.label for arm in arms] == [
        *("chain:num_steps=2", "chain:num_steps=1", "none"),
    ]


def test_under_each_cost_profile_the_fastest_comes_first() -> None:
    arms = ranked([trace()], ["strict"], ["none", "chain:2"], [FLAT, STEEP])
    order = [(arm.cost.name, arm.policy.name) for arm in arms if arm.cost is not None]
    assert order == [("flat", "chain"), ("flat", "none"), ("steep", "none"), ("steep", "chain")]
    # Four tokens in two steps of 10.1 ms, and in two of 55 ms.
    assert arms[0].ms_per_token == pytest.approx(2 * 10.1 / 4)
    assert arms[3].ms_per_token == pytest.approx(2 * 55 / 4)
    assert arms[3].speedup == pytest.approx(40 / 110)
    assert arms[2].speedup == 1


def test_rows_are_json_with_the_names_of_the_metrics() -> None:
    traces = [trace(), trace()]
    arms = ranked(traces, ["margin:0.6"], ["chain:2"], [FLAT])
    value: dict[str, Any] = json.loads(json.dumps(to_json(traces, arms), allow_nan=False))
    (row,) = value["rows"]
    assert row == {
        "rule": "margin:kappa=0.6",
        "policy": "chain:num_steps=2",
        "cost": "flat",
        "lossless": False,
        "exactness": "exact",
        "accept_length": 2.0,
        "num_spec_steps": 4,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 6,
        "num_promoted_tokens": 0,
        "regret_nats": 0.0,
        "mean_tree_nodes": 3.0,
        "accepted_per_pos": [4, 2],
        "num_committed_tokens": 8,
        "mean_levels": 2.0,
        "promotions_per_100": 0.0,
        "ms_per_token": pytest.approx(5.05),
        "speedup": pytest.approx(80 / 40.4),
    }
    assert [each["num_steps"] for each in value["traces"]] == [4, 4]
    assert value["traces"][0]["header"]["record_width"] == 2


def test_texts_of_one_token_give_null() -> None:
    arms = ranked([trace([])], ["strict"], ["chain:2"], [FLAT])
    (row,) = to_json([], arms)["rows"]
    assert row["accept_length"] is row["ms_per_token"] is row["speedup"] is None
    assert row["mean_levels"] is row["promotions_per_100"] is None


def test_everything_is_checked_before_anything_is_replayed() -> None:
    with pytest.raises(TraceError, match="temperature"):
        ranked([trace(), trace(temperature=1.0)], ["strict"], ["none"])
    with pytest.raises(ConfigError, match="typical"):
        ranked([trace()], ["strict", "typical"], ["none"])

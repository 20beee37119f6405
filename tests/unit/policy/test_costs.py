import json

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy.costs import CostProfile, isotonic

TABLE = ((1, 0.020), (4, 0.023), (8, 0.031))
PROFILE = CostProfile("test", ((100, TABLE), (300, ((1, 0.030),))), ((1, 0.001), (5, 0.003)), 0.002)


@pytest.mark.parametrize(
    ("nodes", "context", "seconds"),
    [
        (1, 100, 0.020),
        (0, 100, 0.020),  # nothing below the first point is known
        (2, 100, 0.021),
        (4, 0, 0.023),
        (6, 100, 0.027),
        (10, 100, 0.035),  # along the last slope
        (1, 200, 0.025),  # half way between two contexts
        (1, 300, 0.030),
    ],
)
def test_verify_times_are_interpolated(nodes, context, seconds):
    assert PROFILE.verify_s(nodes, context) == pytest.approx(seconds)


def test_a_round_is_overhead_passes_and_one_verify():
    assert PROFILE.draft_s(3) == pytest.approx(0.002)
    assert PROFILE.round_s([1, 3], 4, 100) == pytest.approx(0.002 + 0.001 + 0.002 + 0.023)


def test_a_falling_end_is_never_carried_on():
    profile = CostProfile("noisy", ((0, ((1, 2.0), (2, 1.0))),), ((1, 0.0),))
    assert profile.verify_s(100) == 1.0


def test_json_round_trip():
    assert CostProfile.from_json(json.loads(json.dumps(PROFILE.to_json()))) == PROFILE


def test_a_profile_from_numbers_in_milliseconds(tmp_path):
    profile = CostProfile.parse("a100:verify=[[1,18],[16,18.5],[64,20]],draft=0.6,overhead=0.5")
    assert profile.name == "a100"
    assert profile.verify_s(16) == pytest.approx(0.0185)
    assert profile.draft_s(7) == pytest.approx(0.0006)
    assert profile.overhead == pytest.approx(0.0005)
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps(profile.to_json()))
    assert CostProfile.parse(str(path)) == profile


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("missing.json", ["cannot read", "verify=[["]),
        ("a100:draft=1", ["verify=[["]),
        ("a100:verify=fast", ["verify"]),
        ("a100:verify=[[4,1],[1,2]]", ["rise"]),
        ("a100:verify=[[1,-2]]", [">= 0"]),
        ("a100:verify=[[1,2]],speed=3", ["cannot read"]),
    ],
)
def test_bad_profiles_are_refused(text, words):
    with pytest.raises(ConfigError) as caught:
        CostProfile.parse(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "no json", '{"name": "x", "verify": [], "draft": []}']
)
def test_bad_files_are_refused(tmp_path, text):
    path = tmp_path / "cost.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        CostProfile.parse(str(path))


@pytest.mark.parametrize(
    ("values", "nearest"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([1.0, 3.0, 2.0, 4.0], [1.0, 2.5, 2.5, 4.0]),
        ([3.0, 2.0, 1.0], [2.0, 2.0, 2.0]),
        ([], []),
    ],
)
def test_isotonic_pools_violators(values, nearest):
    assert isotonic(values) == nearest

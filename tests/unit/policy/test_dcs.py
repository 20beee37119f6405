import math

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import make_policy
from adaptivespec.policy.base import Outcome, Signals, TreePlan
from adaptivespec.policy.dcs import combine, interpolate, reachable

LOW, HIGH = (3, 4, 4), (7, 1, 8)
EIGHT = [
    (0.0, (3, 4, 4)),
    (0.125, (4, 4, 5)),
    (1 / 6, (4, 3, 5)),
    (0.375, (5, 3, 6)),
    (0.5, (5, 2, 6)),
    (0.625, (6, 2, 7)),
    (5 / 6, (6, 1, 7)),
    (0.875, (7, 1, 8)),
]


@pytest.mark.parametrize(("index", "start", "triple"), [(i, *row) for i, row in enumerate(EIGHT)])
def test_each_triple_starts_at_its_threshold(index, start, triple):
    end = EIGHT[index + 1][0] if index + 1 < len(EIGHT) else 1.0
    assert interpolate(start + 1e-9, LOW, HIGH) == triple
    assert interpolate((start + end) / 2, LOW, HIGH) == triple
    assert interpolate(end - 1e-9, LOW, HIGH) == triple


@pytest.mark.parametrize(
    ("s", "triple"),
    [
        (0.0, (3, 4, 4)),
        (0.125, (4, 4, 5)),
        (0.1667, (4, 3, 5)),
        (0.375, (5, 3, 6)),
        (0.5, (5, 2, 6)),
        (0.625, (6, 2, 7)),
        (0.8334, (6, 1, 7)),
        (0.875, (7, 1, 8)),
        (1.0, (7, 1, 8)),
    ],
)
def test_the_published_thresholds_belong_to_the_triple_they_open(s, triple):
    assert interpolate(s, LOW, HIGH) == triple


def test_exactly_eight_triples_are_reachable():
    assert reachable(LOW, HIGH) == [triple for _, triple in EIGHT]
    seen = {interpolate(i / 10000, LOW, HIGH) for i in range(10001)}
    assert seen == {triple for _, triple in EIGHT}


def test_reachable_of_equal_ends():
    assert reachable((2, 2, 4), (2, 2, 4)) == [(2, 2, 4)]


@pytest.mark.parametrize(
    ("confidence", "rar", "score"),
    [(0.0, 0.5, 0.0), (0.2, 0.5, 0.2), (1.0, 0.25, 0.5), (1.0, 0.5, 1.0), (0.9, 0.9, 1.0)],
)
def test_score(confidence, rar, score):
    policy = make_policy("dcs")
    policy.rar = rar
    assert policy.score(confidence) == pytest.approx(score)


def test_the_first_step_uses_the_seed():
    policy = make_policy("dcs")
    for p in (0.05, 0.3, 0.7, 1.0):  # DCS / d = p * 0.5 / 0.5
        assert policy.plan(Signals(p)).triple == interpolate(p, LOW, HIGH)


def observe(policy, accepted, plan=None, verified=7):
    policy.observe(plan or TreePlan(4, 2, 8), Outcome(accepted, 0, verified))


def test_the_rolling_rate_is_an_ema():
    policy = make_policy("dcs")
    observe(policy, 2)
    assert policy.rar == pytest.approx(0.7 * 0.5 + 0.3 * 0.5)
    observe(policy, 4)
    assert policy.rar == pytest.approx(0.7 * 0.5 + 0.3 * 1.0)
    observe(policy, 0)
    assert policy.rar == pytest.approx(0.7 * 0.65)


@pytest.mark.parametrize(
    ("kind", "accepted", "rate"),
    [
        ("per_step", 2, 0.5),
        ("per_node", 2, 2 / 7),
        ("any", 2, 1.0),
        ("any", 0, 0.0),
        ("per_step", 0, 0.0),
    ],
)
def test_definitions_of_acceptance(kind, accepted, rate):
    policy = make_policy("dcs", {"acceptance": kind, "alpha": 1.0})
    observe(policy, accepted)
    assert policy.rar == pytest.approx(rate)


def test_a_step_without_drafts_says_nothing():
    policy = make_policy("dcs")
    policy.observe(TreePlan(0, 1, 1), Outcome(0, 0, 0))
    policy.observe(TreePlan(4, 2, 8), Outcome(0, 0, 0))
    assert policy.rar == 0.5


def test_five_failures_in_a_row_reset_the_rate():
    policy = make_policy("dcs")
    for _ in range(4):
        observe(policy, 0)
    assert policy.rar == pytest.approx(0.5 * 0.7**4)
    observe(policy, 0)
    assert policy.rar == 0.5
    for _ in range(4):  # the count starts again
        observe(policy, 0)
    assert policy.rar == pytest.approx(0.5 * 0.7**4)


def test_an_acceptance_restarts_the_count():
    policy = make_policy("dcs:patience=2")
    for accepted in (0, 1, 0):
        observe(policy, accepted)
    assert policy.rar != 0.5
    observe(policy, 0)
    assert policy.rar == 0.5


def test_begin_forgets_the_last_request():
    policy = make_policy("dcs:seed=0.25")
    for _ in range(3):
        observe(policy, 4)
    policy.begin()
    assert policy.rar == 0.25
    for _ in range(4):
        observe(policy, 0)
    policy.begin()
    observe(policy, 0)
    assert policy.rar == pytest.approx(0.25 * 0.7)


def test_largest():
    assert make_policy("dcs").largest() == TreePlan(7, 4, 8)


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"alpha": 0}, "alpha", ["(0, 1]"]),
        ({"alpha": 1.1}, "alpha", ["(0, 1]"]),
        ({"d": 0}, "d", ["(0, 1]"]),
        ({"seed": -0.1}, "seed", ["[0, 1]"]),
        ({"patience": 0}, "patience", ["[1, inf)"]),
        ({"acceptance": "most"}, "acceptance", ["per_step | per_node | any"]),
        ({"low": (3, 4)}, "low", []),
        ({"low": (3, 0, 4)}, "low", ["topk", "[1, 64]"]),
        ({"low": (0, 4, 4)}, "low", ["must draft something"]),
        ({"high": (7, 1, 1)}, "high", ["must draft something"]),
        ({"high": (7, 1, 9)}, "high", ["[2, 8]", "got 9"]),
        ({"low": (2, 2, 8)}, "low", ["[2, 7]"]),
    ],
)
def test_option_errors(options, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy("dcs", options)
    assert caught.value.field.startswith(f"policy_options.{field}")
    for word in words:
        assert word in str(caught.value)


def test_options_as_text_and_back():
    policy = make_policy("dcs:low=(2,2,4),high=[5,1,6]")
    assert (policy.options.low, policy.options.high) == ((2, 2, 4), (5, 1, 6))
    assert make_policy(policy.label).options == policy.options


@pytest.mark.parametrize(
    ("how", "scores", "value"),
    [
        ("mean", [0.2, 0.4, 0.9], 0.5),
        ("median", [0.9, 0.2, 0.4], 0.4),
        ("median", [0.2, 0.4, 0.6, 0.9], 0.5),
        ("min", [0.4, 0.2, 0.9], 0.2),
        ("mean", [0.7], 0.7),
    ],
)
def test_a_batch_shares_one_score(how, scores, value):
    assert combine(scores, how) == pytest.approx(value)
    assert not math.isnan(combine(scores))


def test_an_empty_batch_has_no_score():
    with pytest.raises(ValueError, match="no score"):
        combine([])

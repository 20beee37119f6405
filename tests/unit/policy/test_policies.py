import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.policy.base import NOTHING, Outcome, Signals, TreePlan, available_nodes
from adaptivespec.policy.none import NonePolicy
from adaptivespec.policy.plan import Keep, Lookahead, Stop


@pytest.mark.parametrize(
    ("values", "field", "interval"),
    [
        ((-1, 1, 1), "num_steps", "[0, 64]"),
        ((65, 1, 1), "num_steps", "[0, 64]"),
        ((1, 0, 1), "topk", "[1, 64]"),
        ((1, 65, 1), "topk", "[1, 64]"),
        ((1, 1, -1), "num_draft_tokens", "[0, 65536]"),
        ((1, 1, 65537), "num_draft_tokens", "[0, 65536]"),
    ],
)
def test_plan_bounds(values, field, interval):
    with pytest.raises(ConfigError) as caught:
        TreePlan(*values)
    assert caught.value.field == field
    assert interval in str(caught.value)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Stop(min_confidence=-0.1), "min_confidence"),
        (lambda: Stop(min_confidence=float("nan")), "min_confidence"),
        (lambda: Stop(min_path=1.5), "min_path"),
        (lambda: Stop(min_gain=-1), "min_gain"),
        (lambda: Keep(width=0), "width"),
        (lambda: Keep(relative=2), "relative"),
        (lambda: Keep(absolute=-1), "absolute"),
        (lambda: TreePlan.fixed(((0, 1), (0,))), "positions"),
        (lambda: TreePlan.fixed(((0,), (0,))), "positions"),
        (lambda: TreePlan.fixed(((-1,),)), "positions"),
        (lambda: Keep(first=0), "first"),
        (lambda: TreePlan(1, 1, 2, prices=((0, 1.0),)), "prices"),
        (lambda: TreePlan(1, 1, 2, prices=((2, 1.0), (2, 2.0))), "prices"),
        (lambda: TreePlan(1, 1, 2, prices=((1, float("nan")),)), "prices"),
    ],
)
def test_bounds_of_the_parts_of_a_plan(make, field):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.field == field


def test_a_fixed_plan_knows_its_numbers():
    plan = TreePlan.fixed(((0,), (1,), (0, 0), (0, 2), (0, 0, 0)))
    assert plan.triple == (3, 3, 6)
    assert plan.available == 6
    assert plan.capped(3).available == 5
    assert not plan.fixed_shape  # rank 2 without rank 1
    assert TreePlan.fixed(((0,), (1,), (0, 0), (0, 1))).fixed_shape
    assert not TreePlan.fixed(((1,), (0,))).fixed_shape
    assert TreePlan(3, 1, 4).fixed_shape
    assert not TreePlan(3, 2, 4).fixed_shape
    assert not TreePlan(3, 1, 4, stop=Stop(0.4)).fixed_shape


def test_look_ahead_expects_powers_of_the_follow_rate():
    look = Lookahead(follow=(0.9, 0.5), price=(0.1, 0.2, 0.3))
    assert look.powers(1) == pytest.approx([0.9, 0.81, 0.729])
    assert look.powers(2) == look.powers(7) == [0.5, 0.25, 0.125]  # the last entry serves all


@pytest.mark.parametrize(
    ("triple", "nothing"),
    [
        ((0, 1, 1), True),
        ((3, 2, 1), True),
        ((3, 2, 0), True),
        ((0, 4, 8), True),
        ((1, 1, 2), False),
    ],
)
def test_draft_nothing(triple, nothing):
    assert TreePlan(*triple).draft_nothing is nothing
    assert TreePlan(*triple).triple == triple


@pytest.mark.parametrize(
    ("steps", "topk", "nodes"), [(0, 4, 1), (1, 3, 4), (2, 3, 13), (3, 4, 37), (7, 1, 8)]
)
def test_available_nodes(steps, topk, nodes):
    assert available_nodes(steps, topk) == TreePlan(steps, topk, 1).available == nodes


@pytest.mark.parametrize(("remaining", "steps"), [(0, 0), (1, 0), (2, 1), (5, 4), (6, 5), (99, 5)])
def test_a_plan_is_never_deeper_than_the_tokens_that_remain(remaining, steps):
    for spec in ("static", "chain", "eagle2"):
        plan = make_policy(spec).plan(Signals(0.5, remaining=remaining))
        assert plan.num_steps == steps
    assert TreePlan(5, 2, 8, stop=Stop(0.25)).capped(3) == TreePlan(2, 2, 8, stop=Stop(0.25))


@pytest.mark.parametrize(
    ("spec", "plan"),
    [
        ("none", NOTHING),
        ("chain", TreePlan(5, 1, 6)),
        ("chain:3", TreePlan(3, 1, 4)),
        ("chain:num_steps=3,min_confidence=0.4", TreePlan(3, 1, 4, stop=Stop(0.4))),
        ("static", TreePlan(5, 4, 8)),
        ("static:5,4,16", TreePlan(5, 4, 16)),
        ("static:num_draft_tokens=4", TreePlan(5, 4, 4)),
        ("static:0,1,1", TreePlan(0, 1, 1)),
        ("static:2,2,10000", TreePlan(2, 2, 10000)),
        ("eagle2", TreePlan(5, 4, 16)),
        ("eagle2:7,10,60", TreePlan(7, 10, 60)),
    ],
)
def test_fixed_policies(spec, plan):
    policy = make_policy(spec)
    policy.begin()
    for confidence in (0.0, 0.5, 1.0):
        assert policy.plan(Signals(confidence)) == plan
        policy.observe(plan, Outcome(0, 0, 3))
    assert policy.largest() == plan
    assert make_policy(policy.label).options == policy.options


def test_only_plain_decoding_needs_no_drafter():
    assert [name for name in POLICIES.names() if not POLICIES.load(name).needs_draft] == ["none"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ("statik", "policy", ["Did you mean 'static'", "none, chain, static"]),
        ("static:-1", "policy_options.num_steps", ["[0, 64]", "-1"]),
        ("static:5,4,16,2", "policy_options", ["at most 3"]),
        ("static:topk=0", "policy_options.topk", ["[1, 64]"]),
        ("chain:0", "policy_options.num_steps", ["[1, 64]"]),
        ("chain:min_confidence=1.5", "policy_options.min_confidence", ["[0, 1]", "1.5"]),
        ("chain:steps=3", "policy_options.steps", ["unknown option", "num_steps"]),
        ("none:1", "policy_options", ["at most 0"]),
        ("none:x=1", "policy_options.x", ["'none' has no options"]),
    ],
)
def test_errors(spec, field, words):
    with pytest.raises(ConfigError) as caught:
        make_policy(spec)
    assert caught.value.field == field
    for word in words:
        assert word in str(caught.value)


def test_options_beside_a_spec_and_a_ready_made_policy():
    assert make_policy("static:3", {"topk": 2}).largest() == TreePlan(3, 2, 8)
    policy = NonePolicy()
    assert make_policy(policy) is policy
    with pytest.raises(ConfigError, match="ready-made"):
        make_policy(policy, {"x": 1})


def test_every_entry_describes_itself():
    for entry in POLICIES.describe():
        assert entry.summary
        assert all(option.help and option.bounds for option in entry.options)

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.eval.arms import COIN, TUNED, arms_of, controls, frontier, parse_arms, split_specs
from adaptivespec.policy import POLICIES
from adaptivespec.verify import rule_names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("static:5,4,16; dcs", ["static:5,4,16", "dcs"]),
        ("static:5,4,16,dcs", ["static:5,4,16", "dcs"]),
        ("dcs,static:5,4,16", ["dcs", "static:5,4,16"]),
        ("dcs, dcs ;", ["dcs, dcs"]),
        ("dcs,dcs", ["dcs"]),
    ],
)
def test_lists_are_split_where_a_name_begins(text, parts):
    assert split_specs(text, "policies", POLICIES.names()) == parts


def test_the_spelling_of_the_conventions_reads_as_meant():
    rules = split_specs("strict,margin:0.2,fly:window=6,theta=0.3", "rules", rule_names())
    assert rules == ["strict", "margin:0.2", "fly:window=6,theta=0.3"]
    with pytest.raises(ConfigError, match="empty"):
        split_specs(" ; ", "rules", rule_names())


def test_arms_are_crossed_once_and_plain_comes_first():
    arms = arms_of(["strict", "margin:0.2"], ["dcs", TUNED], frontier([0.5, 0.2], "dcs"))
    assert [arm.name for arm in arms] == [
        "plain",
        "strict/dcs",
        "margin:0.2/dcs",
        "strict/static:tuned",
        "margin:0.2/static:tuned",
        "margin:0.5/dcs",
    ]
    assert [arm.lossless for arm in arms] == [True, True, False, True, False, False]
    assert [arm.role for arm in arms] == ["plain", *["arm"] * 4, "frontier"]


def test_controls_are_lossy_and_follow_the_policy():
    random, alone = controls("dcs")
    assert (random.rule, random.policy, random.lossless) == (COIN, "dcs", False)
    assert (alone.rule, alone.role, alone.lossless) == ("margin:0", "control", False)


def test_arms_are_read_with_their_options():
    arms = parse_arms("plain; strict/static:4,2,8; margin:0.2,true/dcs; fly")
    assert [(arm.rule, arm.policy) for arm in arms] == [
        ("strict", "none"),
        ("strict", "static:4,2,8"),
        ("margin:0.2,true", "dcs"),
        ("fly", "auto"),
    ]


@pytest.mark.parametrize("text", ["strct/dcs", "strict/dsc", "margin:2,3,4,5,6,7,8,9,10,11/dcs"])
def test_what_does_not_exist_is_refused_by_name(text):
    with pytest.raises(ConfigError):
        parse_arms(text)

import pytest

from adaptivespec.core.errors import ConfigError
from adaptivespec.verify import PRESETS, RULES, make_rule, rule_names
from adaptivespec.verify.limits import Limits
from adaptivespec.verify.margin import MarginRule
from adaptivespec.verify.strict import StrictRule


def test_names():
    assert RULES.names()[:2] == ["strict", "margin"]
    assert rule_names() == [*RULES.names(), "paper", "safe"]
    for name in rule_names():
        assert make_rule(name)


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("margin", {"kappa": 0.2}),
        ("margin:0.35", {"kappa": 0.35}),
        ("margin:kappa=0.2,protect_digits=true", {"kappa": 0.2, "protect_digits": True}),
        ("paper", {"kappa": 0.2, "max_regret": None}),
        ("safe", {"kappa": 0.3, "max_promotions_per_step": 1, "exact_between": True}),
        ("safe:0.5", {"kappa": 0.5, "max_regret": 4.0}),
        ("safe:max_regret=null", {"kappa": 0.3, "max_regret": None}),
        ("margin:think_only=true,think_ids=(3,4)", {"think_only": True, "think_ids": (3, 4)}),
    ],
)
def test_specs(spec, options):
    rule = make_rule(spec)
    assert isinstance(rule, MarginRule)
    for name, value in options.items():
        assert getattr(rule.options, name) == value


def test_presets():
    assert make_rule("paper").limits is None
    assert make_rule("safe").limits == Limits(
        max_promotions_per_step=1, exact_between=True, max_regret=4.0, regret_window=256
    )
    strict = RULES.create("margin", MarginRule.presets["strict"])
    assert strict.lossless
    assert set(PRESETS) <= set(MarginRule.presets)
    for name, rule in PRESETS.items():
        assert name in RULES.load(rule).presets


@pytest.mark.parametrize(
    ("spec", "lossless"),
    [
        ("strict", True),
        ("margin:1", True),
        ("margin:2", True),
        ("margin:0.999", False),
        ("margin:0", False),
        ("paper", False),
        ("safe", False),
        ("margin:max_promotions_per_step=0", True),
    ],
)
def test_lossless(spec, lossless):
    assert make_rule(spec).lossless is lossless


def test_kappa_and_options():
    assert make_rule("margin", kappa=0.4).options.kappa == 0.4
    assert make_rule("safe", kappa=0.4).options.kappa == 0.4
    assert make_rule("paper", {"skip_tokens": 3}).limits == Limits(skip_tokens=3)
    assert make_rule("margin:0.4", kappa=0.4).options.kappa == 0.4


def test_a_rule_is_returned_as_it_is():
    rule = make_rule("strict")
    assert make_rule(rule) is rule
    for kwargs in ({"options": {"kappa": 1}}, {"kappa": 0.2}):
        with pytest.raises(ConfigError, match="ready-made"):
            make_rule(rule, **kwargs)


@pytest.mark.parametrize(
    ("spec", "kwargs", "field", "words"),
    [
        (
            "mragin",
            {},
            "rule",
            ["'mragin'", "Did you mean 'margin'", "strict, margin, ", "paper, safe"],
        ),
        ("sfae", {}, "rule", ["Did you mean 'safe'"]),
        ("strict", {"kappa": 0.2}, "kappa", ["'strict' has no kappa", "margin"]),
        ("strict:0.2", {}, "rule_options", ["takes at most 0 options"]),
        ("margin:-0.1", {}, "rule_options.kappa", ["greater than or equal to 0", "[0, inf)"]),
        ("margin", {"kappa": float("nan")}, "rule_options.kappa", ["finite"]),
        ("margin", {"kappa": float("inf")}, "rule_options.kappa", ["finite"]),
        ("margin:kapa=0.1", {}, "rule_options.kapa", ["unknown option", "'kappa'", "max_regret"]),
        ("margin:0.2", {"kappa": 0.3}, "rule_options.kappa", ["given twice"]),
        ("margin", {"kappa": 0.2, "options": {"kappa": 0.3}}, "kappa", ["given twice"]),
        ("margin:regret_window=0", {}, "rule_options.regret_window", ["[1, inf)"]),
        ("margin:skip_tokens=-1", {}, "rule_options.skip_tokens", ["[0, inf)"]),
        ("margin:max_promotions_per_step=1.5", {}, "rule_options.max_promotions_per_step", ["1.5"]),
        ("margin:think_ids=(3,3)", {}, "rule_options", ["two different ids"]),
        ("", {}, "rule", ["cannot read"]),
    ],
)
def test_errors(spec, kwargs, field, words):
    with pytest.raises(ConfigError) as caught:
        make_rule(spec, **kwargs)
    assert caught.value.field == field
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ("strict", "strict"),
        ("margin", "margin:kappa=0.2"),
        ("margin:1", "margin:kappa=1.0"),
        ("margin:0.3,true", "margin:kappa=0.3,protect_digits=true"),
        ("margin:think_ids=(1,2)", "margin:kappa=0.2,think_ids=[1, 2]"),
    ],
)
def test_a_label_is_a_spec(spec, label):
    rule = make_rule(spec)
    assert rule.label == label
    assert make_rule(label).options == rule.options


def test_every_entry_describes_itself():
    for entry in RULES.describe():
        assert entry.summary
        assert all(option.help and option.bounds for option in entry.options)


def test_defaults_need_no_options():
    assert StrictRule().lossless
    assert MarginRule().kappa == 0.2

"""What every registered rule and policy owes to the tables, the command line and its users."""

import inspect
import sys
from typing import Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, model_validator

from adaptivespec.core.errors import ConfigError
from adaptivespec.core.registry import bounds
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.policy.base import Policy, PolicyOptions
from adaptivespec.verify import PRESETS, RULES, make_rule
from adaptivespec.verify.base import Rule, RuleOptions
from fakes.option_sets import fields, illegal_values, numbers, option_sets

MAKE = {"rule": make_rule, "policy": make_policy}
BASES = {"rule": (Rule, RuleOptions), "policy": (Policy, PolicyOptions)}
ENTRIES = [(registry, name) for registry in (RULES, POLICIES) for name in registry.names()]
OPTIONS = [
    (registry, name, option)
    for registry, name in ENTRIES
    for option in registry.load(name).Options.model_fields
]

every_entry = pytest.mark.parametrize(
    ("registry", "name"), ENTRIES, ids=[f"{registry.kind}-{name}" for registry, name in ENTRIES]
)
every_option = pytest.mark.parametrize(
    ("registry", "name", "option"), OPTIONS, ids=["-".join((r.kind, n, o)) for r, n, o in OPTIONS]
)

_opened = []
_watching = False


def _note(event, args):
    if _watching and event == "open":
        _opened.append(args[0])


sys.addaudithook(_note)


@every_entry
def test_an_entry_describes_itself(registry, name):
    cls = registry.load(name)
    base, options = BASES[registry.kind]
    assert issubclass(cls, base)
    assert issubclass(cls.Options, options)
    assert cls.name == name
    for text in (cls.formula, cls.source):
        assert text == text.strip() != ""
        assert "\n" not in text
    assert inspect.getdoc(cls)
    entry = registry.describe_one(name)
    assert entry.summary.endswith(".")
    assert len(entry.summary) <= 100


@every_option
def test_an_option_has_help_and_bounds(registry, name, option):
    model = registry.load(name).Options
    description = model.model_fields[option].description
    assert description
    assert "\n" not in description
    assert bounds(model, option)
    number = numbers(fields(model)[option])
    if number is not None:
        assert {"minimum", "exclusiveMinimum"} & set(number), "a number has a lower bound"


@every_entry
def test_defaults_need_no_options_and_touch_no_file(registry, name):
    global _watching
    registry.load(name)  # modules are files
    _opened.clear()
    _watching = True
    try:
        made = MAKE[registry.kind](name)
    finally:
        _watching = False
    assert _opened == []
    assert made.options == type(made).Options()


@every_entry
def test_a_label_is_a_spec(registry, name):
    cls, make = registry.load(name), MAKE[registry.kind]
    for options in option_sets(cls.Options):
        made = cls(options)
        assert made.label.partition(":")[0] == name
        again = make(made.label)
        assert type(again) is cls
        assert again.options == options
        assert again.label == made.label


@every_option
def test_a_value_out_of_bounds_is_refused_by_the_name_of_its_field(registry, name, option):
    """Also by way of a spec, where the value can be written in one."""
    schema = fields(registry.load(name).Options)[option]
    for value in illegal_values(schema):
        with pytest.raises(ConfigError) as caught:
            MAKE[registry.kind](name, {option: value})
        field = f"{registry.kind}_options.{option}"
        assert caught.value.field.startswith(field), value
        assert str(caught.value).startswith(field)


@every_entry
def test_an_unknown_option_is_refused(registry, name):
    with pytest.raises(ConfigError, match="no_such_option"):
        MAKE[registry.kind](name, {"no_such_option": 1})


@pytest.mark.parametrize("name", RULES.names())
def test_the_attributes_of_a_rule_fit_together(name):
    cls = RULES.load(name)
    assert cls.signals in ("margins", "logits", "hidden")
    assert not cls.draft_hidden or cls.signals == "hidden"
    assert not cls.trained or "head" in cls.Options.model_fields
    assert isinstance(cls().lossless, bool)
    for preset, options in cls.presets.items():
        assert RULES.create(name, options), preset


def test_every_preset_names_a_rule_that_has_it():
    for preset, name in PRESETS.items():
        assert preset in RULES.load(name).presets
        assert preset not in RULES


@pytest.mark.parametrize("name", POLICIES.names())
def test_the_largest_plan_of_a_policy_is_a_plan(name):
    policy = make_policy(name)
    policy.begin()
    assert policy.largest().num_draft_tokens >= 1
    assert policy.needs_draft or policy.largest().draft_nothing


class _Options(BaseModel):
    closed: float = Field(0.5, ge=0, le=1)
    opened: float | None = Field(0.5, gt=0, lt=2)
    count: int = Field(3, ge=1, le=1000)
    flag: bool = False
    kind: Literal["a", "b"] = "a"
    text: str = ""

    @model_validator(mode="after")
    def _whole(self):
        if self.count == 64 and self.flag:
            raise ValueError("not both")
        return self


def test_option_sets_hold_each_bound_and_all_floats_at_once():
    sets = option_sets(_Options, [{"flag": True, "count": 64}, {"closed": 0.25}])
    changed = [options.model_dump(exclude_defaults=True) for options in sets]
    assert changed == [
        {},
        {"closed": 0.0},
        {"closed": 1.0},
        {"opened": 1e-6},
        {"opened": 2 - 1e-6},
        {"count": 1},
        {"count": 64},
        {"flag": True},
        {"kind": "b"},
        {"closed": 0.0, "opened": 1e-6},
        {"closed": 1.0, "opened": 2 - 1e-6},
        {"closed": 0.25},
    ]


@pytest.mark.parametrize("name", ["closed", "opened", "count", "flag", "kind", "text"])
def test_illegal_values_are_illegal(name):
    values = illegal_values(fields(_Options)[name])
    assert len(values) >= 2
    for value in values:
        with pytest.raises(ValidationError):
            _Options.model_validate({name: value})

"""Rules and policies that requests ask for: nothing of them reaches the file system."""

from __future__ import annotations

import sys
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import AliasChoices, BaseModel, Field

from adaptivespec.core.errors import ConfigError
from adaptivespec.policy import POLICIES, make_policy
from adaptivespec.serve import speculation as module
from adaptivespec.serve.errors import ApiError
from adaptivespec.serve.parameters import read_ask
from adaptivespec.serve.settings import Speculation
from adaptivespec.serve.speculation import operator_options, speculation_of
from adaptivespec.verify import RULES, make_rule, rule_names

SECRET = "/nowhere/adaptivespec-secret"
REGISTRIES = [("rule", RULES), ("policy", POLICIES)]
ENTRIES = [(kind, name) for kind, registry in REGISTRIES for name in registry.names()]

_opened: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.listdir", "os.scandir", "subprocess.Popen"):
        _opened.append(str(arguments[0]))


sys.addaudithook(_note)


@pytest.fixture
def opened():
    """Names of all files that were opened meanwhile."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


def chosen(default: Speculation | None = None, **fields: Any) -> Speculation:
    ask = read_ask("completion", {"prompt": "a", **fields})
    return speculation_of(ask, default or Speculation(), most_nodes=128)


def spellings(kind: str, name: str, option: str, value: object) -> list[Any]:
    registry = dict(REGISTRIES)[kind]
    names = list(registry.load(name).Options.model_fields)
    before = [str(registry.load(name).Options.model_fields[key].get_default()).replace(" ", "")
              for key in names[: names.index(option)]]  # fmt: skip
    return [
        f"{name}:{option}={value}",
        f"{name}:{','.join([*before, str(value)])}",
        {"name": name, "options": {option: value}},
    ]


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_no_option_of_any_entry_opens_what_it_names(kind, name, opened):
    registry = dict(REGISTRIES)[kind]
    for option in registry.load(name).Options.model_fields:
        for spelling in spellings(kind, name, option, SECRET):
            with pytest.raises((ApiError, ConfigError)):
                chosen(**{kind: spelling})
    assert [path for path in opened if "secret" in path] == []


@pytest.mark.parametrize("name", ["judge", "semantic"])
def test_a_head_is_the_operators_to_set(name):
    for spelling in spellings("rule", name, "head", SECRET):
        with pytest.raises(ApiError) as caught:
            chosen(rule=spelling)
        assert caught.value.param == "rule"
        assert "'head'" in caught.value.message
        assert "operator" in caught.value.message
    assert chosen(rule=f"{name}:threshold=0.7").rule.options.head == ""


def test_text_is_found_whatever_it_is_called():
    class Options(BaseModel):
        number: int | None = 0
        word: Literal["a", "b"] = "a"
        pairs: tuple[tuple[int, float], ...] = ()
        triple: tuple[int, int, int] = (1, 2, 3)
        flag: bool = False
        path: str | None = None
        names: list[str] = Field(default_factory=list)
        nested: dict[str, Any] = Field(default_factory=dict)
        anything: Any = None
        some: list[Any] = Field(default_factory=list)
        hidden: Annotated[str, Field(validation_alias=AliasChoices("hidden", "number2"))] = ""

    expected = {"path", "names", "nested", "anything", "some", "hidden"}
    assert operator_options(Options) == expected


def test_text_is_found_under_its_other_names_too(monkeypatch):
    class Hidden:
        class Options(BaseModel):
            path: str = Field("", validation_alias=AliasChoices("path", "where"))

        name: ClassVar[str] = "hidden"

    registry = type(RULES)("rule", {"hidden": "unused:Hidden"})
    monkeypatch.setattr(registry, "load", lambda name: Hidden)
    monkeypatch.setattr(module, "RULES", registry)
    for spelling in (f"hidden:path={SECRET}", f"hidden:where={SECRET}", f"hidden:{SECRET}"):
        with pytest.raises(ApiError, match="operator"):
            chosen(rule=spelling)


@pytest.mark.parametrize("name", [*RULES.names(), *rule_names()])
def test_every_rule_can_be_asked_for(name):
    assert chosen(rule=name).rule.label == make_rule(name).label


@pytest.mark.parametrize("name", [*POLICIES.names(), "auto"])
def test_every_policy_can_be_asked_for(name):
    assert chosen(policy=name).policy == name


def test_options_arrive_in_every_spelling():
    for rule in ("margin:0.4", "margin:kappa=0.4", {"name": "margin", "options": {"kappa": 0.4}}):
        assert chosen(rule=rule).rule.kappa == 0.4
    assert chosen(rule="margin", kappa=0.4).rule.kappa == 0.4
    assert chosen(rule="safe", kappa=0.4).rule.limits.max_promotions_per_step == 1
    policy = chosen(policy={"name": "static", "options": {"num_steps": 2, "topk": 2}})
    assert make_policy(policy.policy, policy.policy_options).label == "static:num_steps=2,topk=2"


def test_a_kappa_alone_changes_that_of_the_default_rule():
    default = Speculation(make_rule("margin:0.2,protect_digits=true"), "chain:3")
    made = chosen(default, kappa=0.6)
    assert (made.rule.kappa, made.rule.options.protect_digits) == (0.6, True)
    assert made.policy == "chain:3"
    with pytest.raises(ConfigError, match="no kappa"):
        chosen(kappa=0.6)


def test_what_is_not_named_is_the_default():
    default = Speculation("margin:0.2", "static", {"num_steps": 2})
    assert chosen(default) == default
    assert chosen(default, policy="dcs") == Speculation("margin:0.2", "dcs", None)
    assert chosen(default, rule="strict").policy == "static"


def test_what_a_certificate_vouches_for_is_served_with_its_policy_alone():
    default = Speculation("margin:0.3", "static", {"num_steps": 2}, certified=True)
    assert chosen(default) == default
    assert chosen(default, policy="auto") == default
    assert chosen(default, policy="static:2").rule == "margin:0.3"
    assert chosen(default, policy="static:3").rule == "strict"
    assert chosen(default, policy="none").rule == "strict"
    assert chosen(default, policy="static:3", rule="margin:0.3").rule.kappa == 0.3


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "nope"},
        {"rule": ""},
        {"rule": "margin:kapa=1"},
        {"rule": "margin:0.2", "kappa": 0.3},
        {"rule": "margin:-1"},
        {"rule": "margin:" + "[" * 400},
        {"rule": "strict", "kappa": 0.2},
        {"policy": "nope"},
        {"policy": "static:a"},
        {"policy": "static:1,2,3,4"},
        {"policy": "auto:3"},
        {"policy": {"name": "static", "options": {"x": 1}}},
    ],
)
def test_what_does_not_exist_is_refused(fields):
    with pytest.raises((ConfigError, ApiError)):
        chosen(**fields)


@pytest.mark.parametrize(
    "policy",
    [
        "static:5,4,129",
        "static:33,4,16",
        "static:5,33,16",
        "eagle2:num_draft_tokens=65536",
        "chain:64",
        "talon:num_draft_tokens=4000",
        "sequoia:num_draft_tokens=512",
        "dcs:high=(8,16,1000)",
        "ema:candidates=[1,64]",
        "bandit:arms=[[8,16,1000]]",
        {"name": "priced", "options": {"mode": "triple", "arms": [[8, 16, 1000]]}},
        {"name": "medusa", "options": {"positions": [[i] for i in range(60)]}},
    ],
)
def test_trees_that_would_hold_up_everybody_are_refused(policy):
    with pytest.raises(ApiError) as caught:
        chosen(policy=policy)
    assert caught.value.param == "policy"
    assert "at most" in caught.value.message

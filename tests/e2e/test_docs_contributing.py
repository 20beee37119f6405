"""The worked rule and policy of CONTRIBUTING.md are what it says: short, and sound."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from adaptivespec import policy, verify
from adaptivespec.core.registry import Registry
from adaptivespec.policy.base import Outcome, Signals
from fakes.scripted import VOCAB, chain, engine, prefer

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
SOURCES = [text for kind, text in BLOCKS if kind == "python"]
LINES = [text for kind, text in BLOCKS if kind == "text"]


def installed(monkeypatch, package, registry, source, line):
    """The package's registry with the guide's line in it, and the guide's code as that module."""
    name, place = re.fullmatch(r'"(\w+)": "([\w.:]+)",\n', line).groups()
    module = ModuleType(place.partition(":")[0])
    exec(compile(source, "CONTRIBUTING.md", "exec"), module.__dict__)  # noqa: S102 - it is ours
    monkeypatch.setitem(sys.modules, module.__name__, module)
    known = getattr(package, registry)
    whole = Registry(known.kind, {**known._entries, name: place})
    monkeypatch.setattr(package, registry, whole)
    return whole


@pytest.fixture
def rules(monkeypatch):
    return installed(monkeypatch, verify, "RULES", SOURCES[0], LINES[0])


@pytest.fixture
def policies(monkeypatch):
    return installed(monkeypatch, policy, "POLICIES", SOURCES[1], LINES[1])


def test_each_has_at_most_thirty_lines_of_code():
    assert len(SOURCES) == len(LINES) == 2
    for source in SOURCES:
        lines = source.splitlines()
        assert len([line for line in lines if line.strip()]) <= 30
        assert max(map(len, lines)) <= 100


PROPERTIES = [
    "test_rule_contract.test_x_a_batch_of_trees_equals_the_single_runs",
    "test_rule_contract.test_choosing_changes_nothing_that_it_is_given",
    "test_rule_contract.test_the_same_call_gives_the_same_tokens",
    "test_rule_contract.test_no_random_number_is_drawn_at_temperature_zero",
    "test_rule_properties.test_vi_the_order_of_siblings_does_not_matter_when_greedy",
    "test_rule_properties.test_vii_a_constant_added_to_the_logits_changes_nothing",
    "test_rule_properties.test_a_promoted_token_is_never_protected_and_overrides_none_that_is",
    "test_rule_properties.test_the_target_token_that_a_rule_reports_is_y",
    "test_rule_properties.test_only_possible_tokens_are_chosen",
    "test_rule_law.test_a_rule_is_as_lossless_as_it_says",
]


@pytest.mark.parametrize("place", PROPERTIES)
def test_the_rule_has_the_properties_of_every_rule(place, rules, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "property")
    name, _, test = place.partition(".")
    module = __import__(name)
    monkeypatch.setattr(module, "RULES", rules)
    getattr(module, test)("unsure")


def test_the_rule_decodes_under_its_name(rules):
    made = engine(lambda prefix: prefer(3, 5), lambda prefix: [(5, -1), (5, 0)])
    options = {"policy": "static:2,2,3", "max_tokens": 9}
    strict = made.generate([1, 2], **options)
    assert made.generate([1, 2], rule="unsure:0", **options).token_ids == strict.token_ids
    lossy = made.generate([1, 2], rule="unsure:nats=1.5,entropy=0", **options)
    assert not lossy.lossless
    assert lossy.statistics["num_promoted_tokens"] > 0
    sure = made.generate([1, 2], rule="unsure:nats=1.5,entropy=2.7", **options)
    assert sure.token_ids == strict.token_ids
    (entry,) = [entry for entry in rules.describe() if entry.name == "unsure"]
    assert [option.name for option in entry.options] == ["nats", "entropy"]
    assert entry.summary


def test_the_policy_decodes_under_its_name_and_follows_what_is_accepted(policies):
    def logits(prefix):
        return prefer(prefix[-1] % (VOCAB - 1) + 1)

    made = engine(logits, lambda prefix: chain(*((prefix[-1] + i) % 15 + 1 for i in range(8))))
    plain = made.generate([1, 2], policy="none", max_tokens=40)
    result = made.generate([1, 2], policy="streak:4", max_tokens=40, trace=True)
    assert result.token_ids == plain.token_ids
    depths = [step.plan[0] for step in result.trace]
    assert depths[:4] == [1, 2, 3, 4]
    assert max(depths) == 4


def test_the_policy_is_halved_by_failure_and_rests_in_doubt(policies):
    streak = policy.make_policy("streak:most=8,doubt=0.5")
    streak.begin()
    sure = Signals(0.9, remaining=99)
    for _ in range(9):
        plan = streak.plan(sure)
        streak.observe(plan, Outcome(plan.num_steps, 0, plan.num_steps))
    assert streak.plan(sure) == streak.largest()
    streak.observe(streak.plan(sure), Outcome(3, 0, 8))
    assert streak.plan(sure).num_steps == 4
    assert streak.plan(Signals(0.4, remaining=99)).draft_nothing
    streak.begin()
    assert streak.plan(sure).num_steps == 1
